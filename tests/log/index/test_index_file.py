"""Entries in a file that grows by doubling, for one writer and many readers."""

from random import Random

import pytest

from respool.log.index.index_file import FIRST_BYTES, IndexFile
from respool.model.errors import DiskFailed, DiskFull
from respool.sim.disk.simulated_disk import SimDisk

PATH = "a.index"


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(Random(1))


def create(disk: SimDisk, *, bytes_max: int = 1 << 20) -> IndexFile:
    return IndexFile.create(disk, PATH, entry_bytes=8, bytes_max=bytes_max)


def put(file: IndexFile, entry: bytes) -> None:
    file.make_room(1)
    file.buffer[file.count * 8 : file.count * 8 + 8] = entry
    file.count += 1


def numbered(count: int) -> list[bytes]:
    return [number.to_bytes(8, "big") for number in range(1, count + 1)]


def test_it_grows_by_doubling_and_keeps_what_it_holds(disk: SimDisk) -> None:
    file = create(disk)
    assert len(file.buffer) == FIRST_BYTES
    for entry in numbered(FIRST_BYTES // 8 + 1):
        put(file, entry)
    assert disk.size(PATH) == 2 * FIRST_BYTES
    assert bytes(file.buffer[: file.count * 8]) == b"".join(numbered(file.count))


def test_it_never_grows_beyond_its_limit_of_whole_entries(disk: SimDisk) -> None:
    assert len(create(disk, bytes_max=FIRST_BYTES + 100).buffer) == FIRST_BYTES
    file = create(disk, bytes_max=100)
    assert len(file.buffer) == 96
    assert file.entries_max == 12


def test_trimmed_it_is_as_long_as_its_entries_and_opens_with_them(disk: SimDisk) -> None:
    file = create(disk)
    for entry in numbered(3):
        put(file, entry)
    file.trim()
    assert disk.size(PATH) == 24
    again = IndexFile.open(disk, PATH, entry_bytes=8, bytes_max=1 << 20)
    assert again is not None
    assert again.count == 3
    assert bytes(again.buffer) == b"".join(numbered(3))


def test_without_entries_it_is_empty_when_trimmed(disk: SimDisk) -> None:
    create(disk).trim()
    assert disk.size(PATH) == 0
    again = IndexFile.open(disk, PATH, entry_bytes=8, bytes_max=100)
    assert again is not None
    assert again.count == 0


def test_a_missing_file_and_half_an_entry_do_not_open(disk: SimDisk) -> None:
    assert IndexFile.open(disk, PATH, entry_bytes=8, bytes_max=100) is None
    disk.replace_file(PATH, bytes(12))
    assert IndexFile.open(disk, PATH, entry_bytes=8, bytes_max=100) is None


def test_a_disk_that_fails_is_not_taken_for_a_missing_file(disk: SimDisk) -> None:
    disk.replace_file(PATH, bytes(16))
    disk.faults.fail("map")
    with pytest.raises(DiskFailed):
        IndexFile.open(disk, PATH, entry_bytes=8, bytes_max=100)


def test_opening_for_reading_never_changes_the_file(disk: SimDisk) -> None:
    file = create(disk)
    put(file, numbered(1)[0])
    for _ in range(2):
        assert IndexFile.open(disk, PATH, entry_bytes=8, bytes_max=100) is not None
        assert disk.size(PATH) == FIRST_BYTES


def test_a_full_disk_leaves_it_as_it_was(disk: SimDisk) -> None:
    file = create(disk)
    for entry in numbered(FIRST_BYTES // 8):
        put(file, entry)
    disk.faults.capacity_bytes = FIRST_BYTES + 10
    with pytest.raises(DiskFull):
        file.make_room(1)
    assert (file.count, len(file.buffer), disk.size(PATH)) == (512, FIRST_BYTES, FIRST_BYTES)
    disk.faults.heal()
    file.make_room(1)
    assert bytes(file.buffer[: file.count * 8]) == b"".join(numbered(512))


def test_a_new_index_has_nothing_of_the_old_one_and_leaves_its_readers_theirs(
    disk: SimDisk,
) -> None:
    old = create(disk)
    put(old, b"old-data")
    reader = IndexFile.open(disk, PATH, entry_bytes=8, bytes_max=100)
    assert reader is not None
    fresh = create(disk)
    assert bytes(fresh.buffer) == bytes(FIRST_BYTES)
    assert bytes(reader.buffer[:8]) == b"old-data"


def test_what_is_cut_off_is_zeroed(disk: SimDisk) -> None:
    file = create(disk)
    for entry in numbered(3):
        put(file, entry)
    file.truncate(1)
    assert file.count == 1
    assert bytes(file.buffer[:24]) == numbered(1)[0] + bytes(16)


def test_in_memory_it_has_no_file_until_it_is_saved(disk: SimDisk) -> None:
    file = IndexFile.in_memory(disk, PATH, entry_bytes=8, bytes_max=1 << 20)
    for entry in numbered(600):
        put(file, entry)
    file.trim()
    file.sync()
    assert not disk.exists(PATH)
    file.save()
    assert disk.read_file(PATH) == b"".join(numbered(600))


def test_a_reader_with_an_old_buffer_sees_the_entries_of_its_time(disk: SimDisk) -> None:
    file = create(disk)
    for entry in numbered(512):
        put(file, entry)
    old = file.buffer
    put(file, numbered(513)[-1])
    assert len(old) == FIRST_BYTES
    assert bytes(old) == b"".join(numbered(512))
