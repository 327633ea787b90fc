"""When a batch gets an entry, and what the largest timestamp is."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.log.index.segment_indexes import IndexSettings, SegmentIndexes, index_paths
from respool.log.index.time_index import TimeEntry
from respool.model.errors import DiskFull
from respool.model.ids import Offset
from respool.sim.disk.simulated_disk import SimDisk

SETTINGS = IndexSettings(interval_bytes=100, bytes_max=960)
BASE = Offset(10)


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(Random(1))
    disk.make_folder("t-0")
    return disk


def create(disk: SimDisk, settings: IndexSettings = SETTINGS) -> SegmentIndexes:
    return SegmentIndexes.create(disk, "t-0", BASE, settings)


def add(indexes: SegmentIndexes, position: int, last_offset: int, timestamp: int) -> None:
    indexes.make_room(position)
    indexes.add(position, Offset(last_offset), timestamp)


def test_a_batch_gets_an_entry_when_it_begins_an_interval_after_the_last(disk: SimDisk) -> None:
    indexes = create(disk)
    for position, last_offset in ((0, 11), (100, 12), (101, 13), (150, 14), (201, 15), (202, 16)):
        add(indexes, position, last_offset, last_offset)
    assert list(indexes.offsets) == [(13, 101), (16, 202)]
    assert list(indexes.times) == [(13, 13), (16, 16)]


def test_a_time_entry_names_the_batch_with_the_largest_timestamp_so_far(disk: SimDisk) -> None:
    indexes = create(disk)
    for number, timestamp in enumerate((50, 90, 20, 90, 30, 95)):
        add(indexes, 101 * number, 11 + number, timestamp)
    assert list(indexes.times) == [(90, 12), (95, 16)]
    assert len(list(indexes.offsets)) == 5


def test_finishing_writes_the_largest_timestamp_and_trims(disk: SimDisk) -> None:
    indexes = create(disk)
    for number, timestamp in enumerate((50, 90, 20)):
        add(indexes, 10 * number, 11 + number, timestamp)
    assert list(indexes.times) == []
    indexes.finish()
    assert list(indexes.times) == [(90, 12)]
    assert [disk.size(path) for path in index_paths("t-0", BASE)] == [0, 12]
    indexes.finish()
    assert list(indexes.times) == [(90, 12)]


def test_a_full_index_says_so_and_has_room_to_finish(disk: SimDisk) -> None:
    indexes = create(disk, IndexSettings(interval_bytes=0, bytes_max=96))
    number = 0
    while not indexes.is_full:
        add(indexes, number, 11 + number, number)
        number += 1
    assert len(list(indexes.times)) == 7
    # Later than all, in a batch too near to the last for an entry.
    indexes.largest = indexes.largest._replace(timestamp=1000)
    indexes.finish()
    assert indexes.times.last.timestamp == 1000
    assert len(list(indexes.times)) == 8


def test_making_room_fails_before_anything_is_added(disk: SimDisk) -> None:
    indexes = create(disk, IndexSettings(interval_bytes=0, bytes_max=1 << 20))
    refused = 0
    for number in range(1, 1200):
        before = indexes.offsets.last, indexes.times.last, indexes.offsets.file.count
        disk.faults.capacity_bytes = 1
        try:
            indexes.make_room(number)
        except DiskFull:
            refused += 1
        assert (indexes.offsets.last, indexes.times.last, indexes.offsets.file.count) == before
        disk.faults.capacity_bytes = None
        add(indexes, number, 11 + number, number)
    assert refused >= 3
    assert len(list(indexes.offsets)) == len(list(indexes.times)) == 1199


def test_they_open_as_they_were_finished_and_go_on(disk: SimDisk) -> None:
    indexes = create(disk)
    for number in range(5):
        add(indexes, 101 * number, 11 + number, 50 + number)
    indexes.finish()
    again = SegmentIndexes.open(disk, "t-0", BASE, SETTINGS, log_bytes=505)
    assert again is not None
    assert again.largest == (54, 15)
    again.make_writable()
    add(again, 505, 16, 99)
    again.finish()
    assert list(again.offsets)[-1] == (16, 505)
    assert again.times.last == (99, 16)


def test_one_missing_index_makes_both_unusable(disk: SimDisk) -> None:
    create(disk).finish()
    assert SegmentIndexes.open(disk, "t-0", BASE, SETTINGS, log_bytes=0) is not None
    disk.delete(index_paths("t-0", BASE)[1])
    assert SegmentIndexes.open(disk, "t-0", BASE, SETTINGS, log_bytes=0) is None


@given(
    batches=st.lists(st.tuples(st.integers(61, 400), st.integers(-1, 100)), max_size=40),
    cut=st.integers(0, 40),
)
def test_truncated_and_filled_again_they_are_the_same(
    batches: list[tuple[int, int]], cut: int
) -> None:
    """Entries depend on positions only: so cutting and adding again gives what never was cut."""
    disk = SimDisk(Random(1))
    disk.make_folder("t-0")
    settings = IndexSettings(interval_bytes=100, bytes_max=1 << 16)
    positions = [sum(size for size, _ in batches[:number]) for number in range(len(batches))]
    known = [(p, 11 + n, batches[n][1]) for n, p in enumerate(positions)]

    straight = create(disk, settings)
    for one in known:
        add(straight, *one)
    expected = list(straight.offsets), list(straight.times)

    indexes = create(disk, settings)
    for one in known:
        add(indexes, *one)
    indexes.truncate_to(Offset(11 + cut))
    assert all(entry.last_offset < 11 + cut for entry in indexes.offsets)
    assert all(entry.last_offset < 11 + cut for entry in indexes.times)
    last = indexes.offsets.last
    for position, last_offset, timestamp in known[:cut]:
        # What the indexes do not know: the batches behind the last entry.
        is_behind = last is None or position > last.position
        if is_behind and timestamp > indexes.largest.timestamp:
            indexes.largest = TimeEntry(timestamp, Offset(last_offset))
    for one in known[cut:]:
        add(indexes, *one)
    assert (list(indexes.offsets), list(indexes.times)) == expected
