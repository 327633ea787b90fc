"""One partition on this broker: a log, its role, how far it is committed, and who waits for that.

State of a partition belongs here; others ask, they do not reach in. A storage error takes the partition offline: it
answers KAFKA_STORAGE_ERROR until the broker is restarted, and the broker lives. A full disk is not that: nothing was
written, readers go on, and producers succeed again as soon as there is room. Nor is the want of file handles: what
needs one gets the same answer, and is tried again.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from respool.broker.metrics.topic_traffic import TopicTraffic
from respool.broker.partitions.commit_waiters import CommitListener, CommitQueue, FetchWaiter
from respool.broker.partitions.mirror_validation import (
    check_continues,
    check_same,
    mirror_refusal,
    no_mirror,
)
from respool.broker.partitions.refused_batches import RefusedBatches
from respool.broker.partitions.role import PartitionRole
from respool.broker.partitions.transient_errors import TransientErrors
from respool.broker.partitions.watermarks import ReadTo, Watermarks
from respool.log.partition_log import (
    Appended,
    PartitionLog,
    PendingSync,
    ReadSpec,
    VerificationGuard,
)
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
from respool.model.ids import (
    NO_LEADER_EPOCH,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from respool.model.topic_config import Flush, TopicConfig
from respool.records.batch import BatchHeader, RecordBatch
from respool.records.markers import MARKER_BYTES, EndTransactionMarker
from respool.records.mirrored_batches import MirroredBatches
from respool.replication.effects import FollowerEffect, ProposeIsr
from respool.replication.follower import Follower
from respool.replication.leader import Leader

logger = logging.getLogger(__name__)

# How long what is not urgent waits for something else to be synced with.
NOT_URGENT_MS = 50

# When a sync could not be begun for want of a file handle.
SYNC_AGAIN_MS = 500


class SyncRequests(Protocol):
    """Where a partition asks for its log to be synced; `Flusher` does it."""

    def request_sync(self, partition: "Partition") -> None: ...

    def request_sync_within(self, partition: "Partition", delay_ms: int) -> None: ...

    async def settle(self, partition: "Partition") -> None: ...


class IsrProposals(Protocol):
    """Where a leader's wish for another ISR is written; `IsrWriter` does it."""

    def propose(self, partition: "Partition", leader: Leader, proposal: ProposeIsr) -> None: ...


class Partition:
    def __init__(
        self,
        *,
        name: TopicPartition,
        topic_id: TopicId,
        log: PartitionLog | StorageError,
        syncs: "SyncRequests",
        isr: "IsrProposals | None" = None,
        on_offline: "Callable[[Partition], None]" = lambda _: None,
        high_watermark: Offset | None = None,
        traffic: TopicTraffic | None = None,
    ) -> None:
        """Neither leading nor following yet; known to be committed up to `high_watermark`, or all of it."""
        self.name = name
        self.topic_id = topic_id
        # Shared by all partitions of the topic.
        self.traffic = traffic or TopicTraffic(name.topic)
        self.role = PartitionRole(
            name,
            self,
            propose=self._propose,
        )
        # Held by whoever changes the log in another thread, or the role.
        self.changing = asyncio.Lock()
        # Why the partition is offline; None while it is not.
        self.failure: StorageError | None = None
        self._watermarks = Watermarks()
        self._commits = CommitQueue()
        self.refused = RefusedBatches()
        # The same for those who need more than the topic promises: that it is on the disk.
        self._syncs_awaited = CommitQueue()
        # DeleteRecords that wait until followers have deleted too.
        self._deletions = CommitQueue()
        self._isr = isr
        self._on_offline = on_offline
        self._syncs = syncs
        self._log: PartitionLog | None = None
        # Closed, deleted or moved away: the log is not this one's any more.
        self.is_detached = False
        self._transient_errors = TransientErrors(name)
        if isinstance(log, StorageError):
            self.failure = log
        else:
            self._log = log
            # Alone, what a crash left is committed, and so are the ends of transactions in it.
            self._watermarks.begin_at(
                log, log.log_end if high_watermark is None else high_watermark
            )

    @property
    def high_watermark(self) -> Offset:
        return self._watermarks.high_watermark

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
        """The log to read from.

        Raises:
            StorageFailed: the partition is offline.
            NotLeader: the partition was deleted while the caller waited.
        """
        # Taken once: a fetch in another thread comes here too, and the partition may be deleted meanwhile.
        log = self._log
        if log is None or self.failure is not None:
            raise self._unavailable()
        return log

    @property
    def config(self) -> TopicConfig:
        return self.log.config

    @property
    def delete_delay_ms(self) -> int:
        """How long its files stay after it was deleted; an offline partition may not know its settings."""
        config = TopicConfig() if self._log is None else self._log.config
        return config.file_delete_delay_ms

    def update_config(self, config: TopicConfig) -> None:
        """Take over changed settings; an offline partition has them after its restart."""
        if self._log is None:
            return
        self._log.update_config(config)
        if config.respool_flush is Flush.ALWAYS:
            # What was appended under a weaker promise gets the stronger one now.
            self._syncs.request_sync(self)

    @property
    def is_online(self) -> bool:
        return self.failure is None and self._log is not None

    @property
    def awaits_opening(self) -> bool:
        """Whether its log could not be opened, or cut off, for a trouble that passes: no room, or no file handle."""
        return self._log is None and isinstance(self.failure, DiskFull | HandlesExhausted)

    @property
    def log_start(self) -> Offset:
        log = self._log
        return log.log_start if log is not None else Offset(-1)

    @property
    def last_stable_offset(self) -> Offset:
        """Where read_committed readers stop: everything before is committed, and no transaction there is open.

        From any thread; who asks for the high watermark after it finds that at least as high.
        """
        # Records may have been deleted that a transaction began with.
        return max(self._watermarks.stable_offset, self.log_start)

    def check_leader_epoch(self, asked: int) -> None:
        """A client that says which leader it believes in must believe in this one (KIP-320)."""
        if asked in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        error = FencedLeaderEpoch if asked < self.leader_epoch else UnknownLeaderEpoch
        raise error(f"{self.name}: leader epoch {asked}, here {self.leader_epoch}")

    # -- for its role ------------------------------------------------------------------------------------------------

    @property
    def durable_end(self) -> Offset:
        """Before it everything counts as had here."""
        log = self.log
        return log.synced_end if log.config.respool_flush is Flush.ALWAYS else log.log_end

    def on_log_start_moved(self) -> None:
        """Records were deleted at the start."""
        self.role.on_log_start(self.log_start)

    def advance_to(self, high_watermark: Offset, byte_count: int | None = None) -> None:
        """See `Committed`."""
        # Never backwards: consumers may already have read up to the old value, for example
        # under respool.flush=os before the topic was switched to 'always'.
        if high_watermark <= self.high_watermark:
            return
        log = self._log
        if log is None or self.failure is not None:
            # Its role is still told of the cluster; nobody is answered any more.
            return
        self._watermarks.advance_to(log, high_watermark, byte_count)
        self._commits.on_high_watermark(high_watermark)
        self._syncs_awaited.on_high_watermark(min(log.synced_end, high_watermark))

    def on_deleted_everywhere(self, low_watermark: Offset) -> None:
        self._deletions.on_high_watermark(low_watermark)

    def fail_waiters(self, error: RequestError) -> None:
        for waiting in (self._commits, self._syncs_awaited, self._deletions):
            waiting.on_failure(error)
        self.role.end_going_on()
        self.wake_readers()
        # Who fetches for a follower may be waiting for its disk.
        self.role.on_follower_ready()

    def wake_readers(self) -> None:
        """Whoever waits for something to read looks again."""
        self._watermarks.wake_all()

    def _propose(self, leader: Leader, proposal: ProposeIsr) -> None:
        if not self.is_online:
            # Followers hear errors only, so they seem to lag. But they are the heirs.
            return
        assert self._isr is not None, f"{self.name}: an ISR of other brokers, and no cluster"
        self._isr.propose(self, leader, proposal)

    # -- as a follower -----------------------------------------------------------------------------------------------

    def append_fetched(self, records: bytes | memoryview, *, now_ms: int) -> list[FollowerEffect]:
        """Append what the leader sent, as it is, and start what makes it durable; return what follows from it.

        Raises:
            as `PartitionLog.append_fetched`; nothing was written.
        """
        log, follower = self.log, self.follower
        assert follower is not None
        segments = log.segment_count
        appended = log.append_fetched(records, now_ms=now_ms)
        effects = follower.on_appended(appended.log_end, last_epoch=log.latest_epoch)
        self._on_appended(log, appended.byte_count, has_rolled=log.segment_count != segments)
        return effects

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """The follower has heard that all before it is committed, or that less is than it had heard before."""
        if high_watermark < self.high_watermark:
            self._watermarks.go_back_to(self.log, high_watermark)
        else:
            self.advance_to(high_watermark)

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(
        self,
        batch: RecordBatch,
        *,
        now_ms: int,
        guard: VerificationGuard | None = None,
        is_urgent: bool = True,
    ) -> Appended:
        """Append a checked batch and start what makes it durable.

        The first batch of a transaction needs the guard from `begin_verification`. What is not urgent waits a moment
        for something to share its sync with; nobody may wait for it without `hurry`.

        Raises:
            StorageFailed: the partition is offline, or the disk has no room.
            RequestError: the producer's sequence, epoch or transaction does not fit; nothing was written.
        """
        log = self.log
        self.role.leading()
        if log.config.respool_mirror:
            raise mirror_refusal(self.name)
        segments = log.segment_count
        try:
            appended = log.append(batch, leader_epoch=self.leader_epoch, now_ms=now_ms, guard=guard)
        except StorageError as error:
            raise self._refusal(error) from error
        if not appended.is_duplicate:
            header, traffic = batch.header, self.traffic
            traffic.messages_in += header.record_count
            traffic.bytes_in += header.size
            self._on_appended(
                log,
                header.size,
                has_rolled=log.segment_count != segments,
                is_urgent=is_urgent,
            )
        return appended

    def append_mirrored(self, copied: MirroredBatches, *, now_ms: int) -> Offset:
        """Append batches of another cluster with the offsets they have, and return where the last of them ends.

        Those that are here already are left out: a retry brings them again.

        Raises:
            StorageFailed: the partition is offline, or the disk has no room; batches before may have been written.
            RequestError: the topic is no mirror, or the batches do not go on where the log ends; nothing was written.
        """
        log = self.log
        self.role.leading()
        if not log.config.respool_mirror:
            raise no_mirror(self.name)
        is_new = check_continues(copied, log.log_end, self.name, is_empty=log.is_empty)
        here = min(copied.end, log.log_end)
        if here > max(copied.base_offset, log.log_start):
            check_same(copied, here, self._stored_at(Offset(here - 1)), self.name)
        if is_new:
            segments, log_end = log.segment_count, log.log_end
            try:
                log.append_fetched(copied.data, now_ms=now_ms, leader_epoch=self.leader_epoch)
            except StorageError as error:
                raise self._refusal(error) from error
            finally:
                if log.log_end > log_end and self.is_online:
                    size = len(copied.data)
                    self.traffic.messages_in += log.log_end - log_end
                    self.traffic.bytes_in += size
                    self._on_appended(log, size, has_rolled=log.segment_count != segments)
        return copied.end

    def _stored_at(self, offset: Offset) -> bytes:
        """The batch that holds the offset, or what comes after it; of the log's end, which is in memory as a rule."""
        log = self.log
        try:
            found = log.read(ReadSpec(offset, max_offset=log.log_end, bytes_max=0, with_empty=True))
        except StorageError as error:
            raise self._refusal(error) from error
        return bytes(found)

    def append_marker(
        self, marker: EndTransactionMarker, *, now_ms: int, needs_newer_epoch: bool = False
    ) -> Appended:
        """End a producer's transaction here; it has ended when the marker is committed.

        Raises:
            StorageFailed: the partition is offline, or the disk has no room.
            InvalidProducerEpoch, TransactionCoordinatorFenced: a newer one has been here; nothing was written.
            PolicyViolation: in a mirror transactions end as they do at its source.
        """
        log = self.log
        self.role.leading()
        if log.config.respool_mirror:
            raise mirror_refusal(self.name)
        segments = log.segment_count
        try:
            appended = log.append_marker(
                marker,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                needs_newer_epoch=needs_newer_epoch,
            )
        except StorageError as error:
            raise self._refusal(error) from error
        self._on_appended(log, MARKER_BYTES, has_rolled=log.segment_count != segments)
        return appended

    def begin_verification(self, header: BatchHeader) -> VerificationGuard | None:
        """What the batch needs to begin its transaction here, once the coordinator says that it is open.

        None where it is open here already.
        """
        return self.log.begin_verification(header)

    def cancel_verification(self, guard: VerificationGuard) -> None:
        """The coordinator refused what `begin_verification` was asked for."""
        if self._log is not None:
            self._log.cancel_verification(guard)

    def has_open_transaction(self, producer_id: int) -> bool:
        return self.log.has_open_transaction(producer_id)

    def _refusal(self, error: StorageError) -> RequestError:
        """What became of an append that failed; only a passing trouble leaves the partition online."""
        if isinstance(error, DiskFull):
            self._transient_errors.on_disk_full(error)
            return StorageFailed(f"{self.name}: the broker's disk is full")
        self.on_storage_error(error)
        return StorageFailed(f"{self.name}: {error}") if self.is_online else self._unavailable()

    def hurry(self) -> None:
        """Somebody waits for the commit of what was not urgent."""
        if self.is_online and self.config.respool_flush is Flush.ALWAYS:
            self._syncs.request_sync(self)

    def _on_appended(
        self, log: PartitionLog, size: int, *, has_rolled: bool, is_urgent: bool = True
    ) -> None:
        self._watermarks.on_appended(log.log_end, size, awaits_followers=self.role.is_replicated)
        self.role.on_append(log.log_end)
        self._transient_errors.on_appended()
        flush = log.config.respool_flush
        if flush is Flush.ALWAYS:
            if is_urgent:
                self._syncs.request_sync(self)
            else:
                self._syncs.request_sync_within(self, NOT_URGENT_MS)
            return
        if flush is Flush.INTERVAL:
            self._syncs.request_sync_within(self, log.config.respool_flush_interval_ms)
        elif has_rolled:
            # Not promised; it only shortens a later recovery.
            self._syncs.request_sync(self)
        self.role.on_durable(log.log_end, self._watermarks.bytes_appended)

    def wait_for_commit(self, next_offset: Offset, listener: CommitListener) -> bool:
        """Tell the listener when all below `next_offset` is committed; False when it is already."""
        if not self.is_online:
            # It went offline after the append; nothing will move it on.
            raise self._unavailable()
        if self.role.leading().is_committed(next_offset):
            return False
        self._commits.wait_for(next_offset, listener)
        return True

    def wait_for_disk(self, next_offset: Offset, listener: CommitListener) -> bool:
        """Tell the listener when all below `next_offset` is committed and on the disk, whatever the topic promises.

        False when it is already.
        """
        if not self.is_online:
            raise self._unavailable()
        self.role.leading()
        if next_offset <= min(self.high_watermark, self.log.synced_end):
            return False
        self._syncs_awaited.wait_for(next_offset, listener)
        self._syncs.request_sync(self)
        return True

    def wait_for_deletion(self, log_start: Offset, listener: CommitListener) -> bool:
        """Tell the listener when all replicas have deleted what is before; False when they have."""
        if not self.is_online:
            raise self._unavailable()
        if log_start <= self.role.leading().low_watermark:
            return False
        self._deletions.wait_for(log_start, listener)
        return True

    def stop_waiting_for_deletion(self, listener: CommitListener) -> None:
        self._deletions.forget(listener)

    def add_fetch_waiter(self, waiter: FetchWaiter, read_to: ReadTo = ReadTo.COMMITTED) -> None:
        """Tell the waiter of bytes that become readable."""
        self._watermarks.add_waiter(waiter, read_to)

    def remove_fetch_waiter(self, waiter: FetchWaiter) -> None:
        self._watermarks.remove_waiter(waiter)

    def begin_sync(self) -> "PartitionSync | None":
        """What to sync now, or None when all is on the disk already."""
        if not self.is_online:
            return None
        if self.changing.locked():
            # Another thread may be cutting the log's end off.
            self._syncs.request_sync_within(self, NOT_URGENT_MS)
            return None
        try:
            pending = self.log.begin_sync()
        except StorageError as error:
            self.go_offline(error)
            return None
        if pending is None:
            # The log may have synced itself, as retention does before it removes files.
            self._on_synced(self.log.synced_end, self._watermarks.bytes_appended)
            return None
        return PartitionSync(self, pending, self._watermarks.bytes_appended)

    def finish_sync(self, sync: "PartitionSync", error: StorageError | None) -> None:
        if self._log is None:
            # Deleted or closed meanwhile; nobody waits any more.
            return
        if isinstance(error, HandlesExhausted):
            # Nothing was lost, and whoever waits may go on waiting.
            self.on_storage_error(error)
            self._syncs.request_sync_within(self, SYNC_AGAIN_MS)
            return
        if error is not None:
            # The kernel may have dropped the pages: a second sync would succeed and prove nothing.
            self.go_offline(error)
            return
        if not self.is_online:
            return
        log = self.log
        log.finish_sync(sync.pending)
        self._on_synced(log.synced_end, sync.bytes_appended)

    def on_storage_error(self, error: StorageError) -> None:
        """Something could not be read or written. Stop serving, unless it is a trouble that may pass."""
        if isinstance(error, HandlesExhausted):
            self._transient_errors.on_handles_exhausted(error)
            return
        self.go_offline(error)

    def go_offline(self, error: StorageError) -> None:
        """Stop serving; fail all who wait."""
        if self.failure is not None:
            return
        self.failure = error
        logger.error(
            "%s is offline: %s. Other partitions go on; %s.", self.name, error, self._way_out
        )
        self.fail_waiters(self._unavailable())
        self._on_offline(self)

    def give_up_log(self, error: StorageError) -> None:
        """As `go_offline`, and the log is not to be used before it is opened again: it may be half cut.

        Where the trouble passes, `HostedReplicas` opens it; else the next start does.
        """
        log, self._log = self._log, None
        if log is not None:
            log.abandon()
        self.go_offline(error)

    @property
    def _way_out(self) -> str:
        if self.awaits_opening:
            return "it is opened again when there is room"
        return "restart the broker once the disk is sound"

    def detach(self) -> PartitionLog | None:
        """Hand the log over for closing or deletion; whoever waits is told to look elsewhere."""
        log, self._log = self._log, None
        self.is_detached = True
        self.role.leader = self.role.follower = None
        self.fail_waiters(self._unavailable())
        return log

    def _unavailable(self) -> RequestError:
        if self.failure is not None:
            return StorageFailed(f"{self.name} is offline: {self.failure}")
        return NotLeader(f"{self.name} is no longer here")

    def _on_synced(self, synced_end: Offset, bytes_synced: int) -> None:
        self.role.on_durable(synced_end, bytes_synced)
        self._syncs_awaited.on_high_watermark(min(synced_end, self.high_watermark))


class PartitionSync:
    """A sync under way: which partition, what of its log, and the bytes it covers."""

    __slots__ = ("bytes_appended", "partition", "pending")

    def __init__(self, partition: Partition, pending: PendingSync, bytes_appended: int) -> None:
        self.partition = partition
        self.pending = pending
        self.bytes_appended = bytes_appended
