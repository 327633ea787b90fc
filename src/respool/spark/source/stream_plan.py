"""Plans the next micro-batch, from a stream's position and the current topics: what, how much, in which tasks. Pure.

```
    start (the checkpoint)     seen (the brokers)                   what it means
    rides  id A  {0: 7}        rides  id A  {0: 9, 1: 4}            0 from 7; 1 is new: from its first message
    fares  id B  {0: 3}        fares  id C  {0: 1}                  recreated: loss, then from the new one's start
    taxis  id D  {0: 5}        -                                    vanished: loss; its position is kept
```
A topic or partition that brokers do not list keeps its place in every position: an incomplete answer must never make
messages that were already read look new.

A limit is shared among partitions in proportion to their backlog. The same ranges give the same tasks when a batch is
repeated.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise
from typing import TypeAlias

from respool.spark.source.loss import Loss
from respool.spark.source.stream_offset import Position, TopicAt

Offsets: TypeAlias = Mapping[int, int]
Place: TypeAlias = tuple[str, int]
PlaceOffsets: TypeAlias = Mapping[Place, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Available:
    """The offsets that could be read next. `begins` and `ends` have the same keys."""

    begins: dict[Place, int]
    ends: dict[Place, int]
    # The ids of these topics; and the positions of topics that are only kept.
    ids: dict[str, str | None]
    kept: dict[str, TopicAt]

    def position(self, ends: Mapping[Place, int]) -> Position:
        """The position after everything before these ends is read."""
        offsets: dict[str, dict[int, int]] = {name: {} for name in self.ids}
        for (topic, partition), offset in ends.items():
            offsets[topic][partition] = offset
        made = {name: TopicAt(self.ids[name], numbers) for name, numbers in offsets.items()}
        for name, at in self.kept.items():
            already = made.get(name)
            merged = (
                at if already is None else TopicAt(already.id, {**at.offsets, **already.offsets})
            )
            made[name] = merged
        return made


def available(
    start: Position,
    latest: Position,
    loss: Loss,
    *,
    is_wanted: Callable[[str], bool],
    earliest: Callable[[str, list[int]], Offsets],
) -> Available:
    """The offsets to read next. `earliest` is called for new partitions. A topic that is no longer read is not a loss.

    Raises:
        DataLost: a topic has vanished or was recreated.
    """
    found = Available(begins={}, ends={}, ids={}, kept={})
    for name in sorted(start.keys() | latest.keys()):
        before, now = start.get(name), latest.get(name)
        if now is None:
            assert before is not None
            if is_wanted(name):
                report_vanished(loss, name, before)
            found.kept[name] = before
            continue
        if before is not None and before.is_another_than(now):
            report_recreated(loss, name, before, now)
            before = None
        found.ids[name] = now.id or (None if before is None else before.id)
        begins = {} if before is None else dict(before.offsets)
        if new := sorted(now.offsets.keys() - begins.keys()):
            begins |= earliest(name, new)
        for number, end in now.offsets.items():
            found.begins[name, number] = begins[number]
            found.ends[name, number] = max(end, begins[number])
        if before is not None and before.offsets.keys() - now.offsets.keys():
            found.kept[name] = before
    return found


def report_vanished(loss: Loss, topic: str, before: TopicAt) -> None:
    loss.report(
        f"the topic {topic!r} (id {before.id}) is not there any more; it was read up to offsets "
        f"{dict(before.offsets)}",
        instead="the topic is passed over",
    )


def report_recreated(loss: Loss, topic: str, before: TopicAt, now: TopicAt) -> None:
    loss.report(
        f"the topic {topic!r} was deleted and made again: the checkpoint is of the one with id {before.id}, up to "
        f"offsets {dict(before.offsets)}, and now it has the id {now.id}, with other messages",
        instead="from the start of the new one",
    )


def ranges_between(start: Position, end: Position) -> list["Range"]:
    """The ranges of one micro-batch. A new partition begins at 0, unless its whole topic is new."""
    ranges: list[Range] = []
    for name in sorted(end):
        to, at = end[name], start.get(name)
        before: Offsets = {} if at is None or at.is_another_than(to) else at.offsets
        ranges += [
            Range(
                topic=name,
                topic_id=to.id,
                partition=number,
                begin=before.get(number, 0),
                end=to.offsets[number],
            )
            for number in sorted(to.offsets)
        ]
    return [one for one in ranges if one.count > 0]


def waiting(start: PlaceOffsets, end: PlaceOffsets) -> dict[Place, int]:
    """The number of unread offsets per partition; those without any are omitted."""
    return {place: end[place] - start[place] for place in sorted(end) if end[place] > start[place]}


def limit_offsets(start: PlaceOffsets, end: PlaceOffsets, most: int) -> dict[Place, int]:
    """End offsets with at most `most` offsets in total: the same fraction of each partition, up to rounding.

    At least one offset is included, if any is available and `most` is not 0.
    """
    counts = waiting(start, end)
    total = sum(counts.values())
    if total <= most:
        return dict(end)
    return _moved(start, end, _shares(counts, most, total))


def limit_bytes(
    start: PlaceOffsets, end: PlaceOffsets, most: int, bytes_an_offset: Mapping[Place, float]
) -> dict[Place, int]:
    """End offsets with about `most` bytes in total. At least one offset is included, however large its message is."""
    counts = waiting(start, end)
    expected = sum(count * max(bytes_an_offset[place], 0) for place, count in counts.items())
    if expected <= most:
        return dict(end)
    total = sum(counts.values())
    # The same fraction of each partition: an exact fraction of its offsets is about that of its bytes.
    allowed = max(1, int(total * most / expected))
    return _moved(start, end, _shares(counts, allowed, total))


def is_worth_a_batch(start: PlaceOffsets, end: PlaceOffsets, least: int) -> bool:
    return sum(waiting(start, end).values()) >= least


def _shares(counts: Mapping[Place, int], most: int, total: int) -> dict[Place, int]:
    shares = {place: most * count // total for place, count in counts.items()}
    # The remainder of the rounding goes to those that lost most by it.
    left = most - sum(shares.values())
    lost = sorted(counts, key=lambda place: (-(most * counts[place] % total), place))
    for place in lost[:left]:
        shares[place] += 1
    return shares


def _moved(start: PlaceOffsets, end: PlaceOffsets, shares: Mapping[Place, int]) -> dict[Place, int]:
    return {place: start[place] + shares[place] if place in shares else end[place] for place in end}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Range:
    """The offsets [begin, end) of one partition. Can be pickled."""

    topic: str
    # The topic id for which the offsets are valid; None if unknown.
    topic_id: str | None
    partition: int
    begin: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.begin


def split(
    ranges: Sequence[Range], *, at_least: int | None = None, offsets_max: int | None = None
) -> list[Range]:
    """Split into pieces of at most `offsets_max`, and into `at_least` pieces in total if possible, the longest first.

    Empty ranges are omitted. Pieces of one range differ in length by at most one.
    """
    wanted = [one for one in ranges if one.count > 0]
    pieces = [1 if offsets_max is None else -(-one.count // offsets_max) for one in wanted]
    if at_least is not None:
        _cut_longest(wanted, pieces, at_least)
    return [part for one, count in zip(wanted, pieces, strict=True) for part in _cut(one, count)]


def _cut_longest(ranges: Sequence[Range], pieces: list[int], at_least: int) -> None:
    missing = min(at_least, sum(one.count for one in ranges)) - sum(pieces)
    # The longest piece first; among equally long ones, that of the first range.
    longest = [(-one.count / pieces[number], number) for number, one in enumerate(ranges)]
    heapify(longest)
    for _ in range(max(0, missing)):
        _, number = longest[0]
        pieces[number] += 1
        one = ranges[number]
        length = one.count / pieces[number] if pieces[number] < one.count else 0
        heapreplace(longest, (-length, number))


def _cut(one: Range, count: int) -> list[Range]:
    bounds = [one.begin + one.count * number // count for number in range(count + 1)]
    return [
        Range(topic=one.topic, topic_id=one.topic_id, partition=one.partition, begin=begin, end=end)
        for begin, end in pairwise(bounds)
    ]
