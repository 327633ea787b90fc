"""The two indexes of one segment, filled together: decides when a batch is indexed, and tracks the largest timestamp.

A batch gets an entry if it starts more than `index_interval_bytes` after the last indexed one. The rule depends on
positions only, so a rebuilt index has the same entries as the lost one.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from respool.log.batch_walk import BatchAt
from respool.log.file_names import OFFSET_INDEX, TIME_INDEX, offset_name
from respool.log.index.offset_index import OffsetIndex
from respool.log.index.time_index import TimeEntry, TimeIndex
from respool.model.ids import Offset
from respool.model.topic_config import TopicConfig
from respool.ports.disk import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexSettings:
    interval_bytes: int
    bytes_max: int

    @classmethod
    def of(cls, config: TopicConfig) -> "IndexSettings":
        return cls(interval_bytes=config.index_interval_bytes, bytes_max=config.segment_index_bytes)


class SegmentIndexes:
    __slots__ = ("_interval_bytes", "is_full", "is_saved", "largest", "offsets", "times")

    def __init__(self, offsets: OffsetIndex, times: TimeIndex, settings: IndexSettings) -> None:
        self.offsets = offsets
        self.times = times
        self._interval_bytes = settings.interval_bytes
        # The largest timestamp so far and the last offset of the first batch that has it. The time index may lag behind
        # until its next entry.
        self.largest: TimeEntry = times.last
        # True if no batch that needs an entry may be added. Cached because every append checks it.
        self.is_full = offsets.is_full or times.is_full
        self.is_saved = True

    @classmethod
    def create(
        cls, disk: Disk, folder: str, base_offset: Offset, settings: IndexSettings
    ) -> "SegmentIndexes":
        """Create both indexes without entries, in new files.

        Raises:
            DiskFull: there is no space for them.
        """
        paths = index_paths(folder, base_offset)
        max_ = settings.bytes_max
        return cls(
            OffsetIndex.create(disk, paths[0], base_offset=base_offset, bytes_max=max_),
            TimeIndex.create(disk, paths[1], base_offset=base_offset, bytes_max=max_),
            settings,
        )

    @classmethod
    def in_memory(
        cls, disk: Disk, folder: str, base_offset: Offset, settings: IndexSettings
    ) -> "SegmentIndexes":
        """Create both without entries and, until saved, without files."""
        paths = index_paths(folder, base_offset)
        max_ = settings.bytes_max
        indexes = cls(
            OffsetIndex.in_memory(disk, paths[0], base_offset=base_offset, bytes_max=max_),
            TimeIndex.in_memory(disk, paths[1], base_offset=base_offset, bytes_max=max_),
            settings,
        )
        indexes.is_saved = False
        return indexes

    @classmethod
    def open(
        cls,
        disk: Disk,
        folder: str,
        base_offset: Offset,
        settings: IndexSettings,
        *,
        log_bytes: int,
    ) -> "SegmentIndexes | None":
        """Open both for reading; None if one is missing or implausible."""
        paths = index_paths(folder, base_offset)
        max_ = settings.bytes_max
        offsets = OffsetIndex.open(disk, paths[0], base_offset=base_offset, bytes_max=max_)
        times = TimeIndex.open(disk, paths[1], base_offset=base_offset, bytes_max=max_)
        if offsets is None or times is None:
            return None
        if not offsets.is_plausible(log_bytes=log_bytes) or not times.is_plausible():
            return None
        return cls(offsets, times, settings)

    def make_writable(self) -> None:
        """Prepare for more entries, and for the one that `finish` adds.

        Raises:
            DiskFull: there is no space for them.
        """
        self.offsets.file.make_writable()
        self.times.file.make_writable()
        self.times.file.make_room(1)

    def save(self) -> None:
        """Write in-memory indexes to their files."""
        if not self.is_saved:
            self.offsets.file.save()
            self.times.file.save()
            self.is_saved = True

    def make_room(self, position: int) -> None:
        """Make space for the entries of a batch at `position`, before the batch is written.

        Raises:
            DiskFull: an index cannot grow; both are unchanged.
        """
        if position - self.offsets.last_position > self._interval_bytes:
            self.offsets.file.make_room(1)
            # One more for `finish`, which must not run out of space.
            self.times.file.make_room(2)

    def make_room_for_run(self, position: int, *, size: int, count: int) -> None:
        """As `make_room`, for `count` batches of `size` bytes in total, from `position` on.

        Raises:
            DiskFull: an index cannot grow; both are unchanged.
        """
        span = position + size - self.offsets.last_position
        # Entries are at least one interval apart.
        entries = min(count, span // (self._interval_bytes + 1) + 1)
        self.offsets.file.make_room(entries)
        self.times.file.make_room(entries + 1)

    @property
    def room(self) -> int:
        """How many entries fit before one index is full; one time index entry is reserved for `finish`."""
        offsets, times = self.offsets.file, self.times.file
        return min(offsets.entries_max - offsets.count, times.entries_max - 1 - times.count)

    def add(self, position: int, last_offset: Offset, max_timestamp: int) -> None:
        """A batch starts at `position`. There is space for its entries."""
        if max_timestamp > self.largest[0]:
            self.largest = TimeEntry(max_timestamp, last_offset)
        if position - self.offsets.last_position > self._interval_bytes:
            self.offsets.append(last_offset, position)
            self.times.maybe_append(*self.largest)
            self.is_full = self.offsets.is_full or self.times.is_full

    def add_all(self, batches: Iterable[BatchAt]) -> None:
        """Index the batches of an existing log file."""
        for position, header in batches:
            self.make_room(position)
            self.add(position, header.last_offset, header.latest_timestamp)

    def finish(self) -> None:
        """The segment is finished: write its largest timestamp, and trim the files."""
        self.times.maybe_append(*self.largest)
        self.offsets.file.trim()
        self.times.file.trim()

    def truncate_to(self, offset: Offset) -> None:
        """Remove the entries of batches that contain `offset` or come after it.

        The largest timestamp is then that of the last entry; later batches must be added again.
        """
        self.offsets.truncate_to(offset)
        self.times.truncate_to(offset)
        self.largest = self.times.last
        self.is_full = self.offsets.is_full or self.times.is_full

    def sync(self) -> None:
        self.offsets.file.sync()
        self.times.file.sync()


def index_paths(folder: str, base_offset: Offset) -> tuple[str, str]:
    return (
        f"{folder}/{offset_name(base_offset, OFFSET_INDEX)}",
        f"{folder}/{offset_name(base_offset, TIME_INDEX)}",
    )
