"""Plans the next micro-batch, from a stream's position and the current topics. Pure.

```
    start (the checkpoint)     seen (the brokers)                   what it means
    rides  id A  {0: 7}        rides  id A  {0: 9, 1: 4}            0 from 7; 1 is new: from its first message
    fares  id B  {0: 3}        fares  id C  {0: 1}                  recreated: loss, then from the new one's start
    taxis  id D  {0: 5}        -                                    vanished: loss; its position is kept
```
A topic or partition that brokers do not list keeps its place in every position: an incomplete answer must never make
messages that were already read look new.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from respool.spark.source.limits import Place
from respool.spark.source.loss import Loss
from respool.spark.source.splits import Range
from respool.spark.source.stream_offset import Position, TopicAt

Offsets: TypeAlias = Mapping[int, int]


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
    """The offsets to read next. `earliest` is called for new partitions. A topic that is no longer wanted is no loss.

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


def ranges_between(start: Position, end: Position) -> list[Range]:
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
