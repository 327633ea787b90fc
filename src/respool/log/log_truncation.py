"""Cutting a log off at its end, and bringing all that hangs on it in line."""

from collections.abc import Iterator
from contextlib import contextmanager

from respool.log.compaction.log_compaction import LogCompaction
from respool.log.index.segment_indexes import IndexSettings
from respool.log.log_parts import LogParts
from respool.log.pending_sync import SyncLedger
from respool.log.producers.snapshot_files import SnapshotFiles
from respool.log.recovery.log_folder import delete_segment
from respool.log.recovery.log_walk import replay_producers
from respool.log.segment import Segment
from respool.log.segments import LogPoint, Segments
from respool.model.ids import Offset
from respool.ports.disk import Disk


class LogTruncation:
    def __init__(self, parts: LogParts, compaction: LogCompaction) -> None:
        self._parts = parts
        self._compaction = compaction

    def end_after(self, offset: Offset) -> Offset:
        """Where the log will end when it is cut there: at `offset`, or before it, where a batch holds it."""
        parts = self._parts
        if offset >= parts.end.offset:
            return parts.end.offset
        if offset < parts.segments.first.base_offset:
            return offset
        return find_cut(parts.segments, offset)[1]

    def cut_to(self, offset: Offset) -> None:
        """Cut off the batch that holds `offset` and all after it; on the disk when this returns.

        Before that the caller writes down a recovery point and a log start that are not beyond `offset`, for a log that
        ends before them is taken for damaged. No sync may be running meanwhile; those begun come to nothing.
        """
        parts = self._parts
        if offset < parts.segments.first.base_offset:
            self.start_anew_at(offset)
            return
        parts.tail.clear()
        if offset >= parts.end.offset:
            # No byte goes, but an epoch may (KAFKA-10706).
            parts.epochs.truncate_end(offset)
            return
        with self._readers_told():
            truncation = Truncation(parts.disk, parts.folder, parts.snapshots)
            parts.segments, log_end = truncation.cut(parts.segments, offset)
            self._start_over_at(log_end, log_start=min(parts.log_start, log_end))

    def start_anew_at(self, offset: Offset) -> None:
        """Drop everything and go on at `offset`; on the disk when this returns. The rules are as for `cut_to`."""
        parts = self._parts
        parts.tail.clear()
        with self._readers_told():
            truncation = Truncation(parts.disk, parts.folder, parts.snapshots)
            parts.segments = truncation.start_anew(parts.segments, offset, parts.index_settings)
            parts.epochs.truncate_end(Offset(0))
            self._start_over_at(offset, log_start=offset)

    @contextmanager
    def _readers_told(self) -> Iterator[None]:
        """Other threads go on reading by what they know of the log, whose files go away under them, one by one."""
        parts = self._parts
        parts.cuts += 1
        try:
            yield
        finally:
            parts.cuts += 1

    def _start_over_at(self, log_end: Offset, *, log_start: Offset) -> None:
        """Bring all else in line with the segments, which end here now, and put it on the disk."""
        parts = self._parts
        parts.log_start = log_start
        self._compaction.on_truncated(log_end)
        active = parts.segments.active
        parts.end = LogPoint(log_end, active, active.size)
        parts.take_roll_rule()
        parts.epochs.truncate_end(log_end)
        ended = parts.producers.transactions.ended_before(log_end)
        replay_from, parts.producers = parts.snapshots.load(
            at_most=log_end, expiration_ms=parts.producer_expiration_ms
        )
        replay_producers(parts.producers, parts.segments, replay_from, log_end)
        parts.producers.forget_before(log_start)
        parts.producers.transactions.keep_back_for(ended)
        # Syncs begun before may be about bytes that are gone: they come to nothing, and what they were to do is done.
        parts.ledger.is_abandoned = True
        for segment in parts.ledger.finished:
            if segment in parts.segments.all:
                segment.sync_all()
        parts.ledger = SyncLedger(parts.disk, parts.folder, parts.snapshots)
        active.sync_log()
        parts.disk.sync_folder(parts.folder)
        parts.synced = parts.end


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
