"""One partition as its leader sees it: a log, how far it is committed, and who waits for that.

State of a partition belongs here; others ask, they do not reach in. A storage error takes the partition offline: it
answers KAFKA_STORAGE_ERROR until the broker is restarted, and the broker lives. A full disk is not that: nothing was
written, readers go on, and producers succeed again as soon as there is room.
"""

import logging
from typing import Protocol

from respool.broker.commit_waiters import CommitListener, CommitQueue, FetchWaiter
from respool.log.partition_log import Appended, PartitionLog, PendingSync
from respool.model.errors import (
    DiskFull,
    FencedLeaderEpoch,
    NotLeader,
    RequestError,
    StorageError,
    StorageFailed,
    UnknownLeaderEpoch,
)
from respool.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicId, TopicPartition
from respool.model.topic_config import Flush, TopicConfig
from respool.records.batch import RecordBatch

logger = logging.getLogger(__name__)


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
        self._commits = CommitQueue()
        self._fetches: set[FetchWaiter] = set()
        self._syncs = syncs
        self._log: PartitionLog | None = None
        self._is_deleted = False
        if isinstance(log, StorageError):
            self.failure = log
        else:
            self._log = log
            self.high_watermark = log.log_end

    @property
    def log(self) -> PartitionLog:
        """The log to read from.

        Raises:
            StorageFailed: the partition is offline.
            NotLeader: the partition was deleted while the caller waited.
        """
        if self._log is None or self.failure is not None:
            raise self._unavailable()
        return self._log

    @property
    def config(self) -> TopicConfig:
        return self.log.config

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
        return self._log.log_start if self._log is not None else Offset(-1)

    @property
    def in_sync_replicas(self) -> int:
        """How many replicas have everything that is committed; alone, this broker is the only one."""
        return 1 if self.is_online else 0

    @property
    def last_stable_offset(self) -> Offset:
        """Where read_committed readers stop."""
        return self.high_watermark

    def check_leader_epoch(self, asked: int) -> None:
        """A client that says which leader it believes in must believe in this one (KIP-320)."""
        if asked in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        error = FencedLeaderEpoch if asked < self.leader_epoch else UnknownLeaderEpoch
        raise error(f"{self.name}: leader epoch {asked}, here {self.leader_epoch}")

    def append(self, batch: RecordBatch, *, now_ms: int) -> Appended:
        """Append a checked batch and start what makes it durable.

        Raises:
            StorageFailed: the partition is offline, or the disk has no room.
            RequestError: the producer's sequence or epoch does not fit; nothing was written.
        """
        log = self.log
        segments = log.segment_count
        try:
            appended = log.append(batch, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except DiskFull as error:
            logger.error("%s: append refused, the disk is full: %s", self.name, error)
            raise StorageFailed(f"{self.name}: the broker's disk is full") from error
        except StorageError as error:
            self.go_offline(error)
            raise self._unavailable() from error
        if appended.is_duplicate:
            return appended
        self._bytes_appended += batch.header.size
        flush = log.config.respool_flush
        if flush is Flush.ALWAYS:
            self._syncs.request_sync(self)
            return appended
        if flush is Flush.INTERVAL:
            self._syncs.request_sync_within(self, log.config.respool_flush_interval_ms)
        elif log.segment_count != segments:
            # Not promised; it only shortens a later recovery.
            self._syncs.request_sync(self)
        self._advance_to(log.log_end, self._bytes_appended)
        return appended

    def wait_for_commit(self, next_offset: Offset, listener: CommitListener) -> bool:
        """Tell the listener when all below `next_offset` is committed; False when it is already."""
        if next_offset <= self.high_watermark:
            return False
        if not self.is_online:
            # It went offline after the append; nothing will move it on.
            raise self._unavailable()
        self._commits.wait_for(next_offset, listener)
        return True

    def add_fetch_waiter(self, waiter: FetchWaiter) -> None:
        self._fetches.add(waiter)

    def remove_fetch_waiter(self, waiter: FetchWaiter) -> None:
        self._fetches.discard(waiter)

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
            self._advance_to(self.log.synced_end, self._bytes_appended)
            return None
        return PartitionSync(self, pending, self._bytes_appended)

    def finish_sync(self, sync: "PartitionSync", error: StorageError | None) -> None:
        if self._log is None:
            # Deleted or closed meanwhile; nobody waits any more.
            return
        if error is not None:
            # The kernel may have dropped the pages: a second sync would succeed and prove nothing.
            self.go_offline(error)
            return
        if not self.is_online:
            return
        log = self.log
        log.finish_sync(sync.pending)
        self._advance_to(log.synced_end, sync.bytes_appended)

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

    def _advance_to(self, high_watermark: Offset, bytes_committed: int) -> None:
        # Never backwards: consumers may already have read up to the old value, for example
        # under respool.flush=os before the topic was switched to 'always'.
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        grown = bytes_committed - self._bytes_committed
        self._bytes_committed = bytes_committed
        self._commits.on_high_watermark(high_watermark)
        if self._fetches:
            for waiter in tuple(self._fetches):
                waiter.on_bytes_committed(grown)

    def _fail_waiters(self, error: RequestError) -> None:
        self._commits.on_failure(error)
        for waiter in tuple(self._fetches):
            waiter.wake()


class PartitionSync:
    """A sync under way: which partition, what of its log, and the bytes it covers."""

    __slots__ = ("bytes_appended", "partition", "pending")

    def __init__(self, partition: Partition, pending: PendingSync, bytes_appended: int) -> None:
        self.partition = partition
        self.pending = pending
        self.bytes_appended = bytes_appended
