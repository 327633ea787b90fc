"""Offset -> position: lookups equal a search through all entries."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.log.index.offset_index import OffsetIndex
from respool.model.ids import Offset
from respool.sim.disk.simulated_disk import SimDisk

PATH = "00000000000000001000.index"
BASE = Offset(1000)


def index_of(disk: SimDisk, *entries: tuple[int, int], bytes_max: int = 800) -> OffsetIndex:
    index = OffsetIndex.create(disk, PATH, base_offset=BASE, bytes_max=bytes_max)
    for last_offset, position in entries:
        index.file.make_room(1)
        index.append(Offset(last_offset), position)
    return index


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1))


def test_the_bytes_are_kafkas(disk: SimDisk) -> None:
    index_of(disk, (1007, 4200), (1019, 9000)).file.trim()
    assert disk.read_file(PATH) == bytes.fromhex("00000007 00001068 00000013 00002328")


@given(
    steps=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=60),
    asked=st.integers(900, 4000),
)
def test_a_lookup_finds_the_greatest_entry_not_above(
    steps: list[tuple[int, int]], asked: int
) -> None:
    entries, last_offset, position = [], 1000, 0
    for more, bytes_between in steps:
        last_offset, position = last_offset + more, position + bytes_between
        entries.append((Offset(last_offset), position))
    index = index_of(SimDisk(Random(1)), *entries)
    below = [entry for entry in entries if entry[0] <= asked]
    assert index.lookup(Offset(asked)) == (below[-1] if below else None)
    assert list(index) == entries
    assert index.last == (entries[-1] if entries else None)


def test_entries_must_advance(disk: SimDisk) -> None:
    index = index_of(disk, (1007, 4200))
    with pytest.raises(AssertionError):
        index.append(Offset(1009), 4200)
    assert list(index) == [(1007, 4200)]


def test_it_is_full_when_its_limit_is_reached(disk: SimDisk) -> None:
    index = index_of(disk, *((1000 + n, n) for n in range(1, 12)), bytes_max=100)
    assert not index.is_full
    index.file.make_room(1)
    index.append(Offset(1012), 12)
    assert index.is_full


def test_truncation_forgets_batches_that_reach_the_offset(disk: SimDisk) -> None:
    index = index_of(disk, (1010, 100), (1020, 200), (1030, 300))
    index.truncate_to(Offset(1020))
    assert list(index) == [(1010, 100)]
    assert index.last_position == 100
    index.truncate_to(Offset(0))
    assert list(index) == []
    assert index.last_position == 0


def test_it_opens_as_it_was_closed(disk: SimDisk) -> None:
    index_of(disk, (1010, 100), (1020, 200)).file.trim()
    again = OffsetIndex.open(disk, PATH, base_offset=BASE, bytes_max=800)
    assert again is not None
    assert list(again) == [(1010, 100), (1020, 200)]
    assert again.last_position == 200
    assert again.is_plausible(log_bytes=300)


def test_entries_that_cannot_be_are_noticed(disk: SimDisk) -> None:
    def sound(*entries: tuple[int, int]) -> bool:
        content = b"".join(
            (last - 1000).to_bytes(4, "big", signed=True) + position.to_bytes(4, "big", signed=True)
            for last, position in entries
        )
        disk.replace_file(PATH, content)
        index = OffsetIndex.open(disk, PATH, base_offset=BASE, bytes_max=800)
        assert index is not None
        return index.is_plausible(log_bytes=1000)

    assert sound()
    assert sound((1001, 1), (1002, 999))
    assert not sound((1001, 1), (1002, 1000)), "beyond the file's end"
    assert not sound((1001, 1), (1000, 0)), "zeros at the end: it was never trimmed"
    assert not sound((999, 1)), "before the segment"
    assert not sound((1005, 10), (1001, 20)), "backwards"
    assert not sound((1001, 0)), "the first batch has no entry"


def test_a_lookup_survives_holes_of_zeros(disk: SimDisk) -> None:
    """Where a sector was lost, a lookup may begin too early, never too late."""
    index = index_of(disk, *((1000 + 2 * n, 100 * n) for n in range(1, 101)))
    for hole in range(0, 800, 80):
        holed = index_of(disk, *((1000 + 2 * n, 100 * n) for n in range(1, 101)))
        holed.file.buffer[hole : hole + 80] = bytes(80)
        for asked in range(1000, 1220):
            right, found = index.lookup(Offset(asked)), holed.lookup(Offset(asked))
            assert (found.position if found else 0) <= (right.position if right else 0)
