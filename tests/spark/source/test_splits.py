"""Ranges are cut into tasks: all offsets once, as many and as small as asked for, and always the same way."""

from hypothesis import given
from hypothesis import strategies as st

from respool.spark.source.splits import Range, split


def ranges_of(counts: list[int]) -> list[Range]:
    return [
        Range(topic="t", topic_id="i", partition=number, begin=10, end=10 + count)
        for number, count in enumerate(counts)
    ]


limits = st.none() | st.integers(1, 40)


@given(st.lists(st.integers(0, 300), max_size=6), limits, limits)
def test_every_offset_is_in_one_task(
    counts: list[int], at_least: int | None, offsets_max: int | None
) -> None:
    ranges = ranges_of(counts)
    parts = split(ranges, at_least=at_least, offsets_max=offsets_max)
    for one in ranges:
        mine = [part for part in parts if part.partition == one.partition]
        offsets = [offset for part in mine for offset in range(part.begin, part.end)]
        assert offsets == list(range(one.begin, one.end))
    assert all(part.count > 0 for part in parts)
    assert parts == split(ranges, at_least=at_least, offsets_max=offsets_max)


@given(st.lists(st.integers(0, 300), max_size=6), limits, limits)
def test_there_are_as_many_tasks_as_asked_for_and_none_is_too_long(
    counts: list[int], at_least: int | None, offsets_max: int | None
) -> None:
    parts = split(ranges_of(counts), at_least=at_least, offsets_max=offsets_max)
    if offsets_max is not None:
        assert all(part.count <= offsets_max for part in parts)
    if at_least is not None:
        assert len(parts) >= min(at_least, sum(counts))


def test_the_longest_range_is_cut_first() -> None:
    parts = split(ranges_of([100, 10, 10]), at_least=5)
    assert [part.count for part in parts] == [33, 33, 34, 10, 10]


def test_without_wishes_each_range_is_one_task() -> None:
    assert split(ranges_of([5, 0, 7])) == [one for one in ranges_of([5, 0, 7]) if one.count]
