"""Searches of a tag index find every batch that has what is asked for, and few others: in memory and in a file."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respool.log.index.tag_columns import (
    HASHES_MAX,
    GrowingTags,
    Tags,
    TagSearch,
    bloom_filter,
    may_contain,
)
from respool.log.index.tag_file import (
    TagFileBroken,
    TagFileHead,
    encode_tags,
    parse_tags,
)
from respool.log.tag_query import TagName
from respool.model.ids import Offset
from respool.records.siphash import siphash

SECRET = bytes(16)
NAMES: list[TagName] = [b"tag", None]
HASHES = [siphash(b"%d" % number, SECRET) for number in range(3_000)]
# Equal in their short hashes.
TWINS = [7 << 32 | 0xABCD, 9 << 32 | 0xABCD]

value_sets = st.one_of(
    st.lists(st.sampled_from([*HASHES[:6], *TWINS]), max_size=4, unique=True),
    st.just(HASHES[: HASHES_MAX + 1]),
    st.just(HASHES[HASHES_MAX : 3 * HASHES_MAX]),
    st.none(),
)
batches = st.lists(
    st.one_of(st.none(), st.tuples(value_sets, value_sets).map(list)), min_size=1, max_size=30
)
clauses = st.lists(
    st.tuples(
        st.sampled_from([*NAMES, b"not indexed"]),
        st.none()
        | st.lists(st.sampled_from([*HASHES[:8], *TWINS]), min_size=1, max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=3,
)


def grown(found: list[list[list[int] | None] | None]) -> GrowingTags:
    tags = GrowingTags(NAMES, Offset(100))
    for number, values in enumerate(found):
        tags.add(
            base_offset=Offset(100 + 10 * number),
            next_offset=Offset(109 + 10 * number),
            size=70,
            values=values,
        )
    return tags


def head_of(tags: GrowingTags) -> TagFileHead:
    return TagFileHead(tags.extent.batch_count, 1, 2, tags.extent.position, 2**63)


def file_of(tags: GrowingTags) -> bytes:
    return encode_tags(tags, head_of(tags))


def holds(values: list[int] | None, asked: tuple[int, ...] | None) -> bool:
    if values is None:
        return True
    return bool(values) if asked is None else not set(values).isdisjoint(asked)


def found_by(tags: Tags, asked: list[tuple[TagName, tuple[int, ...] | None]]) -> list[int]:
    search = TagSearch(tags, asked)
    if not search.is_useful:
        return list(range(tags.extent.batch_count))
    found = []
    at = search.next_from(0)
    while at < tags.extent.batch_count:
        found.append(at)
        at = search.next_from(at + 1)
    return found


@given(batches, clauses)
@settings(max_examples=300)
def test_every_batch_that_has_it_is_found(
    given_batches: list[list[list[int] | None] | None],
    asked: list[tuple[TagName, tuple[int, ...] | None]],
) -> None:
    expected = [
        number
        for number, values in enumerate(given_batches)
        if values is None
        or all(holds(values[NAMES.index(name)], hashes) for name, hashes in asked if name in NAMES)
    ]
    tags = grown(given_batches)
    mapped = parse_tags(memoryview(file_of(tags)))
    assert mapped.head == head_of(tags)
    in_memory = found_by(tags, asked)
    assert found_by(mapped, asked) == in_memory
    assert set(expected) <= set(in_memory)
    few = [
        values is not None and all(v is not None and len(v) < 9 for v in values)
        for values in given_batches
    ]
    asks_twins = any(set(hashes or ()) & set(TWINS) for _, hashes in asked)
    if not asks_twins:
        # Short hashes of these values differ.
        assert [one for one in in_memory if few[one]] == [one for one in expected if few[one]]


def test_equal_short_hashes_are_a_maybe() -> None:
    tags = grown([[[TWINS[0]], []], [[HASHES[0]], []]])
    assert found_by(tags, [(b"tag", (TWINS[1],))]) == [0]


def test_halves_of_two_hashes_are_not_taken_for_one() -> None:
    low, high = 0x1122, 0x3344
    # In memory: 22 11 44 33 on most machines, and the one asked for lies in between.
    asked = 0x4411 if sys.byteorder == "little" else 0x2233
    tags = grown([[[low, high], []], [[asked], []]])
    assert found_by(tags, [(b"tag", (asked,))]) == [1]
    assert found_by(parse_tags(memoryview(file_of(tags))), [(b"tag", (asked,))]) == [1]


def test_a_filter_has_all_values_and_about_one_other_in_a_hundred() -> None:
    inside, outside = HASHES[:1_000], HASHES[1_000:]
    bloom = bloom_filter(inside)
    assert len(bloom) == 1_250
    assert all(may_contain(bloom, one) for one in inside)
    assert sum(may_contain(bloom, one) for one in outside) < len(outside) * 0.02


def test_a_reader_sees_what_was_there_when_its_search_began() -> None:
    tags = grown([[[HASHES[0]], []]])
    search = TagSearch(tags, [(b"tag", (HASHES[1],))])
    tags.add(base_offset=Offset(110), next_offset=Offset(120), size=70, values=[[HASHES[1]], []])
    assert search.next_from(0) == 1 == search.extent.batch_count
    assert found_by(tags, [(b"tag", (HASHES[1],))]) == [1]


@pytest.mark.parametrize("cut", [1, 4, 30, 60, 10**6])
def test_a_short_file_is_not_used(cut: int) -> None:
    data = file_of(grown([[HASHES[:3], HASHES[:80]], None]))
    with pytest.raises(TagFileBroken):
        parse_tags(memoryview(data[: max(0, len(data) - cut)]))


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_damaged_file_is_not_used(position: int, flip: int) -> None:
    data = bytearray(file_of(grown([[HASHES[:3], HASHES[:80]], None])))
    data[position % len(data)] ^= flip
    with pytest.raises(TagFileBroken):
        parse_tags(memoryview(data))


@given(st.binary(max_size=200))
def test_other_bytes_are_not_used(data: bytes) -> None:
    with pytest.raises(TagFileBroken):
        parse_tags(memoryview(data))
