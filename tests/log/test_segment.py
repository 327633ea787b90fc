"""One segment: what it finds with its indexes, without them, and with wrong ones."""

from collections.abc import Callable
from random import Random

import pytest

from log.log_world import StoredBatch, batch_of
from respool.log.index.segment_indexes import IndexSettings, index_paths
from respool.log.segment import Segment
from respool.model.errors import DiskFailed, DiskFull, SegmentCorrupt
from respool.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset
from respool.ports.disk import NotCached
from respool.sim.disk.simulated_disk import SimDisk
from respool.sim.disk.simulated_files import SimLogFile

FOLDER = "t-0"
BASE = Offset(1000)
SETTINGS = IndexSettings(interval_bytes=300, bytes_max=9600)


class Written:
    """A segment with batches of two records each, and the batches beside it."""

    def __init__(self, *timestamps: int, settings: IndexSettings = SETTINGS) -> None:
        self.disk = SimDisk(Random(1))
        self.disk.make_folder(FOLDER)
        self.settings = settings
        self.segment = Segment.create(self.disk, FOLDER, BASE, settings, now_ms=5)
        self.batches: list[StoredBatch] = []
        self.segment.make_writable(log_end=BASE)
        for timestamp in timestamps:
            self.append(timestamp)

    @property
    def log_end(self) -> Offset:
        return Offset(BASE + 2 * len(self.batches))

    def append(self, timestamp: int, *, size: int = 40) -> None:
        batch = batch_of(timestamp, timestamp, value=b"v" * size)
        stored = StoredBatch.of(batch, base_offset=self.log_end, epoch=LeaderEpoch(0))
        self.segment.append(
            [stored.data[:10], stored.data[10:]],
            size=len(stored.data),
            last_offset=stored.last_offset,
            max_timestamp=timestamp,
            now_ms=7,
        )
        self.batches.append(stored)

    def reopened(self) -> Segment:
        """As the next process finds it after a clean stop."""
        self.segment.finish()
        path = self.segment.path
        self.disk = self.disk.reopen()
        return Segment(self.disk, FOLDER, BASE, self.settings, size=self.disk.size(path), now_ms=9)

    def check_finds(self, segment: Segment) -> None:
        position = 0
        for one in self.batches:
            for offset in (one.base_offset, one.last_offset):
                assert segment.find(offset) == (position, one.header)
            assert segment.read(position, len(one.data)) == one.data
            position += len(one.data)
        assert segment.find(self.log_end) is None
        assert segment.next_offset() == self.log_end


@pytest.fixture
def written() -> Written:
    return Written(*range(100, 140))


def test_every_offset_is_found_in_its_batch(written: Written) -> None:
    written.check_finds(written.segment)
    assert len(list(written.segment.indexes().offsets)) > 5


def test_opened_again_every_offset_is_found(written: Written) -> None:
    written.check_finds(written.reopened())


def test_a_lookup_reads_little(written: Written) -> None:
    segment = written.reopened()
    segment.indexes()
    before = written.disk.counters.reads
    segment.find(Offset(BASE + 50))
    assert written.disk.counters.reads - before <= 2


def test_nothing_is_opened_before_it_is_needed(written: Written) -> None:
    segment = written.reopened()
    written.disk.faults.fail("read", times=None)
    assert segment.largest == (139, written.batches[-1].last_offset)
    assert segment.retention_timestamp == 139
    assert written.disk.counters.reads == 0


def test_floor_position_is_a_lower_bound(written: Written) -> None:
    position = 0
    for one in written.batches:
        assert written.segment.floor_position(one.last_offset) <= position
        position += len(one.data)
    assert written.segment.floor_position(written.log_end) > 0


def damage_offsets_missing(disk: SimDisk) -> None:
    disk.delete(index_paths(FOLDER, BASE)[0])


def damage_times_missing(disk: SimDisk) -> None:
    disk.delete(index_paths(FOLDER, BASE)[1])


def damage_half_an_entry(disk: SimDisk) -> None:
    path = index_paths(FOLDER, BASE)[0]
    disk.replace_file(path, (disk.read_file(path) or b"")[:-3])


def damage_not_trimmed(disk: SimDisk) -> None:
    for path in index_paths(FOLDER, BASE):
        disk.replace_file(path, (disk.read_file(path) or b"") + bytes(96))


def damage_emptied(disk: SimDisk) -> None:
    for path in index_paths(FOLDER, BASE):
        disk.replace_file(path, b"")


def damage_wrong_positions(disk: SimDisk) -> None:
    path = index_paths(FOLDER, BASE)[0]
    content = bytearray(disk.read_file(path) or b"")
    for at in range(7, len(content), 8):
        content[at] ^= 0x15
    disk.replace_file(path, bytes(content))


def damage_wrong_offsets(disk: SimDisk) -> None:
    path = index_paths(FOLDER, BASE)[0]
    content = bytearray(disk.read_file(path) or b"")
    for at in range(3, len(content) - 8, 8):
        content[at] ^= 0x01
    disk.replace_file(path, bytes(content))


def damage_wrong_largest_timestamp(disk: SimDisk) -> None:
    path = index_paths(FOLDER, BASE)[1]
    content = bytearray(disk.read_file(path) or b"")
    content[-5] ^= 0xFF
    disk.replace_file(path, bytes(content))


DAMAGES: list[Callable[[SimDisk], None]] = [
    damage_offsets_missing,
    damage_times_missing,
    damage_half_an_entry,
    damage_not_trimmed,
    damage_emptied,
    damage_wrong_positions,
    damage_wrong_offsets,
    damage_wrong_largest_timestamp,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_wrong_indexes_are_made_anew_from_the_log(
    written: Written, damage: Callable[[SimDisk], None]
) -> None:
    right = written.reopened().indexes()
    entries = list(right.offsets), list(right.times)
    segment = written.reopened()
    damage(written.disk)
    written.check_finds(segment)
    made = segment.indexes()
    assert (list(made.offsets), list(made.times)) == entries
    # Not written by a reader; the owner does it.
    segment.save_indexes()
    written.check_finds(written.reopened())


@pytest.mark.parametrize("damage", DAMAGES)
def test_writing_goes_on_with_repaired_indexes(
    written: Written, damage: Callable[[SimDisk], None]
) -> None:
    segment = written.reopened()
    damage(written.disk)
    segment.make_writable(log_end=written.log_end)
    written.segment = segment
    for timestamp in range(150, 170):
        written.append(timestamp)
    written.check_finds(segment)
    written.check_finds(written.reopened())
    assert segment.largest.timestamp == 169


def test_a_damaged_log_is_not_repaired_away(written: Written) -> None:
    segment = written.reopened()
    damage_offsets_missing(written.disk)
    written.disk.corrupt(segment.path, len(written.batches[0].data) * 3 + 16, mask=0xFF)
    with pytest.raises(SegmentCorrupt):
        segment.find(Offset(BASE + 60))


def test_a_file_that_became_shorter_is_noticed(written: Written) -> None:
    segment = written.reopened()
    written.disk.open_log(segment.path).truncate(200)
    with pytest.raises(SegmentCorrupt, match="has 200 bytes"):
        segment.find(BASE)


def test_cold_bytes_are_not_waited_for(written: Written) -> None:
    segment = written.reopened()
    written.disk.make_cold(segment.path)
    with pytest.raises(NotCached):
        segment.find(Offset(BASE + 50), cached_only=True)
    assert segment.find(Offset(BASE + 50)) is not None
    assert segment.find(Offset(BASE + 50), cached_only=True) is not None


def test_writing_goes_on_only_where_the_log_ends(written: Written) -> None:
    segment = written.reopened()
    with pytest.raises(SegmentCorrupt, match=f"ends at offset {written.log_end}, expected"):
        segment.make_writable(log_end=Offset(written.log_end + 1))
    assert not segment.is_writable
    segment.make_writable(log_end=written.log_end)
    assert segment.first_timestamp == 100


def test_on_a_full_disk_nothing_is_written(written: Written) -> None:
    segment = written.segment
    size, entries = segment.size, list(segment.indexes().offsets)
    written.disk.faults.capacity_bytes = 1
    with pytest.raises(DiskFull):
        written.append(200)
    assert (segment.size, list(segment.indexes().offsets)) == (size, entries)
    assert segment.largest.timestamp == 139
    written.disk.faults.heal()
    written.append(200)
    written.check_finds(segment)


def test_a_batch_is_not_written_when_its_index_has_no_room() -> None:
    written = Written(settings=IndexSettings(interval_bytes=0, bytes_max=1 << 20))
    refused = 0
    for timestamp in range(900):
        size = written.segment.size
        used = sum(
            written.disk.size(f"{FOLDER}/{name}") for name in written.disk.list_folder(FOLDER)
        )
        # Room for the batch, and for nothing else.
        written.disk.faults.capacity_bytes = used + 200
        try:
            written.append(timestamp)
        except DiskFull:
            refused += 1
            assert written.segment.size == size == written.disk.size(written.segment.path)
            written.disk.faults.heal()
            written.append(timestamp)
    assert refused >= 3
    assert written.segment.next_offset() == written.log_end


def test_on_a_failing_disk_nothing_is_written(written: Written) -> None:
    written.disk.faults.fail("append")
    with pytest.raises(DiskFailed):
        written.append(200)
    written.check_finds(written.segment)


def test_the_largest_timestamp_is_that_of_the_first_batch_that_has_it() -> None:
    written = Written(50, 90, 20, 90)
    assert written.segment.largest == (90, written.batches[1].last_offset)
    assert written.reopened().largest == (90, written.batches[1].last_offset)


def test_without_timestamps_retention_goes_by_the_last_append() -> None:
    written = Written(NO_TIMESTAMP, NO_TIMESTAMP)
    assert written.segment.retention_timestamp == 7
    assert written.reopened().retention_timestamp == 9


def test_truncation_cuts_whole_batches(written: Written) -> None:
    segment = written.segment
    for left, offset in ((30, 1061), (17, 1034), (1, 1002), (0, 1001)):
        segment.truncate_to(Offset(offset))
        written.batches = written.batches[:left]
        written.check_finds(segment)
        assert segment.is_writable
        expected = 100 + left - 1 if left else NO_TIMESTAMP
        assert segment.largest.timestamp == expected
    written.append(300)
    assert segment.first_timestamp == 300
    written.check_finds(written.reopened())


def test_truncation_opens_what_was_finished(written: Written) -> None:
    segment = written.reopened()
    segment.truncate_to(Offset(1041))
    written.batches = written.batches[:20]
    written.segment = segment
    written.append(500)
    written.check_finds(segment)
    written.check_finds(written.reopened())


def test_truncation_beyond_the_end_changes_nothing(written: Written) -> None:
    written.segment.truncate_to(written.log_end)
    written.check_finds(written.segment)


def test_an_idle_segment_lets_go_of_its_files(written: Written) -> None:
    segment = written.reopened()
    written.check_finds(segment)
    held = segment.file
    segment.release_if_idle()
    assert segment.file is held, "it was used since"
    segment.release_if_idle()
    segment.release_if_idle()
    assert not segment.is_open
    # Whoever has the file goes on reading, and the next one opens it again.
    assert held.read(0, 8) == BASE.to_bytes(8, "big")
    assert segment.largest.timestamp == 139
    written.check_finds(segment)


def test_a_segment_being_written_is_not_let_go_of(written: Written) -> None:
    for _ in range(3):
        written.segment.release_if_idle()
    written.append(200)
    written.check_finds(written.segment)


def test_a_reader_too_late_for_the_name_gets_the_file_all_the_same(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. It finds no open file.   2. The owner opens and renames it.   3. The reader opens the old name."""
    segment = written.reopened()
    content = written.disk.read_file(segment.path)
    open_log = written.disk.open_log

    def renamed_just_before(path: str, *, create: bool) -> SimLogFile:
        monkeypatch.setattr(written.disk, "open_log", open_log)
        segment.keep_open()
        written.disk.rename(segment.path, segment.path + ".deleted")
        return open_log(path, create=create)

    monkeypatch.setattr(written.disk, "open_log", renamed_just_before)
    assert segment.read(0, segment.size) == content
    assert not written.disk.exists(segment.path)
    written.check_finds(segment)


def test_reading_a_segment_whose_file_is_gone_does_not_make_a_new_one(written: Written) -> None:
    segment = written.reopened()
    written.disk.delete(segment.path)
    with pytest.raises(DiskFailed):
        segment.read(0, 10)
    with pytest.raises(DiskFailed):
        segment.keep_open()
    assert not written.disk.exists(segment.path)
