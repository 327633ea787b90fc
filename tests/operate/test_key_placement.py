from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.operate.key_placement import KeyPlacement, SplitKey, divide_budget
from respool.replay.copy_plan import partition_for_key


def placed(*messages: tuple[bytes | None, int], **limits: int) -> KeyPlacement:
    placement = KeyPlacement(**limits)
    for key, partition in messages:
        placement.on_message(key, partition)
    return placement


def test_a_key_in_two_partitions_is_found_with_all_of_them() -> None:
    found = placed((b"a", 0), (b"b", 1), (b"a", 2), (b"a", 0), (b"a", 1), (None, 0), (None, 1))
    assert [(one.key, one.partitions) for one in found.split_keys(3, partition_for_key)] == [
        (b"a", (0, 1, 2))
    ]
    assert (found.messages, found.with_key, found.keys, found.split_count) == (7, 5, 2, 1)


def test_where_the_common_partitioners_put_a_key_is_told() -> None:
    (found,) = placed((b"ride-1", 0), (b"ride-1", 1)).split_keys(3, partition_for_key)
    assert found.murmur2_partition == partition_for_key(b"ride-1", 3)
    assert found.crc32_partition == crc32(b"ride-1") % 3
    (empty,) = placed((b"", 0), (b"", 1)).split_keys(3, partition_for_key)
    assert empty.crc32_partition is None


def test_a_key_beyond_both_partitioners_places_is_not_theirs() -> None:
    theirs = SplitKey(key=b"a", partitions=(0, 2), murmur2_partition=2, crc32_partition=0)
    assert theirs.is_by_both
    other = SplitKey(key=b"a", partitions=(0, 1, 2), murmur2_partition=2, crc32_partition=0)
    assert not other.is_by_both


def test_long_keys_are_told_apart_by_all_of_their_bytes() -> None:
    long = b"x" * 1000
    found = placed((long + b"1", 0), (long + b"2", 1), (long + b"1", 1))
    assert [one.key for one in found.split_keys(2, partition_for_key)] == [long + b"1"]


def test_memory_is_bounded_and_what_was_not_compared_is_counted() -> None:
    found = placed(*((b"%d" % n, n % 2) for n in range(10)), (b"0", 1), (b"9", 0), tracked_max=4)
    assert (found.keys, found.untracked, found.split_count) == (4, 7, 1)


def test_keys_beyond_the_list_are_counted_once_each() -> None:
    messages = [(b"%d" % n, partition) for partition in (0, 1, 2) for n in range(5)]
    found = placed(*messages, listed_max=2)
    assert (len(found.split_keys(3, partition_for_key)), found.split_count) == (2, 5)


def test_large_keys_are_counted_and_not_listed_beyond_the_bytes_allowed() -> None:
    large, other = b"x" * 60, b"y" * 60
    messages = [(key, partition) for partition in (0, 1, 2) for key in (large, other, b"z")]
    found = placed(*messages, listed_bytes_max=70)
    assert [one.key for one in found.split_keys(3, partition_for_key)] == [large, b"z"]
    assert found.split_count == 3


@pytest.mark.parametrize(
    ("available", "budget", "expected"),
    [
        ({0: 10, 1: 10}, 6, {0: 3, 1: 3}),
        ({0: 1, 1: 10}, 6, {0: 1, 1: 5}),
        ({0: 2, 1: 3}, 100, {0: 2, 1: 3}),
        ({0: 2, 1: 3}, None, {0: 2, 1: 3}),
        ({}, 5, {}),
    ],
)
def test_a_budget_is_divided_alike_and_short_partitions_pass_on_the_rest(
    available: dict[int, int], budget: int | None, expected: dict[int, int]
) -> None:
    assert divide_budget(available, budget) == expected


@given(st.dictionaries(st.integers(0, 50), st.integers(0, 1000)), st.integers(0, 5000))
def test_a_budget_is_used_up_while_there_is_something_to_scan(
    available: dict[int, int], budget: int
) -> None:
    chosen = divide_budget(available, budget)
    assert sum(chosen.values()) == min(budget, sum(available.values()))
    assert all(0 <= chosen[number] <= available[number] for number in available)
