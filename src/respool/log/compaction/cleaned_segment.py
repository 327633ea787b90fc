"""The segment that a compaction writes, before it replaces others: its files are named `.cleaned`."""

from collections.abc import Iterable, Sequence

from respool.log.compaction.batch_cleaner import CleanBatch
from respool.log.file_names import CLEANED, LOG, TRANSACTION_INDEX, offset_name
from respool.log.index.offset_index import OffsetIndex
from respool.log.index.segment_indexes import IndexSettings, SegmentIndexes, index_paths
from respool.log.index.time_index import TimeIndex
from respool.log.index.transaction_index import ENTRY_BYTES, AbortedTransaction, encode_aborted
from respool.log.segment import Segment
from respool.model.ids import Offset
from respool.ports.disk import Disk


class CleanedSegment:
    def __init__(
        self, disk: Disk, folder: str, base_offset: Offset, settings: IndexSettings
    ) -> None:
        """Create it. Files of an earlier attempt are deleted."""
        self._disk = disk
        self._folder = folder
        self._settings = settings
        self.base_offset = base_offset
        self.size = 0
        self._path = f"{folder}/{offset_name(base_offset, LOG)}{CLEANED}"
        self._aborted_path = f"{folder}/{offset_name(base_offset, TRANSACTION_INDEX)}{CLEANED}"
        self._aborted_count = 0
        self._index_paths = tuple(path + CLEANED for path in index_paths(folder, base_offset))
        self.delete()
        self._file = disk.open_log(self._path, create=True)
        offsets, times = self._index_paths
        # In memory until the end: after a crash they would be useless.
        self.indexes = SegmentIndexes(
            OffsetIndex.in_memory(
                disk, offsets, base_offset=base_offset, bytes_max=settings.bytes_max
            ),
            TimeIndex.in_memory(disk, times, base_offset=base_offset, bytes_max=settings.bytes_max),
            settings,
        )

    def append(self, batches: Iterable[CleanBatch]) -> None:
        """Write retained batches.

        Raises:
            DiskFull, DiskFailed: the write failed.
        """
        parts = []
        for header, data in batches:
            self.indexes.make_room(self.size)
            self.indexes.add(self.size, header.last_offset, header.latest_timestamp)
            parts.append(data)
            self.size += header.size
        if parts:
            self._file.append([b"".join(parts)])

    def sync(self) -> None:
        """Sync what was written so far: often, so that others need not wait for one large sync."""
        self._file.sync()

    def finish(self, aborted: Sequence[AbortedTransaction] | None) -> None:
        """Make it durable, including names and indexes; `aborted` is None if no old segment has a transaction index."""
        self._file.sync()
        if aborted is not None:
            self._aborted_count = len(aborted)
            self._disk.replace_file(self._aborted_path, encode_aborted(aborted))
        self.indexes.times.file.make_room(1)
        self.indexes.finish()
        # This syncs the folder, and so the log file's name.
        self.indexes.offsets.file.save()
        self.indexes.times.file.save()
        self._file.close()

    def as_segment(self, *, touched_ms: int) -> Segment:
        """The segment that it becomes once it is renamed."""
        return Segment(
            self._disk,
            self._folder,
            self.base_offset,
            self._settings,
            size=self.size,
            now_ms=touched_ms,
            aborted_bytes=self._aborted_count * ENTRY_BYTES,
        )

    def delete(self) -> None:
        """Delete its files."""
        for path in (self._path, *self._index_paths, self._aborted_path):
            self._disk.delete(path)
