"""One partition as its leader sees it: a log, how far it is committed, and who waits for that.

State of a partition belongs here; others ask, they do not reach in. A storage error takes the partition offline: it
answers KAFKA_STORAGE_ERROR until the broker is restarted, and the broker lives. A full disk is not that: nothing was
written, readers go on, and producers succeed again as soon as there is room. Nor is the want of file handles: what
needs one gets the same answer, and is tried again.
"""

import logging
from typing import Protocol

from respool.broker.commit_waiters import CommitListener, CommitQueue, FetchWaiter
from respool.log.partition_log import Appended, PartitionLog, PendingSync, VerificationGuard
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
from respool.records.batch import BatchHeader, RecordBatch
from respool.records.markers import MARKER_BYTES, EndTransactionMarker

logger = logging.getLogger(__name__)

# How long what is not urgent waits for something else to be synced with.
NOT_URGENT_MS = 50

# When a sync could not be begun for want of a file handle.
SYNC_AGAIN_MS = 500
# More than any fetch waits for.
FETCH_BYTES_ENOUGH = 2**31


class SyncRequests(Protocol):
    """Where a partition asks for its log to be synced; `Flusher` does it."""

    def request_sync(self, partition: "Partition") -> None: ...

    def request_sync_within(self, partition: "Partition", delay_ms: int) -> None: ...

    async def settle(self, partition: "Partition") -> None: ...


class Partition:
    def __init__(
        self,
        *,
        name: TopicPartition,
        topic_id: TopicId,
        leader_epoch: LeaderEpoch,
        log: PartitionLog | StorageError,
        syncs: "SyncRequests",
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        # Why the partition is offline; None while it is not.
        self.failure: StorageError | None = None
        self.high_watermark = Offset(0)
        # How many bytes were ever appended since the start, and how many of them are below the
        # high watermark. Their growth is what waiting fetches count.
        self._bytes_appended = 0
        self._bytes_committed = 0
        # And how many were, when last all of them could be read by read_committed readers.
        self._bytes_stable = 0
        # Never going down, and never above the high watermark.
        self._stable_offset = Offset(0)
        self._commits = CommitQueue()
        # The same for those who need more than the topic promises: that it is on the disk.
        self._syncs_awaited = CommitQueue()
        # In the order they came, so that a simulated run is the same each time.
        self._fetches: dict[FetchWaiter, None] = {}
        # Those of read_committed readers.
        self._committed_fetches: dict[FetchWaiter, None] = {}
        self._syncs = syncs
        self._log: PartitionLog | None = None
        self._is_deleted = False
        # The last append found the disk full.
        self._is_short_of_room = False
        # Something found no file handle, and nothing was appended since.
        self._is_short_of_handles = False
        if isinstance(log, StorageError):
            self.failure = log
        else:
            self._log = log
            self.high_watermark = log.log_end
            # What a crash left is committed, and so are the ends of transactions in it.
            log.on_high_watermark(log.log_end)
            self._stable_offset = log.last_stable_offset(log.log_end)

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
    def log_start(self) -> Offset:
        log = self._log
        return log.log_start if log is not None else Offset(-1)

    @property
    def in_sync_replicas(self) -> int:
        """How many replicas have everything that is committed; alone, this broker is the only one."""
        return 1 if self.is_online else 0

    @property
    def last_stable_offset(self) -> Offset:
        """Where read_committed readers stop: everything before is committed, and no transaction there is open.

        From any thread; who asks for the high watermark after it finds that at least as high.
        """
        # Records may have been deleted that a transaction began with.
        return max(self._stable_offset, self.log_start)

    def check_leader_epoch(self, asked: int) -> None:
        """A client that says which leader it believes in must believe in this one (KIP-320)."""
        if asked in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        error = FencedLeaderEpoch if asked < self.leader_epoch else UnknownLeaderEpoch
        raise error(f"{self.name}: leader epoch {asked}, here {self.leader_epoch}")

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
        segments = log.segment_count
        try:
            appended = log.append(batch, leader_epoch=self.leader_epoch, now_ms=now_ms, guard=guard)
        except StorageError as error:
            raise self._refusal(error) from error
        if not appended.is_duplicate:
            self._on_appended(
                log,
                batch.header.size,
                has_rolled=log.segment_count != segments,
                is_urgent=is_urgent,
            )
        return appended

    def append_marker(
        self, marker: EndTransactionMarker, *, now_ms: int, needs_newer_epoch: bool = False
    ) -> Appended:
        """End a producer's transaction here; it has ended when the marker is committed.

        Raises:
            StorageFailed: the partition is offline, or the disk has no room.
            InvalidProducerEpoch, TransactionCoordinatorFenced: a newer one has been here; nothing was written.
        """
        log = self.log
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

    def give_back(self, guard: VerificationGuard) -> None:
        """The coordinator refused what `begin_verification` was asked for."""
        if self._log is not None:
            self._log.give_back(guard)

    def has_open_transaction(self, producer_id: int) -> bool:
        return self.log.has_open_transaction(producer_id)

    def _refusal(self, error: StorageError) -> RequestError:
        """What became of an append that failed; only a passing trouble leaves the partition online."""
        if isinstance(error, DiskFull):
            if not self._is_short_of_room:
                # Once, not for every try of every producer.
                logger.error("%s: appends are refused, the disk is full: %s", self.name, error)
                self._is_short_of_room = True
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
        self._bytes_appended += size
        if self._is_short_of_room:
            logger.info("%s: there is room again", self.name)
            self._is_short_of_room = False
        self._is_short_of_handles = False
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
        self._advance_to(log.log_end, self._bytes_appended)

    def wait_for_commit(self, next_offset: Offset, listener: CommitListener) -> bool:
        """Tell the listener when all below `next_offset` is committed; False when it is already."""
        if next_offset <= self.high_watermark:
            return False
        if not self.is_online:
            # It went offline after the append; nothing will move it on.
            raise self._unavailable()
        self._commits.wait_for(next_offset, listener)
        return True

    def wait_for_disk(self, next_offset: Offset, listener: CommitListener) -> bool:
        """Tell the listener when all below `next_offset` is committed and on the disk, whatever the topic promises.

        False when it is already.
        """
        if not self.is_online:
            raise self._unavailable()
        if next_offset <= min(self.high_watermark, self.log.synced_end):
            return False
        self._syncs_awaited.wait_for(next_offset, listener)
        self._syncs.request_sync(self)
        return True

    def add_fetch_waiter(self, waiter: FetchWaiter, *, read_committed: bool = False) -> None:
        """Tell the waiter of bytes that become readable: below the last stable offset, for `read_committed`."""
        (self._committed_fetches if read_committed else self._fetches)[waiter] = None

    def remove_fetch_waiter(self, waiter: FetchWaiter) -> None:
        self._fetches.pop(waiter, None)
        self._committed_fetches.pop(waiter, None)

    def begin_sync(self) -> "PartitionSync | None":
        """What to sync now, or None when all is on the disk already."""
        if not self.is_online:
            return None
        try:
            pending = self.log.begin_sync()
        except StorageError as error:
            self.go_offline(error)
            return None
        if pending is None:
            # The log may have synced itself, as retention does before it removes files.
            self._on_synced(self.log.synced_end, self._bytes_appended)
            return None
        return PartitionSync(self, pending, self._bytes_appended)

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
            if not self._is_short_of_handles:
                # Once, as with a full disk.
                logger.error(
                    "%s: %s. Raise the limit of open files (ulimit -n); it is tried again.",
                    self.name,
                    error,
                )
                self._is_short_of_handles = True
            return
        self.go_offline(error)

    def go_offline(self, error: StorageError) -> None:
        """Stop serving; fail all who wait."""
        if self.failure is not None:
            return
        self.failure = error
        logger.error(
            "%s is offline: %s. Other partitions go on; restart the broker once the disk is sound.",
            self.name,
            error,
        )
        self._fail_waiters(self._unavailable())

    def detach(self) -> PartitionLog | None:
        """Hand the log over for closing or deletion; whoever waits is told to look elsewhere."""
        log, self._log = self._log, None
        self._is_deleted = True
        self._fail_waiters(self._unavailable())
        return log

    def _unavailable(self) -> RequestError:
        if self.failure is not None:
            return StorageFailed(f"{self.name} is offline: {self.failure}")
        return NotLeader(f"{self.name} is no longer here")

    def _on_synced(self, synced_end: Offset, bytes_synced: int) -> None:
        self._advance_to(synced_end, bytes_synced)
        self._syncs_awaited.on_high_watermark(synced_end)

    def _advance_to(self, high_watermark: Offset, bytes_committed: int) -> None:
        # Never backwards: consumers may already have read up to the old value, for example
        # under respool.flush=os before the topic was switched to 'always'.
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        log = self.log
        log.on_high_watermark(high_watermark)
        stable_offset = log.last_stable_offset(high_watermark)
        grown = bytes_committed - self._bytes_committed
        self._bytes_committed = bytes_committed
        self._commits.on_high_watermark(high_watermark)
        if self._fetches:
            for waiter in tuple(self._fetches):
                waiter.on_bytes_committed(grown)
        if stable_offset > self._stable_offset:
            self._advance_stable_to(stable_offset)

    def _advance_stable_to(self, stable_offset: Offset) -> None:
        self._stable_offset = stable_offset
        grown = self._bytes_committed - self._bytes_stable
        if stable_offset == self.high_watermark:
            self._bytes_stable = self._bytes_committed
        else:
            # How many bytes lie below it is not known. What they are is worth a look in any case.
            grown = max(grown, FETCH_BYTES_ENOUGH)
        if self._committed_fetches:
            for waiter in tuple(self._committed_fetches):
                waiter.on_bytes_committed(grown)

    def _fail_waiters(self, error: RequestError) -> None:
        self._commits.on_failure(error)
        self._syncs_awaited.on_failure(error)
        for waiter in (*self._fetches, *self._committed_fetches):
            waiter.wake()


class PartitionSync:
    """A sync under way: which partition, what of its log, and the bytes it covers."""

    __slots__ = ("bytes_appended", "partition", "pending")

    def __init__(self, partition: Partition, pending: PendingSync, bytes_appended: int) -> None:
        self.partition = partition
        self.pending = pending
        self.bytes_appended = bytes_appended
