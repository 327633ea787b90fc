"""One partition on one disk: batches go in at the end, and come out by offset and by time.

```
log_start                      synced_end        log_end
    |--- segment ---|--- segment ---|--- active segment ---|
```
Below `synced_end` all is on the disk; between it and `log_end` a power cut may take it. A batch's bytes are stored as
they came, with base offset and leader epoch written over its first bytes.

One thread owns the log and calls everything here. Other threads may call `read`, the two time lookups and
`PendingSync.run` meanwhile: what they need is replaced as a whole and never changed in place.
"""

from collections.abc import Iterable
from typing import NamedTuple

from respool.log.batch_cleaner import CleaningRules
from respool.log.compaction import Compaction, CompactionTools
from respool.log.compaction_span import CompactionSpan, find_span
from respool.log.epoch_file import EpochFile
from respool.log.log_loader import LoadedLog, LogLoader
from respool.log.log_walk import replay_producers
from respool.log.pending_sync import PendingSync, SyncLedger
from respool.log.producer_state import ProducerState
from respool.log.read_batches import read_batches
from respool.log.recovery import Recovery
from respool.log.removal import RemovedLog, RemovedSegment, remove_log, remove_segment
from respool.log.retention import count_expired
from respool.log.roll import RollRule
from respool.log.segment import Segment
from respool.log.segment_indexes import IndexSettings
from respool.log.segment_swap import swap_segments
from respool.log.segments import LogPoint
from respool.log.time_lookup import TimestampedOffset, find_first_at_or_after, find_latest
from respool.log.transaction_index import AbortedTransaction
from respool.log.truncation import Truncation
from respool.log.verification import VerificationGuard
from respool.model.errors import HandlesExhausted, OffsetOutOfRange
from respool.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset
from respool.model.topic_config import TimestampType, TopicConfig
from respool.ports.disk import Disk
from respool.records.batch import (
    LENGTH_BYTES,
    STAMP_BYTES,
    BatchHeader,
    RecordBatch,
    stamp,
)
from respool.records.markers import EndTransactionMarker, build_marker

__all__ = [
    "AbortedTransaction",
    "Appended",
    "Compaction",
    "CompactionSpan",
    "CompactionTools",
    "PartitionLog",
    "PendingSync",
    "Recovery",
    "RemovedLog",
    "RemovedSegment",
    "TimestampedOffset",
    "VerificationGuard",
]


class Appended(NamedTuple):
    base_offset: Offset
    last_offset: Offset
    # The producer had sent this batch before; the offsets are those it got then.
    is_duplicate: bool
    # The broker's time, where the topic keeps that; else -1.
    log_append_time_ms: int


class PartitionLog:
    def __init__(
        self,
        *,
        disk: Disk,
        folder: str,
        config: TopicConfig,
        loaded: LoadedLog,
        producer_expiration_ms: int,
        cleaned_end: Offset,
    ) -> None:
        """Use `open`."""
        self._disk = disk
        self._folder = folder
        self.config = config
        self._index_settings = IndexSettings.of(config)
        # What opening had to repair; None after a clean stop.
        self.recovery = loaded.recovery
        # Readers in other threads see these three as they were at one moment each. Each is replaced
        # as a whole, in an order that keeps older ones usable with newer ones.
        self._segments = loaded.segments
        self._end = LogPoint(loaded.log_end, self._segments.active, self._segments.active.size)
        self._synced = self._end
        # The first offset that exists. Invariant: not beyond `log_end`, and never going down
        # except by truncation.
        self.log_start = loaded.log_start
        self._producers = loaded.producers
        self._epochs = EpochFile(disk, folder, loaded.epochs)
        self._snapshots = loaded.snapshots
        self._ledger = SyncLedger(disk, folder, self._snapshots)
        self._producer_expiration_ms = producer_expiration_ms
        self._roll_rule = self._rule_of(self._segments.active)
        # Below this offset no key is there twice. Beyond the log's end it is of another log.
        self.cleaned_end = cleaned_end if cleaned_end <= self.log_end else Offset(0)
        # The one under way.
        self._compaction: Compaction | None = None

    @classmethod
    def open(
        cls,
        *,
        disk: Disk,
        folder: str,
        config: TopicConfig,
        now_ms: int,
        log_start: Offset,
        recovery_point: Offset,
        clean: bool,
        producer_expiration_ms: int,
        cleaned_end: Offset | None = None,
    ) -> "PartitionLog":
        """Open the log in that folder, or begin one there at `log_start`.

        `recovery_point` is a `synced_end` written down earlier, and `clean` says that it was the last one: `close`
        returned, and nothing was done since. After that nothing is read here; after a crash the log is checked from
        the recovery point on. `cleaned_end` is how far it was compacted; None when it never was.

        Raises:
            SegmentCorrupt: something below the recovery point is damaged or missing. Nothing was cut.
        """
        loader = LogLoader(
            disk=disk,
            folder=folder,
            settings=IndexSettings.of(config),
            now_ms=now_ms,
            producer_expiration_ms=producer_expiration_ms,
            may_have_gaps=config.is_compacted or cleaned_end is not None,
        )
        loaded = loader.load(log_start=log_start, recovery_point=recovery_point, clean=clean)
        return cls(
            disk=disk,
            folder=folder,
            config=config,
            loaded=loaded,
            producer_expiration_ms=producer_expiration_ms,
            cleaned_end=cleaned_end or Offset(0),
        )

    @property
    def log_end(self) -> Offset:
        """The offset the next record gets."""
        return self._end.offset

    @property
    def synced_end(self) -> Offset:
        """Everything before this offset is on the disk."""
        return self._synced.offset

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    def update_config(self, config: TopicConfig) -> None:
        """Take over changed settings. The active segment keeps the indexes it has."""
        self.config = config
        self._index_settings = IndexSettings.of(config)
        self._roll_rule = self._rule_of(self._segments.active)

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(
        self,
        batch: RecordBatch,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        """Write a checked batch at the end, unless its producer has sent it before.

        The first batch of a transaction needs the guard that `begin_verification` gave.

        Raises:
            OutOfOrderSequence, InvalidProducerEpoch: it does not follow what its producer sent last.
            InvalidTransactionState: its transaction is not known to be open, or it ought to be part of one.
            DiskFull, DiskFailed: it could not be written. As with the others, the log is as it was.
        """
        header = batch.header
        has_producer = header.producer_id >= 0
        if has_producer and (duplicate := self._producers.check(header, guard)) is not None:
            is_ours = self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
            timestamp = duplicate.timestamp if is_ours else NO_TIMESTAMP
            return Appended(duplicate.base_offset, duplicate.last_offset, True, timestamp)
        base_offset, last_offset = self._write(batch, leader_epoch, now_ms)
        # It is written; nothing below can fail.
        if has_producer:
            self._producers.update(header, base_offset=base_offset)
        timestamp = header.max_timestamp if header.is_log_append_time else NO_TIMESTAMP
        return Appended(base_offset, last_offset, False, timestamp)

    def append_marker(
        self,
        marker: EndTransactionMarker,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        needs_newer_epoch: bool = False,
    ) -> Appended:
        """End a producer's transaction here, also where none is open.

        With `needs_newer_epoch` the marker must have a newer epoch than the data (transactions of version 2): then one
        that comes late cannot end the transaction after its own.

        Raises:
            InvalidProducerEpoch, TransactionCoordinatorFenced: a newer one has been here.
            DiskFull, DiskFailed: it could not be written. As with the others, the log is as it was.
        """
        self._producers.check_marker(marker, needs_newer_epoch=needs_newer_epoch)
        batch = build_marker(marker, timestamp_ms=now_ms)
        aborted = (
            None
            if marker.is_commit
            else self._producers.aborting(marker.producer_id, marker_offset=self.log_end)
        )
        base_offset, last_offset = self._write(batch, leader_epoch, now_ms, aborted)
        self._producers.end_transaction(marker, offset=base_offset, timestamp_ms=now_ms)
        return Appended(base_offset, last_offset, False, NO_TIMESTAMP)

    def begin_verification(self, header: BatchHeader) -> VerificationGuard | None:
        """What the batch needs to begin its transaction here, good until that ends; None where it is open.

        Before the guard is used the coordinator has confirmed that the partition is part of the transaction.
        """
        return self._producers.begin_verification(header)

    def _write(
        self,
        batch: RecordBatch,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        aborted: AbortedTransaction | None = None,
    ) -> tuple[Offset, Offset]:
        """Write the batch, and the transaction that it aborts."""
        if self._ledger.failure is not None:
            self._ledger.check()
        header = batch.header
        base_offset, segment, position = self._end
        last_offset = Offset(base_offset + header.last_offset_delta)
        max_timestamp = header.max_timestamp
        size = header.length + LENGTH_BYTES
        if position and self._roll_rule.is_due_for(
            segment, size=size, last_offset=last_offset, max_timestamp=max_timestamp, now_ms=now_ms
        ):
            segment = self._roll(now_ms)
        if not segment.is_writable:
            segment.make_writable(log_end=base_offset)
        if leader_epoch > self._epochs.latest:
            self.on_leader_epoch(leader_epoch)
        segment.append(
            (
                stamp(header, base_offset=base_offset, leader_epoch=leader_epoch),
                memoryview(batch.data)[STAMP_BYTES:],
            ),
            size=size,
            last_offset=last_offset,
            max_timestamp=max_timestamp,
            now_ms=now_ms,
            aborted=aborted,
        )
        self._end = LogPoint(Offset(last_offset + 1), segment, segment.size)
        return base_offset, last_offset

    def roll_if_due(self, now_ms: int) -> bool:
        """Begin a new segment when the active one has become too old; say whether that was so."""
        if not self._roll_rule.is_due_at(self._segments.active, now_ms):
            return False
        self._roll(now_ms)
        return True

    def on_leader_epoch(self, epoch: LeaderEpoch) -> None:
        """A leader begins here with the next offset; on the disk when this returns, even if it never writes."""
        self._epochs.begin(epoch, self.log_end)

    def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch here not after `epoch`, and the offset where it ends."""
        return self._epochs.end_of(epoch, log_end=self.log_end)

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch of the leader that wrote there, or will."""
        return self._epochs.epoch_at(offset)

    def active_producers(self) -> Iterable[ProducerState]:
        return self._producers.active()

    def expire_producers(self, now_ms: int) -> None:
        self._producers.expire(now_ms)

    # -- what readers of committed records see -----------------------------------------------------------------------

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Where they stop: every transaction that began before is decided for good."""
        first_unstable = self._producers.transactions.first_unstable
        if first_unstable is None or first_unstable >= high_watermark:
            return high_watermark
        # What was deleted is undecided no more.
        return max(first_unstable, self.log_start)

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """All before it is committed, and so are the ends of transactions there."""
        self._producers.transactions.on_high_watermark(high_watermark)

    # -- reading: also from other threads ----------------------------------------------------------------------------

    def read(
        self,
        offset: Offset,
        *,
        max_offset: Offset,
        bytes_max: int,
        at_least_one: bool,
        cached_only: bool = False,
    ) -> bytes:
        """Batches as they are stored, from the one that holds `offset` on: that may begin before it.

        Where that one is gone, or compaction left no record of it, from the next that has records.

        There is nothing in it of a batch that ends at `max_offset` or later. It ends after `bytes_max` bytes, maybe
        within a batch, or where a segment ends. A first batch larger than that comes whole with `at_least_one`, and not
        at all without.

        Raises:
            OffsetOutOfRange: the log does not reach there, or not any more.
            NotCached: `cached_only`, and something would have to come from the disk.
            SegmentCorrupt, DiskFailed: the disk does not have what it should.
        """
        # The end first: segments replaced after it still hold every offset up to it.
        end, synced, segments = self._end, self._synced, self._segments
        first_offset = max(self.log_start, segments.first.base_offset)
        if not first_offset <= offset <= end.offset:
            raise OffsetOutOfRange(f"offset {offset}, the log has {first_offset} to {end.offset}")
        max_offset = min(max_offset, end.offset)
        if offset >= max_offset:
            return b""
        return read_batches(
            segments,
            offset,
            end=end,
            synced=synced,
            max_offset=max_offset,
            bytes_max=bytes_max,
            at_least_one=at_least_one,
            cached_only=cached_only,
        )

    def has_aborted_from(self, offset: Offset) -> bool:
        """Whether any transaction was aborted at `offset` or later; cheap, and may err on the side of yes."""
        segments = self._segments
        return any(
            segment.aborted.count for segment in segments.all[max(segments.index_of(offset), 0) :]
        )

    def aborted_in(
        self, offset: Offset, end: Offset, *, cached_only: bool = False
    ) -> list[AbortedTransaction]:
        """The aborted transactions that reach into [offset, end), by their first offsets.

        `end` is not beyond the last stable offset.

        Raises:
            NotCached: `cached_only`, and something would have to come from the disk.
            SegmentCorrupt, DiskFailed: the disk does not have what it should.
        """
        segments = self._segments
        found: list[AbortedTransaction] = []
        # Each lies in the segment that has its marker.
        for segment in segments.all[max(segments.index_of(offset), 0) :]:
            if segment.aborted.count:
                some, is_all = segment.aborted.find(offset, end, cached_only=cached_only)
                found += some
                if is_all:
                    break
        return sorted(found, key=lambda one: one.first_offset)

    def first_at_or_after(
        self, timestamp_ms: int, *, max_offset: Offset
    ) -> TimestampedOffset | None:
        """The first record before `max_offset` whose time is that or later."""
        return find_first_at_or_after(
            self._segments,
            timestamp_ms,
            log_start=self.log_start,
            max_offset=min(max_offset, self.log_end),
        )

    def latest_timestamp(self, *, max_offset: Offset) -> TimestampedOffset | None:
        """Of the records before `max_offset`, the first with the largest time."""
        return find_latest(
            self._segments, log_start=self.log_start, max_offset=min(max_offset, self.log_end)
        )

    # -- on the disk -------------------------------------------------------------------------------------------------

    def begin_sync(self) -> PendingSync | None:
        """What is to be put on the disk now; None when all is there.

        Raises:
            DiskFailed: an earlier sync failed.
        """
        if self._synced.offset == self._end.offset and self._ledger.is_empty:
            self._ledger.check()
            return None
        return self._ledger.begin(self._end)

    def finish_sync(self, done: PendingSync) -> None:
        """That work has run: everything before its end is on the disk."""
        # One begun before a truncation says nothing about what was appended after it.
        if not done.belongs_to(self._ledger):
            return
        self._ledger.finish(done)
        if done.end.offset >= self._synced.offset:
            self._synced = done.end

    def close(self) -> None:
        """Put all on the disk, such that the next start needs to read nothing, and let go of the files.

        Nobody may be reading, and no sync be running.
        """
        self._abandon_compaction()
        active = self._segments.active
        try:
            self._ledger.check()
            if active.is_writable or self._snapshots.newest != self.log_end:
                active.finish()
                snapshot = self._producers.encode_snapshot()
                self._ledger.on_finished(active, end=self.log_end, snapshot=snapshot)
            if (pending := self.begin_sync()) is not None:
                self._run_now(pending)
            for segment in self._segments.all:
                segment.save_indexes()
        finally:
            for segment in self._segments.all:
                segment.release()

    def delete(self) -> RemovedLog:
        """Rename the folder out of use. Readers that have the log go on reading; nobody else may use it again."""
        self._abandon_compaction()
        return remove_log(self._disk, self._folder)

    # -- cutting off at the start ------------------------------------------------------------------------------------

    def raise_log_start(self, offset: Offset) -> None:
        """Forget the records before `offset`, which is committed. Retention removes their segments."""
        assert offset <= self.log_end, f"log start {offset} beyond {self.log_end}"
        if offset <= self.log_start:
            return
        self.log_start = offset
        # Their file may keep the old ones: they are cut at the next opening too.
        self._epochs.truncate_start(offset)
        self._producers.forget_before(offset)

    def apply_retention(self, *, now_ms: int, high_watermark: Offset) -> list[RemovedSegment]:
        """Take the segments out of the log that need not be kept; delete what is returned later, off the loop.

        Called now and then, it also lets go of the files of segments that nobody has read since.
        """
        self._release_idle()
        expired = count_expired(
            self._segments,
            config=self.config,
            log_start=self.log_start,
            log_end=self.log_end,
            # What an open transaction began is not removed before it ends.
            bound=self.last_stable_offset(high_watermark),
            now_ms=now_ms,
        )
        if not expired:
            return []
        if expired == len(self._segments):
            self._roll(now_ms)
        segments = self._segments.without_first(expired)
        log_start = segments.first.base_offset
        if self.synced_end < log_start or segments.first is self._segments.active:
            # Only what is on the disk is removed, and only when its successor is: whatever of this a
            # power cut undoes, the log has no gap and does not end before the synced end. Snapshots
            # are left to the next sync: one that is running now may be writing the same.
            self._run_now(self._ledger.begin(self._end, with_snapshots=False))
        if self.synced_end == log_start:
            # Not to hold on to a file that is to be deleted.
            self._synced = LogPoint(log_start, segments.first, 0)
        return self._remove_first(expired)

    def _remove_first(self, count: int) -> list[RemovedSegment]:
        """Remove so many segments, or those before the first for which the system has no handle left."""
        removed: list[RemovedSegment] = []
        try:
            for segment in self._segments.all[:count]:
                removed.append(self._remove(segment))
                self._segments = self._segments.without_first(1)
        except HandlesExhausted:
            if not removed:
                raise
        finally:
            self.raise_log_start(self._segments.first.base_offset)
        return removed

    def _release_idle(self) -> None:
        unsynced = self._ledger.finished
        for segment in self._segments.all:
            if segment not in unsynced:
                segment.release_if_idle()

    def _remove(self, segment: Segment) -> RemovedSegment:
        # Segments lose their names one after the other, for sure: else a power cut could leave a gap.
        self._ledger.sync_names()
        removed = remove_segment(self._disk, self._folder, segment, self._snapshots)
        self._ledger.on_names_changed()
        return removed

    # -- compaction: see compaction.py -------------------------------------------------------------------------------

    def compaction_span(self, *, now_ms: int, bound: Offset) -> CompactionSpan | None:
        """What could be compacted; None when there is nothing new, or it is being done.

        `bound` is committed, and no transaction is open before it.
        """
        if not self.config.is_compacted or self._compaction is not None:
            return None
        # Below a snapshot all is on the disk, and recovery knows that: only there it takes gaps for what they are.
        return find_span(
            self._segments,
            self.config,
            cleaned_end=self.cleaned_end,
            bound=min(bound, self._snapshots.newest),
            now_ms=now_ms,
        )

    def begin_compaction(
        self,
        *,
        now_ms: int,
        bound: Offset,
        tools: CompactionTools,
    ) -> Compaction | None:
        """Plan a round of compaction; None when it is not time for one, or one is under way."""
        span = self.compaction_span(now_ms=now_ms, bound=bound)
        if span is None or not span.is_due(self.config):
            return None
        rules = CleaningRules.of(self.config, self._producers.active(), end=span.end, now_ms=now_ms)
        self._compaction = Compaction(
            disk=self._disk,
            folder=self._folder,
            config=self.config,
            span=span,
            rules=rules,
            find_aborted=self.aborted_in,
            tools=tools,
        )
        return self._compaction

    def finish_compaction(self, compaction: Compaction) -> list[RemovedSegment]:
        """A slice has run: put what it made in its place. Delete what is returned later, off the loop.

        Raises:
            DiskFailed: the segments on the disk are in between; the next opening brings them to one of the ends.
        """
        if compaction is not self._compaction:
            compaction.discard()
            return []
        removed = self._swap(compaction) if compaction.cleaned is not None else []
        if compaction.is_complete:
            self._compaction = None
            if not compaction.is_partial:
                self.cleaned_end = compaction.end
        return removed

    def give_up_compaction(self, compaction: Compaction) -> None:
        """A slice has failed; the log is as it was."""
        compaction.discard()
        if compaction is self._compaction:
            self._compaction = None

    def _swap(self, compaction: Compaction) -> list[RemovedSegment]:
        assert compaction.cleaned is not None
        group, cleaned = compaction.cleaned
        new = cleaned.as_segment(touched_ms=max(one.touched_ms for one in group.segments))
        segments = self._segments.with_replaced(group.segments, new)
        if segments is None:
            # Retention was faster.
            compaction.on_useless()
            return []
        removed = swap_segments(self._disk, self._folder, group.segments, self._snapshots)
        self._ledger.on_names_changed()
        if self._synced.segment in group.segments:
            # Not to hold on to a file that is to be deleted: the next segment begins where the synced one ended.
            following = segments.all[segments.index_of(self._synced.offset)]
            assert following.base_offset == self._synced.offset
            self._synced = LogPoint(self._synced.offset, following, 0)
        self._segments = segments
        compaction.on_swapped()
        return removed

    def _abandon_compaction(self) -> None:
        """Nobody wants it any more; what it has written is deleted by whoever comes to finish it, or the next start."""
        if self._compaction is not None:
            self._compaction.is_abandoned = True
            self._compaction = None

    # -- cutting off at the end --------------------------------------------------------------------------------------

    def truncate_to(self, offset: Offset) -> None:
        """Cut off the batch that holds `offset` and all after it; on the disk when this returns.

        Before that the caller writes down a recovery point and a log start that are not beyond `offset`, for a log that
        ends before them is taken for damaged. No sync may be running meanwhile; those begun come to nothing.
        """
        if offset >= self.log_end:
            # No byte goes, but an epoch may (KAFKA-10706).
            self._epochs.truncate_end(offset)
        elif offset < self._segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
        else:
            truncation = Truncation(self._disk, self._folder, self._snapshots)
            self._segments, log_end = truncation.cut(self._segments, offset)
            self._start_over_at(log_end, log_start=min(self.log_start, log_end))

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drop everything and go on at `offset`; on the disk when this returns. The rules are as for `truncate_to`."""
        truncation = Truncation(self._disk, self._folder, self._snapshots)
        self._segments = truncation.start_anew(self._segments, offset, self._index_settings)
        self._epochs.truncate_end(Offset(0))
        self._start_over_at(offset, log_start=offset)

    def _start_over_at(self, log_end: Offset, *, log_start: Offset) -> None:
        """Bring all else in line with the segments, which end here now, and put it on the disk."""
        self.log_start = log_start
        self._abandon_compaction()
        self.cleaned_end = min(self.cleaned_end, log_end)
        active = self._segments.active
        self._end = LogPoint(log_end, active, active.size)
        self._roll_rule = self._rule_of(active)
        self._epochs.truncate_end(log_end)
        ended = self._producers.transactions.ended_before(log_end)
        replay_from, self._producers = self._snapshots.load(
            at_most=log_end, expiration_ms=self._producer_expiration_ms
        )
        replay_producers(self._producers, self._segments, replay_from, log_end)
        self._producers.forget_before(log_start)
        self._producers.transactions.keep_back_for(ended)
        # Syncs begun before may be about bytes that are gone: they come to nothing, and what they were to do is done.
        self._ledger.is_abandoned = True
        for segment in self._ledger.finished:
            if segment in self._segments.all:
                segment.sync_all()
        self._ledger = SyncLedger(self._disk, self._folder, self._snapshots)
        active.sync_log()
        self._disk.sync_folder(self._folder)
        self._synced = self._end

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _roll(self, now_ms: int) -> Segment:
        """Begin a new segment. The old one is completed and put on the disk with the next sync."""
        old, base_offset = self._segments.active, self.log_end
        # In this order: a new segment that is begun must be used, or its empty file would lie there as if the log had a
        # gap. An old one that is finished and then goes on, because there is no room for a new one, does no harm.
        old.finish()
        new = Segment.create(
            self._disk, self._folder, base_offset, self._index_settings, now_ms=now_ms
        )
        # The snapshot should know who is silent by now.
        self._producers.expire(now_ms)
        self._ledger.on_finished(old, end=base_offset, snapshot=self._producers.encode_snapshot())
        self._ledger.on_names_changed()
        self._segments = self._segments.with_new(new)
        self._end = LogPoint(base_offset, new, 0)
        self._roll_rule = self._rule_of(new)
        return new

    def _rule_of(self, segment: Segment) -> RollRule:
        return RollRule(self.config, folder=self._folder, base_offset=segment.base_offset)

    def _run_now(self, pending: PendingSync) -> None:
        """What another thread would do, for the rare moments that cannot wait for it."""
        pending.run()
        self.finish_sync(pending)
