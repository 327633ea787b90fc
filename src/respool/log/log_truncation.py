"""Truncation of a log at its end, and of all state derived from it."""

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

    def end_after_truncation(self, offset: Offset) -> Offset:
        """The log end after a truncation to `offset`: that offset, or the base offset of the batch that contains it."""
        parts = self._parts
        if offset >= parts.end.offset:
            return parts.end.offset
        if offset < parts.segments.first.base_offset:
            return offset
        return find_truncation_point(parts.segments, offset)[1]

    def truncate_to(self, offset: Offset) -> None:
        """Remove the batch that contains `offset` and everything after it. Durable when this returns.

        First the caller must checkpoint a recovery point and a log start not beyond `offset`; otherwise the log counts
        as damaged. No sync may be running; syncs that began before have no effect.
        """
        parts = self._parts
        if offset < parts.segments.first.base_offset:
            self.restart_at(offset)
            return
        parts.tail.clear()
        if offset >= parts.end.offset:
            # No bytes are removed, but an epoch may be (KAFKA-10706).
            parts.epochs.truncate_end(offset)
            return
        with self._announced():
            parts.ensure_folder()
            parts.ledger.make_folder_durable()
            truncation = Truncation(parts.disk, parts.folder, parts.snapshots)
            parts.segments, log_end = truncation.truncate(parts.segments, offset)
            self._finish_truncation(log_end, log_start=min(parts.log_start, log_end))

    def restart_at(self, offset: Offset) -> None:
        """Remove everything and restart at `offset`. Durable when this returns. Same rules as `truncate_to`."""
        parts = self._parts
        parts.tail.clear()
        with self._announced():
            parts.ensure_folder()
            parts.ledger.make_folder_durable()
            truncation = Truncation(parts.disk, parts.folder, parts.snapshots)
            parts.segments = truncation.restart(parts.segments, offset, parts.index_settings)
            log_start = offset
            if parts.config.remote_storage_enable and offset <= parts.end.offset:
                # Archived records before it still exist.
                log_start = min(parts.log_start, offset)
            parts.epochs.truncate_end(Offset(0) if log_start == offset else offset)
            self._finish_truncation(offset, log_start=log_start)

    @contextmanager
    def _announced(self) -> Iterator[None]:
        """Mark a truncation as running: readers in other threads may find that the files change."""
        parts = self._parts
        parts.truncations += 1
        try:
            yield
        finally:
            parts.truncations += 1

    def _finish_truncation(self, log_end: Offset, *, log_start: Offset) -> None:
        """Bring the derived state in line with the segments, and make it durable."""
        parts = self._parts
        assert log_start <= log_end, f"log start {log_start} beyond {log_end}"
        parts.log_start = log_start
        self._compaction.on_truncated(log_end)
        active = parts.segments.active
        parts.end = LogPoint(log_end, active, active.size)
        parts.update_roll_rule()
        parts.epochs.truncate_end(log_end)
        ended = parts.producers.transactions.markers_before(log_end)
        replay_from, parts.producers = parts.snapshots.load(
            at_most=log_end, expiration_ms=parts.producer_expiration_ms
        )
        replay_producers(parts.producers, parts.segments, replay_from, log_end)
        parts.producers.forget_before(log_start)
        parts.producers.transactions.restore_ended(ended)
        # Syncs that began before may concern removed bytes: they have no effect, and their remaining work is done here.
        parts.ledger.is_abandoned = True
        for segment in parts.ledger.finished:
            if segment in parts.segments.all:
                segment.sync_all()
        parts.ledger = SyncLedger(parts.disk, parts.folder, parts.snapshots, parts.epochs)
        active.sync_log()
        parts.disk.sync_folder(parts.folder)
        parts.synced = parts.end


class Truncation:
    """Truncates the files of segments, in an order that leaves a valid log whenever the power fails."""

    def __init__(self, disk: Disk, folder: str, snapshots: SnapshotFiles) -> None:
        self._disk = disk
        self._folder = folder
        self._snapshots = snapshots

    def truncate(self, segments: Segments, offset: Offset) -> tuple[Segments, Offset]:
        """Remove the batch that contains `offset` and everything after it; return the remaining segments and their
        end offset.
        """
        index, log_end = find_truncation_point(segments, offset)
        left = segments.up_to(index + 1)
        # First: a snapshot implies that everything before its offset is durable.
        self._snapshots.delete_beyond(log_end)
        # Newest first, so that there is never a gap.
        for segment in reversed(segments.all[index + 1 :]):
            delete_segment(self._disk, self._folder, segment)
        left.active.truncate_to(log_end)
        return left, log_end

    def restart(self, segments: Segments, offset: Offset, settings: IndexSettings) -> Segments:
        """Remove all segments and create an empty one at `offset`."""
        self._snapshots.delete_beyond(Offset(-1))
        kept = {segment.base_offset: segment for segment in segments.all}.get(offset)
        # Create the new one before the others are deleted: without any segment, the log's start would be unknown.
        if kept is None:
            now_ms = segments.active.touched_ms
            kept = Segment.create(self._disk, self._folder, offset, settings, now_ms=now_ms)
            self._disk.sync_folder(self._folder)
        for segment in reversed(segments.all):
            if segment is not kept:
                delete_segment(self._disk, self._folder, segment)
        kept.truncate_to(offset)
        return Segments([kept])


def find_truncation_point(segments: Segments, offset: Offset) -> tuple[int, Offset]:
    """Return the index of the last remaining segment when truncating to `offset`, and its end."""
    index = segments.index_of(offset)
    assert index >= 0, f"offset {offset} lies before the first segment"
    return index, segments.all[index].end_before(offset)
