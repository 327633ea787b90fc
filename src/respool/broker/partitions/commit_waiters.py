"""Waiting for a partition: acks=all requests and fetches for its high watermark, acks=1 requests for its leader's disk.

The partition notifies them when one of these moves, or when it fails. Nothing polls.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from respool.broker.partitions.role import PartitionRole
from respool.log.partition_log import PartitionLog
from respool.model.errors import RequestError
from respool.model.ids import Offset


class CommitListener(Protocol):
    """Notified once per `wait_for` call."""

    def on_committed(self) -> None: ...

    def on_failed(self, error: RequestError) -> None: ...


class CommitQueue:
    """Appends waiting until everything below their `next_offset` is committed."""

    def __init__(self) -> None:
        # In append order, so nearly always by offset. A retried duplicate may be queued behind a
        # later offset; it then waits for that one too, which only costs it time.
        self._waiting: deque[tuple[Offset, CommitListener]] = deque()

    def wait_for(self, next_offset: Offset, listener: CommitListener) -> None:
        self._waiting.append((next_offset, listener))

    def forget(self, listener: CommitListener) -> None:
        """Remove the listener; do nothing if it was notified already."""
        for place, (_, one) in enumerate(self._waiting):
            if one is listener:
                del self._waiting[place]
                return

    def on_high_watermark(self, high_watermark: Offset) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1].on_committed()

    def on_failure(self, error: RequestError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, listener in waiting:
            listener.on_failed(error)


class FetchWaiter:
    """One fetch that waits until enough bytes are committed in its partitions, or something fails.

    Bytes are counted as they are committed; nothing is read again until there is enough.
    """

    def __init__(self, *, bytes_wanted: int) -> None:
        self._bytes_wanted = bytes_wanted
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_bytes_committed(self, count: int) -> None:
        self._bytes_wanted -= count
        if self._bytes_wanted <= 0:
            self.wake()

    def wake(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)


class WaitedFor(Protocol):
    """The part of `Partition` that decides whether there is anything to wait for."""

    role: PartitionRole

    @property
    def is_online(self) -> bool: ...

    @property
    def log(self) -> PartitionLog: ...

    @property
    def high_watermark(self) -> Offset: ...

    def unavailable(self) -> RequestError: ...


class PartitionWaiters:
    """The waiters of a partition: for commits, for the leader, for the disk, and for deletions on all replicas."""

    def __init__(self, partition: WaitedFor, *, request_sync: Callable[[], None]) -> None:
        self._partition = partition
        self._request_sync = request_sync
        self._commits = CommitQueue()
        # For the leader's own replica, whatever the others have.
        self._own = CommitQueue()
        # For waiters that need more durability than the topic's `respool.flush` promises.
        self._syncs = CommitQueue()
        self._deletions = CommitQueue()

    def wait_for_commit(self, next_offset: Offset, listener: CommitListener) -> bool:
        """Notify the listener once everything below `next_offset` is committed. False: it is committed already."""
        partition = self._partition
        if not partition.is_online:
            # It went offline after the append, so the high watermark no longer advances.
            raise partition.unavailable()
        if partition.role.leading().is_committed(next_offset):
            return False
        self._commits.wait_for(next_offset, listener)
        return True

    def is_durable_here(self, next_offset: Offset) -> bool:
        """True if everything below `next_offset` is durable on this broker, which leads; else see `wait_for_leader`."""
        leader = self._partition.role.leader
        return leader is not None and next_offset <= leader.durable_end

    def wait_for_leader(self, next_offset: Offset, listener: CommitListener) -> bool:
        """Notify the listener once everything below `next_offset` is durable on this broker, which leads.

        By then the high watermark has moved, unless it waits for other replicas. False: it is durable here already, as
        it always is unless `respool.flush` is `always`.
        """
        partition = self._partition
        if not partition.is_online:
            raise partition.unavailable()
        if next_offset <= partition.role.leading().durable_end:
            return False
        self._own.wait_for(next_offset, listener)
        return True

    def wait_for_disk(self, next_offset: Offset, listener: CommitListener) -> bool:
        """Notify the listener once everything below `next_offset` is committed and on disk.

        This holds whatever `respool.flush` is. False: it is committed and on disk already.
        """
        partition = self._partition
        if not partition.is_online:
            raise partition.unavailable()
        partition.role.leading()
        if next_offset <= min(partition.high_watermark, partition.log.synced_end):
            return False
        self._syncs.wait_for(next_offset, listener)
        self._request_sync()
        return True

    def wait_for_deletion(self, log_start: Offset, listener: CommitListener) -> bool:
        """Notify the listener once all replicas have deleted what is below `log_start`. False: they already have."""
        partition = self._partition
        if not partition.is_online:
            raise partition.unavailable()
        if log_start <= partition.role.leading().low_watermark:
            return False
        self._deletions.wait_for(log_start, listener)
        return True

    def stop_waiting_for_deletion(self, listener: CommitListener) -> None:
        self._deletions.forget(listener)

    def on_progress(self, high_watermark: Offset, *, synced_end: Offset) -> None:
        self._commits.on_high_watermark(high_watermark)
        self._syncs.on_high_watermark(min(synced_end, high_watermark))

    def on_synced(self, synced_end: Offset, *, high_watermark: Offset) -> None:
        self._syncs.on_high_watermark(min(synced_end, high_watermark))

    def on_leader_durable(self, durable_end: Offset) -> None:
        self._own.on_high_watermark(durable_end)

    def on_low_watermark(self, low_watermark: Offset) -> None:
        self._deletions.on_high_watermark(low_watermark)

    def fail(self, error: RequestError) -> None:
        for queue in (self._commits, self._own, self._syncs, self._deletions):
            queue.on_failure(error)


async def when_committed(waiters: PartitionWaiters, next_offset: Offset) -> None:
    """Return once everything below `next_offset` is committed.

    Raises:
        RequestError: it will not be committed here: the partition failed, was deleted, or is led elsewhere.
    """
    committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if waiters.wait_for_commit(next_offset, FutureListener(committed)):
        await committed


async def when_replicas_agree(waiters: PartitionWaiters) -> None:
    """Return once no replica that may be elected has records that this leader lacks.

    A replica reports its log start with its first fetch in this leader's epoch. By then it has truncated what
    it had more. Until all have done so, the low watermark is unknown.

    Raises:
        RequestError: the partition failed, was deleted, or is led elsewhere.
    """
    agreed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if waiters.wait_for_deletion(Offset(0), FutureListener(agreed)):
        await agreed


class FutureListener:
    __slots__ = ("_future",)

    def __init__(self, future: "asyncio.Future[None]") -> None:
        self._future = future

    def on_committed(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def on_failed(self, error: RequestError) -> None:
        if not self._future.done():
            self._future.set_exception(error)
