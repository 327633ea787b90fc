"""Timestamp -> offset: lookups never skip a record."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.log.index.time_index import TimeIndex
from respool.model.ids import NO_TIMESTAMP, Offset
from respool.sim.disk.simulated_disk import SimDisk

PATH = "00000000000000001000.timeindex"
BASE = Offset(1000)


def index_of(disk: SimDisk, *entries: tuple[int, int], bytes_max: int = 1200) -> TimeIndex:
    index = TimeIndex.create(disk, PATH, base_offset=BASE, bytes_max=bytes_max)
    for timestamp, last_offset in entries:
        index.file.make_room(1)
        index.maybe_append(timestamp, Offset(last_offset))
    return index


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1))


def test_the_bytes_are_kafkas(disk: SimDisk) -> None:
    index_of(disk, (5, 1007), (2**40, 1019)).file.trim()
    assert disk.read_file(PATH) == bytes.fromhex(
        "0000000000000005 00000007 0000010000000000 00000013"
    )


def test_only_a_larger_timestamp_gets_an_entry(disk: SimDisk) -> None:
    index = index_of(disk, (50, 1001), (50, 1002), (40, 1003), (51, 1004), (NO_TIMESTAMP, 1005))
    assert list(index) == [(50, 1001), (51, 1004)]
    assert index.last == (51, 1004)


def test_without_a_timestamp_there_are_no_entries(disk: SimDisk) -> None:
    index = index_of(disk, (NO_TIMESTAMP, 1001))
    assert list(index) == []
    assert index.last == (NO_TIMESTAMP, BASE)
    assert index.lookup(10**12) == BASE


@given(
    batches=st.lists(st.integers(0, 12), min_size=1, max_size=50),
    every=st.integers(1, 5),
    asked=st.integers(-1, 13),
)
def test_a_lookup_never_lies_beyond_the_first_batch_that_is_late_enough(
    batches: list[int], every: int, asked: int
) -> None:
    """One offset per batch; an entry after every few of them, with the largest timestamp so far."""
    index = index_of(SimDisk(Random(1)))
    largest = (NO_TIMESTAMP, BASE)
    for number, timestamp in enumerate(batches):
        if timestamp > largest[0]:
            largest = (timestamp, Offset(BASE + number))
        if number % every == 0:
            index.file.make_room(1)
            index.maybe_append(*largest)
    first = next((n for n, timestamp in enumerate(batches) if timestamp >= asked), len(batches))
    found = index.lookup(asked)
    assert found <= BASE + first
    assert found in {BASE, *(last for _, last in index)}
    # And as near as the entries allow.
    assert all(last <= found for timestamp, last in index if timestamp <= asked)


def test_a_lookup_finds_the_last_entry_not_later_than_asked(disk: SimDisk) -> None:
    index = index_of(disk, (10, 1005), (20, 1015), (21, 1025))
    found = {asked: index.lookup(asked) for asked in (9, 10, 11, 19, 20, 21, 99)}
    assert found == {9: 1000, 10: 1005, 11: 1005, 19: 1005, 20: 1015, 21: 1025, 99: 1025}


def test_the_last_entry_before_an_offset(disk: SimDisk) -> None:
    index = index_of(disk, (10, 1005), (20, 1015), (30, 1025))
    assert index.before(Offset(1005)) == (NO_TIMESTAMP, BASE)
    assert index.before(Offset(1006)) == (10, 1005)
    assert index.before(Offset(1025)) == (20, 1015)
    assert index.before(Offset(9999)) == (30, 1025)


def test_one_place_is_kept_for_the_last_entry(disk: SimDisk) -> None:
    index = index_of(disk, *((n, 1000 + n) for n in range(1, 8)), bytes_max=100)
    assert index.file.entries_max == 8
    assert index.is_full
    index.file.make_room(1)
    assert index.maybe_append(100, Offset(1100))


def test_truncation_forgets_batches_that_reach_the_offset(disk: SimDisk) -> None:
    index = index_of(disk, (10, 1005), (20, 1015), (30, 1025))
    index.truncate_to(Offset(1015))
    assert list(index) == [(10, 1005)]
    assert index.last == (10, 1005)
    index.truncate_to(Offset(0))
    assert index.last == (NO_TIMESTAMP, BASE)


def test_entries_that_cannot_be_are_noticed(disk: SimDisk) -> None:
    def sound(*entries: tuple[int, int]) -> bool:
        content = b"".join(
            time.to_bytes(8, "big", signed=True) + (last - 1000).to_bytes(4, "big", signed=True)
            for time, last in entries
        )
        disk.replace_file(PATH, content)
        index = TimeIndex.open(disk, PATH, base_offset=BASE, bytes_max=1200)
        assert index is not None
        return index.is_plausible()

    assert sound()
    assert sound((0, 1000))
    assert sound((5, 1001), (6, 1003))
    assert not sound((5, 1001), (0, 1000)), "zeros at the end: it was never trimmed"
    assert not sound((5, 1001), (5, 1003)), "not growing"
    assert not sound((-1, 1001)), "no timestamp"
    assert not sound((5, 999)), "before the segment"
