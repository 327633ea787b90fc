"""Retention: remove old segments in an order that never leaves a gap, even if the power fails."""

from respool.log.log_parts import LogParts
from respool.log.removal import RemovedSegment, remove_segment
from respool.log.segment import Segment
from respool.log.segments import LogPoint, Segments
from respool.model.delays.kept_records import OFFSET_MAX, KeptRecords
from respool.model.errors import HandlesExhausted
from respool.model.ids import Offset
from respool.model.topic_config import TopicConfig


class LogRetention:
    def __init__(self, parts: LogParts) -> None:
        self._parts = parts

    def expired_end(self, *, now_ms: int, bound: Offset, kept: KeptRecords) -> Offset | None:
        """The end of the expired segments below `bound`; None if there are none."""
        parts = self._parts
        expired = self._count_expired(now_ms=now_ms, bound=bound, kept=kept)
        if not expired:
            return None
        return parts.segments.end_of(expired - 1, log_end=parts.end.offset)

    def _count_expired(self, *, now_ms: int, bound: Offset, kept: KeptRecords) -> int:
        parts = self._parts
        return count_expired(
            parts.segments,
            config=parts.config.of_local_part,
            log_start=parts.log_start,
            log_end=parts.end.offset,
            bound=min(bound, kept.from_offset, self._archived_end(kept)),
            now_ms=now_ms,
            uncounted_bytes=kept.uncounted_bytes,
        )

    def _archived_end(self, kept: KeptRecords) -> Offset:
        """Of an archived topic, only what is archived may be removed here, and what lies before the log start.

        By offset: another replica may have archived it, whose segments begin elsewhere.
        """
        parts = self._parts
        if not parts.config.remote_storage_enable:
            return OFFSET_MAX
        return max(kept.archived_end, parts.log_start)

    def apply(self, *, now_ms: int, bound: Offset, kept: KeptRecords) -> list[RemovedSegment]:
        """Remove the expired segments below `bound`."""
        parts = self._parts
        self._release_idle()
        expired = self._count_expired(now_ms=now_ms, bound=bound, kept=kept)
        if not expired or not parts.is_folder_durable:
            # A new log's first sync has been requested with its first record.
            return []
        if expired == len(parts.segments):
            parts.roll(now_ms)
        assert expired < len(parts.segments), "the active segment stays"
        segments = parts.segments.without_first(expired)
        log_start = segments.first.base_offset
        if parts.synced.offset < log_start or segments.first is parts.segments.active:
            # Only durable segments are removed, and only when their successor is durable: whatever part of this a power
            # cut reverts, the log has no gap and does not end before the synced end. Snapshots are left to the next
            # sync: a running one may be writing the same.
            parts.sync_now(parts.ledger.begin(parts.end, with_snapshots=False))
        if parts.synced.offset == log_start:
            # Do not keep a file open that will be deleted.
            parts.synced = LogPoint(log_start, segments.first, 0)
        return self._remove_first(expired)

    def _release_idle(self) -> None:
        unsynced = self._parts.ledger.finished
        for segment in self._parts.segments.all:
            if segment not in unsynced:
                segment.release_if_idle()

    def _remove_first(self, count: int) -> list[RemovedSegment]:
        """Remove `count` segments, or fewer if the process runs out of file descriptors."""
        parts = self._parts
        removed: list[RemovedSegment] = []
        try:
            for segment in parts.segments.all[:count]:
                removed.append(self._remove(segment))
                parts.segments = parts.segments.without_first(1)
        except HandlesExhausted:
            if not removed:
                raise
        finally:
            if not parts.config.remote_storage_enable:
                # In the archive, the removed records still exist, and with them their epochs and producers.
                parts.raise_log_start(parts.segments.first.base_offset)
        return removed

    def _remove(self, segment: Segment) -> RemovedSegment:
        parts = self._parts
        # Each rename is durable before the next: otherwise a power cut could leave a gap.
        parts.ledger.sync_names()
        removed = remove_segment(parts.disk, parts.folder, segment, parts.snapshots)
        parts.ledger.on_names_changed()
        return removed


def count_expired(
    segments: Segments,
    *,
    config: TopicConfig,
    log_start: Offset,
    log_end: Offset,
    bound: Offset,
    now_ms: int,
    uncounted_bytes: int = 0,
) -> int:
    """Return how many segments, from the oldest on, can be removed. If it is all of them, roll first.

    A segment is removed if it is below the log start; unless the policy is compact only, also if its latest record is
    older than `retention.ms`, or if the rest still exceeds `retention.bytes`. Segments not wholly below `bound` stay:
    they hold uncommitted records or an open transaction. A timestamp in the future keeps its segment and all later
    ones.
    """
    has_bytes_max = config.has_retention and config.retention_bytes >= 0
    counted_bytes = segments.size_bytes - uncounted_bytes
    bytes_over = counted_bytes - config.retention_bytes if has_bytes_max else -1
    retention_ms = config.retention_ms if config.has_retention else -1
    count = 0
    for index, segment in enumerate(segments.all):
        end = segments.end_of(index, log_end=log_end)
        # Only the active segment can be empty, and replacing it by a new one would change nothing.
        if not segment.size or end > bound:
            break
        if not (
            end <= log_start
            or segment.size <= bytes_over
            or _is_too_old(segment, retention_ms, now_ms)
        ):
            break
        bytes_over -= segment.size
        count += 1
    return count


def _is_too_old(segment: Segment, retention_ms: int, now_ms: int) -> bool:
    return 0 <= retention_ms < now_ms - segment.retention_timestamp
