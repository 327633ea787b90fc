"""A log's part in its compaction: what may be compacted, and putting what a round has made in its place.

`compaction.py` does the work of a round, in other threads.
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
        # Below this offset no key is there twice. Beyond the log's end it is of another log.
        self.cleaned_end = cleaned_end if cleaned_end <= parts.end.offset else Offset(0)
        self._under_way: Compaction | None = None

    def span(self, *, now_ms: int, bound: Offset) -> CompactionSpan | None:
        """What could be compacted; None when there is nothing new, or it is being done.

        `bound` is committed, and no transaction is open before it.
        """
        parts = self._parts
        if not parts.config.is_compacted or self._under_way is not None:
            return None
        # Below a snapshot all is on the disk, and recovery knows that: only there it takes gaps for what they are. And
        # who knows the producers there needs no marker before it: without one, a transaction whose marker is gone would
        # be open for ever. A log is never cut below `bound`, so this snapshot stays.
        return find_span(
            parts.segments,
            parts.config,
            cleaned_end=self.cleaned_end,
            bound=parts.snapshots.newest_until(bound),
            now_ms=now_ms,
        )

    def begin(self, *, now_ms: int, bound: Offset, tools: CompactionTools) -> Compaction | None:
        """Plan a round of compaction; None when it is not time for one, or one is under way."""
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
        """A slice has run: put what it made in its place. Delete what is returned later, off the loop.

        Raises:
            HandlesExhausted: nothing was done; give it up, or finish it later.
            DiskFailed: the segments on the disk are in between; the next opening brings them to one of the ends.
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

    def give_up(self, compaction: Compaction) -> None:
        """A slice has failed; the log is as it was."""
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
            # Retention was faster.
            compaction.on_useless()
            return []
        removed = swap_segments(parts.disk, parts.folder, group.segments, parts.snapshots)
        parts.ledger.on_names_changed()
        if parts.synced.segment in group.segments:
            # Not to hold on to a file that is to be deleted: the next segment begins where the synced one ended.
            following = segments.all[segments.index_of(parts.synced.offset)]
            assert following.base_offset == parts.synced.offset
            parts.synced = LogPoint(parts.synced.offset, following, 0)
        parts.segments = segments
        parts.tail.clear()
        compaction.on_swapped()
        return removed

    def abandon(self) -> None:
        """Nobody wants it any more; what it has written is deleted by whoever comes to finish it, or the next start."""
        if self._under_way is not None:
            self._under_way.is_abandoned = True
            self._under_way = None

    def on_truncated(self, log_end: Offset) -> None:
        self.abandon()
        self.cleaned_end = min(self.cleaned_end, log_end)

    def _find_aborted(self, begin: Offset, end: Offset) -> list[AbortedTransaction]:
        return self._parts.segments.aborted_in(begin, end)
