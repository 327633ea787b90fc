"""Splits ranges of offsets into tasks. Pure: the same ranges give the same tasks when a batch is repeated."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise


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
