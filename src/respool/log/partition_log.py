"""The log of one partition on one disk: append batches at its end, read them by offset or by time.

```
log_start                      synced_end        log_end
    |--- segment ---|--- segment ---|--- active segment ---|
```
Everything below `synced_end` is durable; a power cut may lose what lies between it and `log_end`. Batches are stored
byte for byte as received, except base offset and leader epoch in their first bytes.

One thread owns the log and calls everything here. Other threads may call the methods of `LogReader`, `PendingSync.run`
and `Compaction.run` at the same time: the state they use is replaced as a whole and never changed in place.
"""

from collections.abc import Callable, Iterable

from respool.log.compaction.compaction import Compaction, CompactionTools
from respool.log.compaction.compaction_span import CompactionSpan
from respool.log.compaction.log_compaction import LogCompaction
from respool.log.index.segment_indexes import IndexSettings
from respool.log.index.transaction_index import AbortedTransaction
from respool.log.log_parts import Appended, LogParts
from respool.log.log_reader import LogReader
from respool.log.log_retention import LogRetention
from respool.log.log_tail import TailBatches, TailMemory
from respool.log.log_truncation import LogTruncation
from respool.log.pending_sync import PendingSync
from respool.log.producers.producer_state import ProducerState
from respool.log.producers.producer_states import ProducerStates
from respool.log.producers.verification import VerificationGuard
from respool.log.read_batches import ReadSpec
from respool.log.recovery.log_loader import LoadedLog, LogLoader
from respool.log.recovery.recovery import Recovery
from respool.log.removal import RemovedLog, RemovedSegment, remove_log
from respool.log.replica_append import AppendedFetched, ReplicaAppender
from respool.log.time_lookup import TimestampedOffset
from respool.model.delays.kept_records import KEPT_NONE, KeptRecords
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
        # What crash recovery repaired; None after a clean stop.
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
        create_folder: Callable[[], None] | None = None,
        tails: TailMemory | None = None,
    ) -> "PartitionLog":
        """Open the log in this folder, or create one there that starts at `log_start`.

        With `create_folder`, there is no folder: the first append calls it, and the first sync makes it durable.

        `recovery_point` is a checkpointed `synced_end`. `clean` means that it is the last one: `close` returned and
        nothing was done since; then no file is read. After a crash the log is checked from the recovery point on.
        `cleaned_end` is where the last compaction ended; None if there was none. `high_watermark` is the checkpointed
        one; None if everything here is committed. A log that `is_replicated` may contain batches of `append_fetched`.
        `tails` keeps appended batches in memory.

        Raises:
            SegmentCorrupt: data below the recovery point is damaged or missing. Nothing was truncated.
        """
        loader = LogLoader(
            disk=disk,
            folder=folder,
            settings=IndexSettings.of(config),
            now_ms=now_ms,
            producer_expiration_ms=producer_expiration_ms,
            may_have_gaps=config.is_compacted or cleaned_end is not None,
            is_replicated=is_replicated,
            is_archived=config.remote_storage_enable,
            create_folder=create_folder,
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
        """Everything before this offset was compacted."""
        return self._compaction.cleaned_end

    def update_config(self, config: TopicConfig) -> None:
        """Apply changed settings. The active segment keeps its indexes."""
        self._parts.set_config(config)

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(
        self,
        batch: RecordBatch,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        guard: VerificationGuard | None = None,
        earlier: ProducerState | None = None,
    ) -> Appended:
        """Append a validated batch, unless it is a duplicate of its producer.

        The first batch of a transaction needs a guard from `begin_verification`; `earlier`: `ProducerStates.check`.

        Raises:
            OutOfOrderSequence, InvalidProducerEpoch: it does not follow the producer's last batch.
            InvalidTransactionState: no transaction is open for it, or it must be part of the one that is.
            DiskFull, DiskFailed: the write failed. As with the other errors, the log is unchanged.
        """
        parts = self._parts
        header = batch.header
        has_producer = header.producer_id >= 0
        if (
            has_producer
            and (duplicate := parts.producers.check(header, guard, earlier)) is not None
        ):
            is_ours = parts.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
            timestamp = duplicate.timestamp if is_ours else NO_TIMESTAMP
            return Appended(duplicate.base_offset, duplicate.last_offset, True, timestamp)
        active = parts.end.segment
        base_offset, last_offset = parts.write(batch, leader_epoch, now_ms)
        # The batch is written; nothing below can fail.
        if has_producer:
            parts.producers.update(header, base_offset=base_offset)
        timestamp = header.max_timestamp if header.is_log_append_time else NO_TIMESTAMP
        has_rolled = parts.end.segment is not active
        return Appended(base_offset, last_offset, False, timestamp, has_rolled)

    def append_marker(
        self,
        marker: EndTransactionMarker,
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        needs_newer_epoch: bool = False,
    ) -> Appended:
        """Append a transaction marker, whether or not the producer has an open transaction here.

        With `needs_newer_epoch` the marker's epoch must be newer than that of the data (transactions V2), so that a
        late marker cannot end the following transaction.

        Raises:
            InvalidProducerEpoch, TransactionCoordinatorFenced: a newer one was here before.
            DiskFull, DiskFailed: the write failed. As with the other errors, the log is unchanged.
        """
        parts, producers = self._parts, self._parts.producers
        producers.check_marker(marker, needs_newer_epoch=needs_newer_epoch)
        batch = build_marker(marker, timestamp_ms=now_ms)
        aborted = (
            None
            if marker.is_commit
            else producers.aborting(marker.producer_id, marker_offset=self.log_end)
        )
        active = parts.end.segment
        base_offset, last_offset = parts.write(batch, leader_epoch, now_ms, aborted)
        producers.end_transaction(marker, offset=base_offset, timestamp_ms=now_ms)
        has_rolled = parts.end.segment is not active
        return Appended(base_offset, last_offset, False, NO_TIMESTAMP, has_rolled)

    def append_fetched(
        self,
        records: bytes | memoryview,
        *,
        now_ms: int,
        leader_epoch: LeaderEpoch | None = None,
    ) -> AppendedFetched:
        """Append batches fetched from the leader, unchanged; see replica_append.py.

        With `leader_epoch` the batches come from another cluster, and this epoch replaces theirs.

        Raises:
            CorruptMessage: a batch is damaged. As with the next error, the log is unchanged.
            ReplicationDiverged: they do not continue this log.
            DiskFull, DiskFailed: a write failed. Earlier batches may be written; the log ends after them.
        """
        return self._fetched.append(records, now_ms=now_ms, leader_epoch=leader_epoch)

    @property
    def is_empty(self) -> bool:
        """True while it holds no batch, not even a deleted one: `append_fetched` may then start before the log end."""
        return self._fetched.is_empty

    @property
    def last_epoch(self) -> LeaderEpoch:
        """The leader epoch of the last record; -1 if unknown."""
        return self._parts.last_epoch

    def begin_verification(self, header: BatchHeader) -> VerificationGuard | None:
        """Return the guard that the first batch of a transaction needs; None if its transaction is open here.

        The guard is valid until the transaction ends. Use it only after the coordinator has confirmed that the
        partition is part of the transaction.
        """
        return self._parts.producers.begin_verification(header)

    def cancel_verification(self, guard: VerificationGuard) -> None:
        """Discard a guard that the coordinator rejected, unless other requests share it."""
        self._parts.producers.cancel_verification(guard)

    @property
    def producers(self) -> ProducerStates:
        return self._parts.producers

    def has_open_transaction(self, producer_id: int) -> bool:
        return producer_id in self._parts.producers.transactions

    def roll_if_due(self, now_ms: int, *, to_archive: bool = False) -> bool:
        """Roll the active segment if it is too old, or is to be archived; return whether it rolled."""
        parts = self._parts
        if not parts.roll_rule_of(to_archive=to_archive).is_due_at(parts.segments.active, now_ms):
            return False
        parts.roll(now_ms)
        return True

    def on_leader_epoch(self, epoch: LeaderEpoch) -> None:
        """A leader with this epoch starts at the log end. Durable when this returns, even if it never writes.

        Without a folder it is durable with the first sync. If the folder is not durable, no sync may be running.
        """
        if self.has_folder:
            self._parts.ledger.make_folder_durable()
        self._parts.epochs.begin(epoch, self.log_end)

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The epoch of the last leader that started here; -1 if there was none."""
        return self._parts.epochs.latest

    def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """Return the largest epoch here that is not after `epoch`, and its end offset."""
        return self._parts.epochs.end_of(epoch, log_end=self.log_end)

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch of the leader that wrote this offset, or will write it."""
        return self._parts.epochs.epoch_at(offset)

    def active_producers(self) -> Iterable[ProducerState]:
        return self._parts.producers.active()

    # -- read_committed ----------------------------------------------------------------------------------------------

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Every transaction that starts before it has a committed marker."""
        return self._parts.last_stable_offset(high_watermark)

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """Records and transaction markers before it are committed."""
        self._parts.producers.transactions.on_high_watermark(high_watermark)

    # -- sync and close ----------------------------------------------------------------------------------------------

    def begin_sync(self) -> PendingSync | None:
        """Return the sync to run next; None if everything is durable.

        Raises:
            DiskFailed: an earlier sync failed.
        """
        parts = self._parts
        if parts.synced.offset == parts.end.offset and parts.ledger.is_empty:
            parts.ledger.check()
            return None
        return parts.ledger.begin(parts.end)

    def finish_sync(self, done: PendingSync) -> None:
        """The sync has run: everything before its end is durable."""
        self._parts.finish_sync(done)

    def close(self) -> None:
        """Sync everything, so that the next start reads no file, and close the files.

        No reader and no sync may be active.
        """
        self.abandon()
        parts = self._parts
        active = parts.segments.active
        if not parts.has_folder:
            return
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

    def delete(self) -> RemovedLog | None:
        """Rename the folder, if any; delete it later. Active readers continue; any other use is over."""
        self.abandon()
        parts = self._parts
        return remove_log(parts.disk, parts.folder) if parts.has_folder else None

    def abandon(self) -> None:
        """End the use of this object; the folder stays as it is and may be opened again. Active readers continue."""
        self._compaction.abandon()
        self._parts.tail.clear()

    # -- deletion at the start ----------------------------------------------------------------------------------------

    def raise_log_start(self, offset: Offset) -> None:
        """Delete the records before `offset`, which is committed. Retention removes their segments."""
        self._parts.raise_log_start(offset)

    def expired_end(
        self, *, now_ms: int, high_watermark: Offset, kept: KeptRecords
    ) -> Offset | None:
        """The local start after `apply_retention`; None if it would remove nothing."""
        bound = self.last_stable_offset(high_watermark)
        return self._retention.expired_end(now_ms=now_ms, bound=bound, kept=kept)

    def apply_retention(
        self, *, now_ms: int, high_watermark: Offset, kept: KeptRecords = KEPT_NONE
    ) -> list[RemovedSegment]:
        """Remove the segments that retention no longer needs; delete the returned files later, off the event loop.

        Segments with records of an open transaction stay, and those that `kept` names. It also closes the files of
        segments that were not read since the last call.

        Raises:
            DiskFull, HandlesExhausted: nothing was changed; try again later.
        """
        bound = self.last_stable_offset(high_watermark)
        return self._retention.apply(now_ms=now_ms, bound=bound, kept=kept)

    # -- compaction: see compaction.py -------------------------------------------------------------------------------

    def compaction_span(self, *, now_ms: int, bound: Offset) -> CompactionSpan | None:
        """Return the part that could be compacted; None if nothing is new, or a compaction is running.

        Everything below `bound` is committed and no transaction is open there.
        """
        return self._compaction.span(now_ms=now_ms, bound=bound)

    def begin_compaction(
        self, *, now_ms: int, bound: Offset, tools: CompactionTools
    ) -> Compaction | None:
        """Plan a compaction; None if it is not due, or one is running."""
        return self._compaction.begin(now_ms=now_ms, bound=bound, tools=tools)

    def finish_compaction(self, compaction: Compaction) -> list[RemovedSegment]:
        """Swap in the segments that the compaction made. Delete the returned ones later, off the event loop.

        Raises:
            HandlesExhausted: nothing was done; abandon it, or finish it later.
            DiskFailed: the swap is incomplete on the disk; the next opening completes or reverts it.
        """
        return self._compaction.finish(compaction)

    def fail_compaction(self, compaction: Compaction) -> None:
        """The compaction failed; the log is unchanged."""
        self._compaction.fail(compaction)

    # -- truncation ----------------------------------------------------------------------------------------------------

    def truncate_to(self, offset: Offset) -> None:
        """Remove the batch that contains `offset` and everything after it. Durable when this returns.

        First the caller must checkpoint a recovery point and a log start not beyond `end_after_truncation`; otherwise
        the log counts as damaged. `DataFolder.truncate_partition` does both. No sync may be running; syncs that began
        before have no effect.
        """
        self._truncation.truncate_to(offset)

    def end_after_truncation(self, offset: Offset) -> Offset:
        """The log end after `truncate_to(offset)`: at most `offset`."""
        return self._truncation.end_after_truncation(offset)

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        """Remove everything and restart at `offset`. Durable when this returns.

        First the caller must checkpoint a recovery point not beyond `offset` and `first_base_offset`;
        `DataFolder.restart_partition` does. Otherwise as `truncate_to`.
        """
        self._truncation.restart_at(offset)
