"""Cutting segments off at a log's end, on the disk: in an order that leaves a log whenever the power goes."""

from respool.log.index.segment_indexes import IndexSettings
from respool.log.producers.snapshot_files import SnapshotFiles
from respool.log.recovery.log_folder import delete_segment
from respool.log.segment import Segment
from respool.log.segments import Segments
from respool.model.ids import Offset
from respool.ports.disk import Disk


class Truncation:
    def __init__(self, disk: Disk, folder: str, snapshots: SnapshotFiles) -> None:
        self._disk = disk
        self._folder = folder
        self._snapshots = snapshots

    def cut(self, segments: Segments, offset: Offset) -> tuple[Segments, Offset]:
        """Cut off the batch that holds `offset` and all after it; return what is left, and where that ends."""
        index, log_end = find_cut(segments, offset)
        left = segments.up_to(index + 1)
        # First, for a snapshot says that all before its offset is on the disk.
        self._snapshots.delete_beyond(log_end)
        # The newest first, so that there is never a gap.
        for segment in reversed(segments.all[index + 1 :]):
            delete_segment(self._disk, self._folder, segment)
        left.active.truncate_to(log_end)
        return left, log_end

    def start_anew(self, segments: Segments, offset: Offset, settings: IndexSettings) -> Segments:
        """Drop all, and begin an empty segment at `offset`."""
        self._snapshots.delete_beyond(Offset(-1))
        kept = {segment.base_offset: segment for segment in segments.all}.get(offset)
        # The new one has its name before the others lose theirs: without any, the log would begin who knows where.
        if kept is None:
            now_ms = segments.active.touched_ms
            kept = Segment.create(self._disk, self._folder, offset, settings, now_ms=now_ms)
            self._disk.sync_folder(self._folder)
        for segment in reversed(segments.all):
            if segment is not kept:
                delete_segment(self._disk, self._folder, segment)
        kept.truncate_to(offset)
        return Segments([kept])


def find_cut(segments: Segments, offset: Offset) -> tuple[int, Offset]:
    """The last segment to stay when the log is cut at `offset`, and where it ends then."""
    index = segments.index_of(offset)
    assert index >= 0, f"offset {offset} lies before the first segment"
    return index, segments.all[index].end_before(offset)
