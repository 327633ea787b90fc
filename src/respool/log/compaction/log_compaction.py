"""The log's side of compaction: what may be compacted, and swapping in the result.

`compaction.py` does the work, in other threads.
"""

from respool.log.compaction.batch_cleaner import CleaningRules
from respool.log.compaction.compaction import Compaction, CompactionTools
from respool.log.compaction.compaction_span import CompactionSpan, find_span
from respool.log.index.transaction_index import AbortedTransaction
from respool.log.log_parts import LogParts
from respool.log.recovery.segment_swap import swap_segments
from respool.log.removal import RemovedSegment
from respool.log.segments import LogPoint
from respool.model.ids import Offset


class LogCompaction:
    def __init__(self, parts: LogParts, *, cleaned_end: Offset) -> None:
        self._parts = parts
        # Below this offset every key has one record. A value beyond the log end belongs to an earlier log.
        self.cleaned_end = cleaned_end if cleaned_end <= parts.end.offset else Offset(0)
        self._under_way: Compaction | None = None

    def span(self, *, now_ms: int, bound: Offset) -> CompactionSpan | None:
        """Return the part that could be compacted; None if nothing is new, or a compaction is running.

        Everything below `bound` is committed and no transaction is open there.
        """
        parts = self._parts
        if not parts.config.is_compacted or self._under_way is not None:
            return None
        # Everything below a snapshot is durable, and recovery knows it: only there gaps are allowed. And with a
        # snapshot, no marker before it is needed to replay producers; otherwise a transaction whose marker was removed
        # would stay open forever. A log is never truncated below `bound`, so this snapshot stays.
        return find_span(
            parts.segments,
            parts.config,
            cleaned_end=self.cleaned_end,
            bound=parts.snapshots.newest_until(bound),
            now_ms=now_ms,
        )

    def begin(self, *, now_ms: int, bound: Offset, tools: CompactionTools) -> Compaction | None:
        """Plan a compaction; None if it is not due, or one is running."""
        parts = self._parts
        span = self.span(now_ms=now_ms, bound=bound)
        if span is None or not span.is_due(parts.config):
            return None
        rules = CleaningRules.of(
            parts.config, parts.producers.active(), end=span.end, now_ms=now_ms
        )
        self._under_way = Compaction(
            disk=parts.disk,
            folder=parts.folder,
            config=parts.config,
            span=span,
            rules=rules,
            find_aborted=self._find_aborted,
            tools=tools,
        )
        return self._under_way

    def finish(self, compaction: Compaction) -> list[RemovedSegment]:
        """Swap in the segment that a slice has finished. Delete the returned ones later, off the event loop.

        Raises:
            HandlesExhausted: nothing was done; abandon it, or finish it later.
            DiskFailed: the swap is incomplete on the disk; the next opening completes or reverts it.
        """
        if compaction is not self._under_way:
            compaction.discard()
            return []
        removed = self._swap(compaction) if compaction.cleaned is not None else []
        if compaction.is_complete:
            self._under_way = None
            if not compaction.is_partial:
                self.cleaned_end = compaction.end
        return removed

    def fail(self, compaction: Compaction) -> None:
        """A slice has failed; the log is unchanged."""
        compaction.discard()
        if compaction is self._under_way:
            self._under_way = None

    def _swap(self, compaction: Compaction) -> list[RemovedSegment]:
        parts = self._parts
        assert compaction.cleaned is not None
        group, cleaned = compaction.cleaned
        new = cleaned.as_segment(touched_ms=max(one.touched_ms for one in group.segments))
        segments = parts.segments.with_replaced(group.segments, new)
        if segments is None:
            # Retention has removed some of them.
            compaction.on_obsolete()
            return []
        removed = swap_segments(parts.disk, parts.folder, group.segments, parts.snapshots)
        parts.ledger.on_names_changed()
        if parts.synced.segment in group.segments:
            # Do not keep a file open that will be deleted: the next segment starts where the synced one ended.
            following = segments.all[segments.index_of(parts.synced.offset)]
            assert following.base_offset == parts.synced.offset
            parts.synced = LogPoint(parts.synced.offset, following, 0)
        parts.segments = segments
        parts.tail.clear()
        compaction.on_swapped()
        return removed

    def abandon(self) -> None:
        """The result is no longer needed; its files are deleted by `finish` or at the next start."""
        if self._under_way is not None:
            self._under_way.is_abandoned = True
            self._under_way = None

    def on_truncated(self, log_end: Offset) -> None:
        self.abandon()
        self.cleaned_end = min(self.cleaned_end, log_end)

    def _find_aborted(self, begin: Offset, end: Offset) -> list[AbortedTransaction]:
        return self._parts.segments.aborted_in(begin, end)
