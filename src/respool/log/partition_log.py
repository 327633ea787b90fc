"""One partition on one disk: batches go in at the end, and come out by offset and by time.

```
log_start                      synced_end        log_end
    |--- segment ---|--- segment ---|--- active segment ---|
```
Below `synced_end` all is on the disk; between it and `log_end` a power cut may take it. A batch's bytes are stored as
they came, with base offset and leader epoch written over its first bytes.

One thread owns the log and calls everything here. Other threads may call what `LogReader` has, `PendingSync.run` and
`Compaction.run` meanwhile: what they need is replaced as a whole and never changed in place.
"""

from collections.abc import Iterable
from typing import NamedTuple

from respool.log.compaction.compaction import Compaction, CompactionTools
from respool.log.compaction.compaction_span import CompactionSpan
from respool.log.compaction.log_compaction import LogCompaction
from respool.log.index.segment_indexes import IndexSettings
from respool.log.index.transaction_index import AbortedTransaction
from respool.log.log_parts import LogParts
from respool.log.log_reader import LogReader
from respool.log.log_retention import LogRetention
from respool.log.log_tail import TailBatches, TailMemory
from respool.log.log_truncation import LogTruncation
from respool.log.pending_sync import PendingSync
from respool.log.producers.producer_state import ProducerState
from respool.log.producers.verification import VerificationGuard
from respool.log.read_batches import ReadSpec
from respool.log.recovery.log_loader import LoadedLog, LogLoader
from respool.log.recovery.recovery import Recovery
from respool.log.removal import RemovedLog, RemovedSegment, remove_log
from respool.log.replica_append import AppendedFetched, ReplicaAppender
from respool.log.time_lookup import TimestampedOffset
from respool.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset
from respool.model.topic_config import TimestampType, TopicConfig
from respool.ports.disk import Disk
from respool.records.batch import BatchHeader, RecordBatch
from respool.records.markers import EndTransactionMarker, build_marker

__all__ = [
    "AbortedTransaction",
    "Appended",
    "AppendedFetched",
    "Compaction",
    "CompactionSpan",
    "CompactionTools",
    "PartitionLog",
    "PendingSync",
    "ProducerState",
    "ReadSpec",
    "Recovery",
    "RemovedLog",
    "RemovedSegment",
    "TailBatches",
    "TailMemory",
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


class PartitionLog(LogReader):
    def __init__(
        self,
        *,
        disk: Disk,
        folder: str,
        config: TopicConfig,
        loaded: LoadedLog,
        producer_expiration_ms: int,
        cleaned_end: Offset,
        tails: TailMemory,
    ) -> None:
        """Use `open`."""
        parts = LogParts(
            disk=disk,
            folder=folder,
            config=config,
            loaded=loaded,
            producer_expiration_ms=producer_expiration_ms,
            tails=tails,
        )
        super().__init__(parts)
        self._retention = LogRetention(parts)
        self._compaction = LogCompaction(parts, cleaned_end=cleaned_end)
        self._truncation = LogTruncation(parts, self._compaction)
        self._fetched = ReplicaAppender(parts, self._truncation)
        # What opening had to repair; None after a clean stop.
        self.recovery = loaded.recovery

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
        high_watermark: Offset | None = None,
        is_replicated: bool = False,
        tails: TailMemory | None = None,
    ) -> "PartitionLog":
        """Open the log in that folder, or begin one there at `log_start`.

        `recovery_point` is a `synced_end` written down earlier, and `clean` says that it was the last one: `close`
        returned, and nothing was done since. After that nothing is read here; after a crash the log is checked from
        the recovery point on. `cleaned_end` is how far it was compacted; None when it never was. `high_watermark` is
        how far it is known to be committed; None when all that is here is. A log that `is_replicated` may hold what
        `append_fetched` wrote. What is appended stays in `tails` for a while, if given.

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
            is_replicated=is_replicated,
        )
        loaded = loader.load(
            log_start=log_start,
            recovery_point=recovery_point,
            clean=clean,
            high_watermark=high_watermark,
        )
        return cls(
            disk=disk,
            folder=folder,
            config=config,
            loaded=loaded,
            producer_expiration_ms=producer_expiration_ms,
            cleaned_end=cleaned_end or Offset(0),
            tails=tails or TailMemory(0),
        )

    @property
    def cleaned_end(self) -> Offset:
        """How far it was compacted."""
        return self._compaction.cleaned_end

    def update_config(self, config: TopicConfig) -> None:
        """Take over changed settings. The active segment keeps the indexes it has."""
        self._parts.take_config(config)

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
        parts = self._parts
        header = batch.header
        has_producer = header.producer_id >= 0
        if has_producer and (duplicate := parts.producers.check(header, guard)) is not None:
            is_ours = parts.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
            timestamp = duplicate.timestamp if is_ours else NO_TIMESTAMP
            return Appended(duplicate.base_offset, duplicate.last_offset, True, timestamp)
        base_offset, last_offset = parts.write(batch, leader_epoch, now_ms)
        # It is written; nothing below can fail.
        if has_producer:
            parts.producers.update(header, base_offset=base_offset)
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
        producers = self._parts.producers
        producers.check_marker(marker, needs_newer_epoch=needs_newer_epoch)
        batch = build_marker(marker, timestamp_ms=now_ms)
        aborted = (
            None
            if marker.is_commit
            else producers.aborting(marker.producer_id, marker_offset=self.log_end)
        )
        base_offset, last_offset = self._parts.write(batch, leader_epoch, now_ms, aborted)
        producers.end_transaction(marker, offset=base_offset, timestamp_ms=now_ms)
        return Appended(base_offset, last_offset, False, NO_TIMESTAMP)

    def append_fetched(
        self,
        records: bytes | memoryview,
        *,
        now_ms: int,
        leader_epoch: LeaderEpoch | None = None,
    ) -> AppendedFetched:
        """Write what a Fetch reply brought from the leader, as it is: see replica_append.py.

        With `leader_epoch` the batches are of another cluster, and get this epoch in the place of theirs.

        Raises:
            CorruptMessage: a batch is damaged. As with the next, the log is as it was.
            ReplicationDiverged: it does not continue this log.
            DiskFull, DiskFailed: it could not be written. Batches before may have been; the log ends after them.
        """
        return self._fetched.append(records, now_ms=now_ms, leader_epoch=leader_epoch)

    @property
    def is_empty(self) -> bool:
        """Whether it holds no batch, not even a deleted one: then `append_fetched` takes one that begins before it."""
        return self._fetched.is_empty

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The epoch of the last record here; -1 when none is known."""
        return self._parts.last_epoch

    def begin_verification(self, header: BatchHeader) -> VerificationGuard | None:
        """What the batch needs to begin its transaction here, good until that ends; None where it is open.

        Before the guard is used the coordinator has confirmed that the partition is part of the transaction.
        """
        return self._parts.producers.begin_verification(header)

    def give_back(self, guard: VerificationGuard) -> None:
        """The coordinator refused: nobody will come with this guard, unless others asked for it too."""
        self._parts.producers.give_back(guard)

    def knows_producer(self, producer_id: int) -> bool:
        """Whether it remembers what this producer sent last: of others it takes any sequence."""
        return producer_id in self._parts.producers

    def has_open_transaction(self, producer_id: int) -> bool:
        return producer_id in self._parts.producers.transactions

    def roll_if_due(self, now_ms: int) -> bool:
        """Begin a new segment when the active one has become too old; say whether that was so."""
        parts = self._parts
        if not parts.roll_rule.is_due_at(parts.segments.active, now_ms):
            return False
        parts.roll(now_ms)
        return True

    def on_leader_epoch(self, epoch: LeaderEpoch) -> None:
        """A leader begins here with the next offset; on the disk when this returns, even if it never writes."""
        self._parts.epochs.begin(epoch, self.log_end)

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """Of the last leader that has begun here; -1 where none has."""
        return self._parts.epochs.latest

    def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch here not after `epoch`, and the offset where it ends."""
        return self._parts.epochs.end_of(epoch, log_end=self.log_end)

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch of the leader that wrote there, or will."""
        return self._parts.epochs.epoch_at(offset)

    def active_producers(self) -> Iterable[ProducerState]:
        return self._parts.producers.active()

    def expire_producers(self, now_ms: int) -> None:
        self._parts.producers.expire(now_ms)

    # -- what readers of committed records see -----------------------------------------------------------------------

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Where they stop: every transaction that began before is decided for good."""
        return self._parts.last_stable_offset(high_watermark)

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """All before it is committed, and so are the ends of transactions there."""
        self._parts.producers.transactions.on_high_watermark(high_watermark)

    # -- on the disk -------------------------------------------------------------------------------------------------

    def begin_sync(self) -> PendingSync | None:
        """What is to be put on the disk now; None when all is there.

        Raises:
            DiskFailed: an earlier sync failed.
        """
        parts = self._parts
        if parts.synced.offset == parts.end.offset and parts.ledger.is_empty:
            parts.ledger.check()
            return None
        return parts.ledger.begin(parts.end)

    def finish_sync(self, done: PendingSync) -> None:
        """That work has run: everything before its end is on the disk."""
        self._parts.finish_sync(done)

    def close(self) -> None:
        """Put all on the disk, such that the next start needs to read nothing, and let go of the files.

        Nobody may be reading, and no sync be running.
        """
        self._compaction.abandon()
        parts = self._parts
        parts.tail.clear()
        active = parts.segments.active
        try:
            parts.ledger.check()
            if active.is_writable or parts.snapshots.newest != self.log_end:
                active.finish()
                snapshot = parts.producers.encode_snapshot()
                parts.ledger.on_finished(active, end=self.log_end, snapshot=snapshot)
            if (pending := self.begin_sync()) is not None:
                parts.sync_now(pending)
            for segment in parts.segments.all:
                segment.save_indexes()
        finally:
            for segment in parts.segments.all:
                segment.release()

    def delete(self) -> RemovedLog:
        """Rename the folder out of use. Readers that have the log go on reading; nobody else may use it again."""
        self._compaction.abandon()
        self._parts.tail.clear()
        return remove_log(self._parts.disk, self._parts.folder)

    def abandon(self) -> None:
        """Nobody uses it any more, and its folder stays as it is, for whoever opens it again. Readers go on reading."""
        self._compaction.abandon()
        self._parts.tail.clear()

    # -- cutting off at the start ------------------------------------------------------------------------------------

    def raise_log_start(self, offset: Offset) -> None:
        """Forget the records before `offset`, which is committed. Retention removes their segments."""
        self._parts.raise_log_start(offset)

    def apply_retention(self, *, now_ms: int, high_watermark: Offset) -> list[RemovedSegment]:
        """Take the segments out of the log that need not be kept; delete what is returned later, off the loop.

        Called now and then, it also lets go of the files of segments that nobody has read since. What an open
        transaction began is not removed before it ends.

        Raises:
            DiskFull, HandlesExhausted: nothing was changed; try again later.
        """
        return self._retention.apply(now_ms=now_ms, bound=self.last_stable_offset(high_watermark))

    # -- compaction: see compaction.py -------------------------------------------------------------------------------

    def compaction_span(self, *, now_ms: int, bound: Offset) -> CompactionSpan | None:
        """What could be compacted; None when there is nothing new, or it is being done.

        `bound` is committed, and no transaction is open before it.
        """
        return self._compaction.span(now_ms=now_ms, bound=bound)

    def begin_compaction(
        self, *, now_ms: int, bound: Offset, tools: CompactionTools
    ) -> Compaction | None:
        """Plan a round of compaction; None when it is not time for one, or one is under way."""
        return self._compaction.begin(now_ms=now_ms, bound=bound, tools=tools)

    def finish_compaction(self, compaction: Compaction) -> list[RemovedSegment]:
        """A slice has run: put what it made in its place. Delete what is returned later, off the loop.

        Raises:
            HandlesExhausted: nothing was done; give it up, or finish it later.
            DiskFailed: the segments on the disk are in between; the next opening brings them to one of the ends.
        """
        return self._compaction.finish(compaction)

    def give_up_compaction(self, compaction: Compaction) -> None:
        """A slice has failed; the log is as it was."""
        self._compaction.give_up(compaction)

    # -- cutting off at the end --------------------------------------------------------------------------------------

    def truncate_to(self, offset: Offset) -> None:
        """Cut off the batch that holds `offset` and all after it; on the disk when this returns.

        Before that the caller writes down a recovery point and a log start that are not beyond `end_after_cut`, for a
        log that ends before them is taken for damaged: `DataFolder.truncate_partition` does both. No sync may be
        running meanwhile; those begun come to nothing.
        """
        self._truncation.cut_to(offset)

    def end_after_cut(self, offset: Offset) -> Offset:
        """Where `truncate_to` would leave the log's end: not after `offset`."""
        return self._truncation.end_after(offset)

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Drop everything and go on at `offset`; on the disk when this returns.

        Before that the caller writes down a recovery point that is not beyond `offset` nor `first_base_offset`:
        `DataFolder.start_partition_anew` does. Else the rules are as for `truncate_to`.
        """
        self._truncation.start_anew_at(offset)
