"""Opens, checks and rebuilds the indexes of one segment.

Indexes are hints: opening checks whether they match the log file, and rebuilds them from it if not. This may happen in
several threads at once, so it is done in memory, and the owner saves the result later. A rebuilt index has the same
entries as the lost one. An error that the check misses (entries missing at the end) makes lookups slower, not wrong; a
wrong entry is found when it is used, see `walk_indexed`.
"""

from collections.abc import Iterator
from itertools import chain

from respool.log.batch_walk import BatchAt, walk_headers
from respool.log.index.segment_indexes import IndexSettings, SegmentIndexes, index_paths
from respool.log.index.time_index import TimeEntry, TimeIndex
from respool.model.errors import SegmentCorrupt
from respool.model.ids import NO_TIMESTAMP, Offset
from respool.ports.disk import Disk, LogFile


class IndexSource:
    __slots__ = ("_base_offset", "_disk", "_folder", "_settings")

    def __init__(
        self, disk: Disk, folder: str, base_offset: Offset, settings: IndexSettings
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._base_offset = base_offset
        self._settings = settings

    def create(self) -> SegmentIndexes:
        """Create both indexes without entries.

        Raises:
            DiskFull: there is no space for them.
        """
        return SegmentIndexes.create(self._disk, self._folder, self._base_offset, self._settings)

    def open(self, file: LogFile, log_bytes: int, *, cached_only: bool = False) -> SegmentIndexes:
        """Open them for reading. From any thread; see `open_indexes`."""
        return open_indexes(
            self._disk,
            self._folder,
            self._base_offset,
            self._settings,
            file=file,
            log_bytes=log_bytes,
            cached_only=cached_only,
        )

    def rebuild(self, file: LogFile, log_bytes: int) -> SegmentIndexes:
        """Rebuild them from the log, in memory."""
        return rebuild_indexes(
            self._disk,
            self._folder,
            self._base_offset,
            self._settings,
            file=file,
            log_bytes=log_bytes,
        )

    def own(self, file: LogFile, log_bytes: int) -> SegmentIndexes:
        """Return indexes used by the owner only, and correct at the end, where appends continue."""
        indexes = self.open(file, log_bytes)
        last = indexes.offsets.last
        if last is not None and walk_indexed(indexes, file, log_bytes, last.last_offset) is None:
            return self.rebuild(file, log_bytes)
        return indexes

    def walk_tail(
        self, indexes: SegmentIndexes, file: LogFile, log_bytes: int
    ) -> tuple[Offset, TimeEntry]:
        """Return the end offset and the largest timestamp of the batches from the last index entry on."""
        last = indexes.offsets.last
        end = self._base_offset
        largest = TimeEntry(NO_TIMESTAMP, self._base_offset)
        for _, header in walk_headers(file, last.position if last else 0, log_bytes):
            if header.latest_timestamp > largest.timestamp:
                largest = TimeEntry(header.latest_timestamp, header.last_offset)
            end = header.next_offset
        return end, largest

    def read_largest(self) -> TimeEntry | None:
        """The time index's last entry, without keeping the index open; None if it is not reliable."""
        times = TimeIndex.open(
            self._disk,
            index_paths(self._folder, self._base_offset)[1],
            base_offset=self._base_offset,
            bytes_max=self._settings.bytes_max,
        )
        if times is None or not times.is_plausible() or times.last.timestamp < 0:
            return None
        return times.last


def open_indexes(
    disk: Disk,
    folder: str,
    base_offset: Offset,
    settings: IndexSettings,
    *,
    file: LogFile,
    log_bytes: int,
    cached_only: bool = False,
) -> SegmentIndexes:
    """Open the indexes of a segment that is not being written.

    Raises:
        SegmentCorrupt: they had to be rebuilt, and the log file is damaged.
        NotCached: `cached_only`, and a header would have to come from the disk.
    """
    indexes = SegmentIndexes.open(disk, folder, base_offset, settings, log_bytes=log_bytes)
    if indexes is not None and _fits(indexes, settings, file, log_bytes, cached_only):
        return indexes
    return rebuild_indexes(disk, folder, base_offset, settings, file=file, log_bytes=log_bytes)


def rebuild_indexes(
    disk: Disk,
    folder: str,
    base_offset: Offset,
    settings: IndexSettings,
    *,
    file: LogFile,
    log_bytes: int,
) -> SegmentIndexes:
    """Build both indexes in memory from the headers in the log file."""
    indexes = SegmentIndexes.in_memory(disk, folder, base_offset, settings)
    indexes.add_all(walk_headers(file, 0, log_bytes))
    indexes.times.file.make_room(1)
    indexes.finish()
    return indexes


def walk_indexed(
    indexes: SegmentIndexes,
    file: LogFile,
    log_bytes: int,
    offset: Offset,
    *,
    cached_only: bool = False,
) -> Iterator[BatchAt] | None:
    """Yield every batch from shortly before `offset` to the end; return None if the index is wrong.

    Raises:
        SegmentCorrupt: later, when the walk reaches a damaged batch.
        NotCached: `cached_only`, and bytes would have to come from the disk.
    """
    entry = indexes.offsets.lookup(offset)
    if entry is None:
        return walk_headers(file, 0, log_bytes, cached_only=cached_only)
    walk = walk_headers(file, entry.position, log_bytes, cached_only=cached_only)
    try:
        first = next(walk, None)
    except SegmentCorrupt:
        return None
    if first is None or first.header.last_offset != entry.last_offset:
        return None
    return chain((first,), walk)


def _fits(
    indexes: SegmentIndexes,
    settings: IndexSettings,
    file: LogFile,
    log_bytes: int,
    cached_only: bool,
) -> bool:
    try:
        return _ends_right(indexes, file, log_bytes, cached_only) and _is_begun(
            indexes, settings, file, log_bytes, cached_only
        )
    except SegmentCorrupt:
        # It points into a batch. If it is the log file that is damaged, the rebuild detects it.
        return False


def _ends_right(indexes: SegmentIndexes, file: LogFile, log_bytes: int, cached_only: bool) -> bool:
    """True if the time index's last entry names a batch with that timestamp; retention depends on it."""
    largest = indexes.times.last
    entry = indexes.offsets.lookup(largest.last_offset)
    begin = entry.position if entry is not None else 0
    for _, header in walk_headers(file, begin, log_bytes, cached_only=cached_only):
        if largest.timestamp < 0:
            # Without entries, the first batch that has records must have no timestamp either.
            if header.record_count:
                return header.max_timestamp < 0
        elif header.last_offset >= largest.last_offset:
            return (header.latest_timestamp, header.last_offset) == largest
    return not log_bytes or largest.timestamp < 0


def _is_begun(
    indexes: SegmentIndexes,
    settings: IndexSettings,
    file: LogFile,
    log_bytes: int,
    cached_only: bool,
) -> bool:
    """True if the offset index has entries, or no batch required one."""
    if indexes.offsets.last is not None:
        return True
    for position, _ in walk_headers(file, 0, log_bytes, cached_only=cached_only):
        if position > settings.interval_bytes:
            return False
    return True
