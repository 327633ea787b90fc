"""A finished segment as the archive takes it: its bytes from an offset on, and what readers need besides."""

from collections.abc import Sequence

from respool.log.index.transaction_index import AbortedTransaction
from respool.log.leader_epochs import EpochEntry
from respool.log.log_parts import LogParts
from respool.log.producers.snapshot_files import SnapshotFiles
from respool.log.segment import Segment
from respool.model.errors import SegmentCorrupt
from respool.model.ids import Offset
from respool.ports.disk import Disk


class SegmentToArchive:
    """Finished segments never change, so other threads may read one while its owner appends."""

    def __init__(
        self,
        disk: Disk,
        segment: Segment,
        snapshots: SnapshotFiles,
        *,
        begin: Offset,
        end: Offset,
        epochs: Sequence[EpochEntry],
    ) -> None:
        self._disk = disk
        self._segment = segment
        self._snapshot_path = snapshots.path(end)
        # Records from `begin` on, which may be within the segment, and before `end`.
        self.begin = begin
        self.end = end
        # The log's epochs up to `end`, from its start on.
        self.epochs = epochs

    @property
    def path(self) -> str:
        return self._segment.path

    def locate(self) -> tuple[int, int]:
        """Return the position of the batch that contains `begin`, and the end of the file. From any thread.

        Raises:
            StorageError: the disk does not have what it should, or the segment was removed meanwhile.
        """
        if self.begin <= self._segment.base_offset:
            return 0, self._segment.size
        found = self._segment.find(self.begin)
        if found is None:
            raise SegmentCorrupt(f"{self.path} has no offset {self.begin}")
        return found.position, self._segment.size

    def read(self, position: int, size: int) -> bytes | memoryview:
        """Return exactly these bytes. From any thread; raises as `locate`."""
        return self._segment.read(position, size)

    def aborted(self) -> list[AbortedTransaction]:
        """The transactions whose abort markers are in the segment, from `begin` on. From any thread."""
        if not self._segment.aborted.count:
            return []
        return [one for one in self._segment.aborted.all() if one.last_offset >= self.begin]

    def producer_snapshot(self) -> bytes:
        """The producers at `end`; empty if no snapshot was kept. From any thread."""
        return self._disk.read_file(self._snapshot_path) or b""


def find_segment_to_archive(
    parts: LogParts, begin: Offset, *, bound: Offset
) -> SegmentToArchive | None:
    segments = parts.segments
    index = segments.index_of(begin)
    if index < 0 or index >= len(segments) - 1:
        # The active segment is still written to.
        return None
    end = segments.end_of(index, log_end=parts.end.offset)
    if end > min(bound, parts.synced.offset):
        return None
    epochs = [one for one in parts.epochs.entries if one.start_offset < end]
    return SegmentToArchive(
        parts.disk, segments.all[index], parts.snapshots, begin=begin, end=end, epochs=epochs
    )
