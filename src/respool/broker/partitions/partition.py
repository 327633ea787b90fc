"""One replica on this broker: its log, its role, its watermarks, and the requests that wait for them.

The state of a partition belongs here; others call its methods. A storage error takes the partition offline: it answers
KAFKA_STORAGE_ERROR until the broker is restarted, and other partitions are not affected. A full disk and too many open
files are transient errors: nothing was written, reads continue, and the client's retry succeeds once there is room.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from respool.broker.partitions.commit_waiters import FetchWaiter, PartitionWaiters
from respool.broker.partitions.mirror_validation import check_mirrored, mirror_refusal, no_mirror
from respool.broker.partitions.refused_batches import RefusedBatches
from respool.broker.partitions.role import PartitionRole
from respool.broker.partitions.sync_requests import NOT_URGENT_MS, SyncRequests
from respool.broker.partitions.topic_traffic import TopicTraffic
from respool.broker.partitions.transient_errors import TransientErrors
from respool.broker.partitions.watermarks import ReadTo, Watermarks
from respool.log.partition_log import Appended, PartitionLog, ProducerState, VerificationGuard
from respool.model.errors import (
    DiskFull,
    FencedLeaderEpoch,
    HandlesExhausted,
    NotLeader,
    RequestError,
    StorageError,
    StorageFailed,
    UnknownLeaderEpoch,
)
from respool.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition
from respool.model.topic_config import Flush, TopicConfig
from respool.records.batch import RecordBatch
from respool.records.markers import MARKER_BYTES, EndTransactionMarker
from respool.records.mirrored_batches import MirroredBatches
from respool.replication.effects import FollowerEffect, ProposeIsr
from respool.replication.follower import Follower
from respool.replication.leader import Leader

logger = logging.getLogger(__name__)


class IsrProposals(Protocol):
    """Writes the ISR changes that a leader proposes: `IsrWriter`."""

    def propose(self, partition: "Partition", leader: Leader, proposal: ProposeIsr) -> None: ...


class Partition:
    def __init__(
        self,
        *,
        name: TopicPartition,
        topic_id: TopicId,
        log: PartitionLog | StorageError,
        syncs: "SyncRequests[Partition]",
        isr: "IsrProposals | None" = None,
        on_offline: "Callable[[Partition], None]" = lambda _: None,
        high_watermark: Offset | None = None,
        traffic: TopicTraffic | None = None,
    ) -> None:
        """The partition starts without a role. `high_watermark` None: everything in the log is committed."""
        self.name = name
        self.topic_id = topic_id
        # Shared by all partitions of the topic.
        self.traffic = traffic or TopicTraffic(name.topic)
        self.role = PartitionRole(name, self, propose=self._propose)
        # Held while the role changes, or another thread changes the log.
        self.changing = asyncio.Lock()
        # The error that took the partition offline; None while it is online.
        self.failure: StorageError | None = None
        # Records for it may go to another partition, or have been: `broker/layouts/` knows.
        self.has_succession = False
        self.watermarks = Watermarks()
        self.waiters = PartitionWaiters(self, request_sync=partial(syncs.request_sync, self))
        self.refused = RefusedBatches()
        self._isr = isr
        self._on_offline = on_offline
        self.syncs = syncs
        self._log: PartitionLog | None = None
        # Closed, deleted or moved to other brokers: the log is no longer used.
        self.is_detached = False
        self._transient_errors = TransientErrors(name)
        if isinstance(log, StorageError):
            self.failure = log
        else:
            self._log = log
            # A single broker: everything that survived a crash is committed, including transaction markers.
            self.watermarks.begin_at(log, log.log_end if high_watermark is None else high_watermark)

    @property
    def high_watermark(self) -> Offset:
        return self.watermarks.high_watermark

    @property
    def bytes_appended(self) -> int:
        return self.watermarks.bytes_appended

    @property
    def leader(self) -> Leader | None:
        return self.role.leader

    @property
    def follower(self) -> Follower | None:
        return self.role.follower

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.role.leader_epoch

    @property
    def is_leading(self) -> bool:
        return self.role.leader is not None

    @property
    def log(self) -> PartitionLog:
        """The log.

        Raises:
            StorageFailed: the partition is offline.
            NotLeader: the partition was deleted while the caller waited.
        """
        # Read once: a fetch in another thread calls this too, and the partition may be deleted between two reads.
        log = self._log
        if log is None or self.failure is not None:
            raise self.unavailable()
        return log

    @property
    def has_log(self) -> bool:
        return self._log is not None

    @property
    def config(self) -> TopicConfig:
        return self.log.config

    def update_config(self, config: TopicConfig) -> None:
        """Apply changed settings; an offline partition applies them when it is reopened."""
        if self._log is None:
            return
        self._log.update_config(config)
        # Both cover batches that were appended before the change, too.
        if config.respool_flush is Flush.ALWAYS:
            self.syncs.request_sync(self)
        elif config.respool_flush is Flush.INTERVAL:
            self.syncs.request_sync_within(self, config.respool_flush_interval_ms)

    @property
    def is_online(self) -> bool:
        return self.failure is None and self._log is not None

    @property
    def awaits_opening(self) -> bool:
        """True if a transient error (disk full, too many open files) prevented opening or truncating the log."""
        return self._log is None and isinstance(self.failure, DiskFull | HandlesExhausted)

    @property
    def log_start(self) -> Offset:
        log = self._log
        return log.log_start if log is not None else Offset(-1)

    @property
    def last_stable_offset(self) -> Offset:
        """The end for read_committed readers: everything below it is committed and no transaction is open.

        This may be called from any thread. A high watermark that is read after it is at least as high.
        """
        # The first records of an open transaction may have been deleted.
        return max(self.watermarks.stable_offset, self.log_start)

    def check_leader_epoch(self, asked: int) -> None:
        """Check the leader epoch in a client's request, if there is one (KIP-320)."""
        if asked in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        error = FencedLeaderEpoch if asked < self.leader_epoch else UnknownLeaderEpoch
        raise error(f"{self.name}: leader epoch {asked}, here {self.leader_epoch}")

    # -- for its role ------------------------------------------------------------------------------------------------

    @property
    def durable_end(self) -> Offset:
        """The end of the durable log: in the page cache, or on disk with `respool.flush=always`."""
        log = self.log
        return log.synced_end if log.config.respool_flush is Flush.ALWAYS else log.log_end

    def on_log_start_moved(self) -> None:
        """The log start has moved up: records were deleted."""
        self.role.on_log_start(self.log_start)

    def advance_to(self, high_watermark: Offset, byte_count: int | None = None) -> None:
        """Raise the high watermark: see `Committed`."""
        # Never backwards: consumers may have read up to the old value, for example before respool.flush became always.
        if high_watermark <= self.high_watermark:
            return
        log = self._log
        if log is None or self.failure is not None:
            # Its role still follows the cluster image, but requests are not served.
            return
        self.watermarks.advance_to(log, high_watermark, byte_count)
        self.waiters.on_progress(high_watermark, synced_end=log.synced_end)

    def on_leader_durable(self, durable_end: Offset) -> None:
        self.waiters.on_leader_durable(durable_end)

    def on_deleted_everywhere(self, low_watermark: Offset) -> None:
        self.waiters.on_low_watermark(low_watermark)

    def fail_waiters(self, error: RequestError) -> None:
        self.waiters.fail(error)
        self.role.end_epoch_transition()
        self.wake_readers()
        # The replica fetcher may be waiting for this sync.
        self.role.on_follower_ready()

    def wake_readers(self) -> None:
        """Wake all waiting fetches, so that they check again."""
        self.watermarks.wake_all()

    def _propose(self, leader: Leader, proposal: ProposeIsr) -> None:
        if not self.is_online:
            # Followers get only errors from an offline leader, so they seem to lag. But one of them has to take over.
            return
        assert self._isr is not None, f"{self.name}: an ISR change without a cluster"
        self._isr.propose(self, leader, proposal)

    # -- as a follower -----------------------------------------------------------------------------------------------

    def append_fetched(self, records: bytes | memoryview, *, now_ms: int) -> list[FollowerEffect]:
        """Append the leader's batches unchanged and request the sync that the topic needs.

        Raises:
            The exceptions of `PartitionLog.append_fetched`; nothing was written.
        """
        log, follower = self.log, self.follower
        assert follower is not None
        appended = log.append_fetched(records, now_ms=now_ms)
        effects = follower.on_appended(appended.log_end, last_epoch=log.latest_epoch)
        self._on_appended(log, appended.byte_count, has_rolled=appended.has_rolled)
        return effects

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """Apply the leader's high watermark, which may also be lower than the previous one."""
        if high_watermark < self.high_watermark:
            self.watermarks.go_back_to(self.log, high_watermark)
        else:
            self.advance_to(high_watermark)

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(
        self,
        batch: RecordBatch,
        *,
        now_ms: int,
        guard: VerificationGuard | None = None,
        earlier: ProducerState | None = None,
        is_urgent: bool = True,
    ) -> Appended:
        """Append a validated batch and request the sync that the topic needs.

        For `guard` and `earlier` see `PartitionLog.append`. A batch that is not
        urgent is synced a little later, with others; call `request_sync` before waiting for its commit.

        Raises:
            StorageFailed: the partition is offline, or the disk has no room.
            RequestError: the producer's sequence, epoch or transaction does not fit; nothing was written.
        """
        log = self._log_to_write()
        try:
            epoch = self.leader_epoch
            appended = log.append(
                batch, leader_epoch=epoch, now_ms=now_ms, guard=guard, earlier=earlier
            )
        except StorageError as error:
            raise self._refusal(error) from error
        if not appended.is_duplicate:
            header, traffic = batch.header, self.traffic
            traffic.messages_in += header.record_count
            traffic.bytes_in += header.size
            self._on_appended(log, header.size, has_rolled=appended.has_rolled, is_urgent=is_urgent)
        return appended

    def _log_to_write(self) -> PartitionLog:
        log = self.log
        self.role.leading()
        if log.config.respool_mirror:
            raise mirror_refusal(self.name)
        return log

    def append_mirrored(self, copied: MirroredBatches, *, now_ms: int) -> Offset:
        """Append another cluster's batches with their offsets, and return the next offset after them.

        Batches that are in the log already are skipped: a retry sends them again.

        Raises:
            StorageFailed: the partition is offline, or the disk has no room; batches before may have been written.
            RequestError: the topic is not a mirror, or the batches do not continue the log; nothing was written.
        """
        log = self.log
        self.role.leading()
        if not log.config.respool_mirror:
            raise no_mirror(self.name)
        try:
            is_new = check_mirrored(copied, log, self.name)
        except StorageError as error:
            raise self._refusal(error) from error
        if is_new:
            # Batches before an error may be written; a roll before it needs no sync, which only shortens a recovery.
            log_end, has_rolled = log.log_end, False
            try:
                has_rolled = log.append_fetched(
                    copied.data, now_ms=now_ms, leader_epoch=self.leader_epoch
                ).has_rolled
            except StorageError as error:
                raise self._refusal(error) from error
            finally:
                if log.log_end > log_end and self.is_online:
                    size = len(copied.data)
                    self.traffic.messages_in += log.log_end - log_end
                    self.traffic.bytes_in += size
                    self._on_appended(log, size, has_rolled=has_rolled)
        return copied.end

    def append_marker(
        self, marker: EndTransactionMarker, *, now_ms: int, needs_newer_epoch: bool = False
    ) -> Appended:
        """Append a transaction marker; the transaction has ended once the marker is committed.

        Raises:
            StorageFailed: the partition is offline, or the disk has no room.
            InvalidProducerEpoch, TransactionCoordinatorFenced: a newer epoch wrote here; nothing was written.
            PolicyViolation: a mirror gets its transaction markers from the source.
        """
        log = self._log_to_write()
        try:
            appended = log.append_marker(
                marker,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                needs_newer_epoch=needs_newer_epoch,
            )
        except StorageError as error:
            raise self._refusal(error) from error
        self._on_appended(log, MARKER_BYTES, has_rolled=appended.has_rolled)
        return appended

    def cancel_verification(self, guard: VerificationGuard) -> None:
        """Release a guard from `begin_verification`, since the coordinator refused."""
        if self._log is not None:
            self._log.cancel_verification(guard)

    def _refusal(self, error: StorageError) -> RequestError:
        """Return the error for the client; the partition stays online only after a transient error."""
        if isinstance(error, DiskFull):
            self._transient_errors.on_disk_full(error)
            return StorageFailed(f"{self.name}: the broker's disk is full")
        self.on_storage_error(error)
        return StorageFailed(f"{self.name}: {error}") if self.is_online else self.unavailable()

    def request_sync(self) -> None:
        """Sync batches that were not urgent, since a request now waits for their commit."""
        if self.is_online and self.config.respool_flush is Flush.ALWAYS:
            self.syncs.request_sync(self)

    def _on_appended(
        self, log: PartitionLog, size: int, *, has_rolled: bool, is_urgent: bool = True
    ) -> None:
        self.watermarks.on_appended(log.log_end, size, awaits_followers=self.role.is_replicated)
        self.role.on_append(log.log_end)
        self._transient_errors.on_appended()
        flush = log.config.respool_flush
        if flush is Flush.ALWAYS:
            if is_urgent:
                self.syncs.request_sync(self)
            else:
                self.syncs.request_sync_within(self, NOT_URGENT_MS)
            return
        if flush is Flush.INTERVAL:
            self.syncs.request_sync_within(self, log.config.respool_flush_interval_ms)
        elif has_rolled or not log.is_folder_durable:
            # This sync is not needed for durability; it shortens a later recovery. But a log's folder is made durable.
            self.syncs.request_sync(self)
        self.role.on_durable(log.log_end, self.watermarks.bytes_appended)

    def add_fetch_waiter(self, waiter: FetchWaiter, read_to: ReadTo = ReadTo.COMMITTED) -> None:
        """Notify the waiter when bytes become readable."""
        self.watermarks.add_waiter(waiter, read_to)

    def remove_fetch_waiter(self, waiter: FetchWaiter) -> None:
        self.watermarks.remove_waiter(waiter)

    def on_storage_error(self, error: StorageError) -> None:
        """A read or write failed: go offline, unless the error is transient."""
        if isinstance(error, HandlesExhausted):
            self._transient_errors.on_handles_exhausted(error)
            return
        self.go_offline(error)

    def go_offline(self, error: StorageError) -> None:
        """Stop serving, and fail all waiting requests."""
        if self.failure is not None:
            return
        self.failure = error
        logger.error(
            "%s is offline: %s. Other partitions are not affected; %s.",
            self.name,
            error,
            self._way_out,
        )
        self.fail_waiters(self.unavailable())
        self._on_offline(self)

    def abandon_log(self, error: StorageError) -> None:
        """Go offline and abandon the log, which may be half truncated, until it is opened again.

        After a transient error `HostedReplicas` opens it again; otherwise the next start does.
        """
        log, self._log = self._log, None
        if log is not None:
            log.abandon()
        self.go_offline(error)

    @property
    def _way_out(self) -> str:
        if self.awaits_opening:
            return "it is opened again once there is room"
        return "restart the broker once the disk is sound"

    def detach(self) -> PartitionLog | None:
        """Return the log for closing or deletion; waiting requests fail."""
        log, self._log = self._log, None
        self.is_detached = True
        self.role.leader = self.role.follower = None
        self.fail_waiters(self.unavailable())
        return log

    def unavailable(self) -> RequestError:
        """Return the error for all requests: the partition is offline or no longer here."""
        if self.failure is not None:
            return StorageFailed(f"{self.name} is offline: {self.failure}")
        return NotLeader(f"{self.name} is no longer here")

    def on_synced(self, synced_end: Offset, bytes_synced: int) -> None:
        self.role.on_durable(synced_end, bytes_synced)
        self.waiters.on_synced(synced_end, high_watermark=self.high_watermark)
