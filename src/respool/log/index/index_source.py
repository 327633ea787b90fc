"""Where one segment's indexes come from: new, as they lie there, or made anew from the log."""

from respool.log.batch_walk import walk_headers
from respool.log.index.index_repair import open_indexes, rebuild_indexes, walk_indexed
from respool.log.index.segment_indexes import IndexSettings, SegmentIndexes, index_paths
from respool.log.index.time_index import TimeEntry, TimeIndex
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
        """Begin both without entries.

        Raises:
            DiskFull: there is no room for them.
        """
        return SegmentIndexes.create(self._disk, self._folder, self._base_offset, self._settings)

    def open(self, file: LogFile, log_bytes: int, *, cached_only: bool = False) -> SegmentIndexes:
        """For reading. From any thread; see `open_indexes`."""
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
        """From the log, in memory."""
        return rebuild_indexes(
            self._disk,
            self._folder,
            self._base_offset,
            self._settings,
            file=file,
            log_bytes=log_bytes,
        )

    def own(self, file: LogFile, log_bytes: int) -> SegmentIndexes:
        """Indexes nobody else has, and that are right where writing goes on."""
        indexes = self.open(file, log_bytes)
        last = indexes.offsets.last
        if last is not None and walk_indexed(indexes, file, log_bytes, last.last_offset) is None:
            return self.rebuild(file, log_bytes)
        return indexes

    def walk_tail(
        self, indexes: SegmentIndexes, file: LogFile, log_bytes: int
    ) -> tuple[Offset, TimeEntry]:
        """Walk the batches from the last index entry on: where they end, and their largest timestamp."""
        last = indexes.offsets.last
        end = self._base_offset
        largest = TimeEntry(NO_TIMESTAMP, self._base_offset)
        for _, header in walk_headers(file, last.position if last else 0, log_bytes):
            if header.latest_timestamp > largest.timestamp:
                largest = TimeEntry(header.latest_timestamp, header.last_offset)
            end = header.next_offset
        return end, largest

    def read_largest(self) -> TimeEntry | None:
        """The time index's last entry, without keeping the index open; None where it cannot be relied on."""
        times = TimeIndex.open(
            self._disk,
            index_paths(self._folder, self._base_offset)[1],
            base_offset=self._base_offset,
            bytes_max=self._settings.bytes_max,
        )
        if times is None or not times.is_sound() or times.last.timestamp < 0:
            return None
        return times.last
