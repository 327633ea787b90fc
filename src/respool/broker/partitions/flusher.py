"""Group commit: one fdatasync for all waiting batches, off the event loop.

A partition that needs a sync enrols once. A worker syncs the files of all enrolled partitions in one call to another
thread, and notifies them. Partitions that append in the meantime enrol again and wait for the next call, so the busier
the broker, the more batches share one sync.
"""

import asyncio
import math
from collections.abc import Callable
from functools import partial

from respool.broker.partitions.partition import Partition
from respool.broker.partitions.sync_requests import NOT_URGENT_MS
from respool.log.partition_log import PendingSync
from respool.model.errors import HandlesExhausted, StorageError
from respool.ports.offload import Offload

# The delay before retrying a sync that failed to start because of too many open files.
RETRY_MS = 500


def _raise(error: Exception) -> None:
    raise error


class Flusher:
    def __init__(
        self,
        offload: Offload,
        *,
        workers_max: int,
        on_failure: Callable[[Exception], None] = _raise,
        stopwatch: Callable[[], float] = lambda: 0.0,
        on_synced: Callable[[float], None] = lambda _: None,
    ) -> None:
        """`on_synced` gets the duration of each sync, in seconds of the stopwatch."""
        self._offload = offload
        # Called with unexpected exceptions.
        self._on_failure = on_failure
        self._stopwatch = stopwatch
        self._on_synced = on_synced
        self._workers_max = workers_max
        # Enrolled, and not yet taken by a worker. A dict, to keep their order.
        self._enrolled: dict[Partition, None] = {}
        # Taken by a worker. Two workers never have the same partition: its syncs must finish in order.
        self._under_way: set[Partition] = set()
        self._workers: set[asyncio.Task[None]] = set()
        # The number of workers that will check again for enrolled partitions. This is less than the number of tasks: a
        # worker that has checked for the last time remains a task for one more turn of the loop.
        self._working = 0
        # Callers that wait until no sync of a partition is in flight.
        self._draining: dict[Partition, list[asyncio.Future[None]]] = {}
        # Partitions with respool.flush=interval that have something to sync at the end of the interval.
        self._timers: dict[Partition, asyncio.TimerHandle] = {}

    def request_sync(self, partition: Partition) -> None:
        """Sync soon what the partition has appended so far."""
        if partition in self._enrolled:
            return
        self._enrolled[partition] = None
        if partition not in self._under_way and self._working < self._workers_max:
            self._working += 1
            worker = asyncio.get_running_loop().create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    def request_sync_within(self, partition: Partition, delay_ms: int) -> None:
        """Sync after at most `delay_ms` what the partition has appended by then."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(partition)
        if timer is not None:
            # The interval may have been shortened since.
            if timer.when() <= loop.time() + delay_ms / 1000:
                return
            timer.cancel()
        self._timers[partition] = loop.call_later(delay_ms / 1000, self._on_interval, partition)

    def _on_interval(self, partition: Partition) -> None:
        del self._timers[partition]
        self.request_sync(partition)

    def stop_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def drain_partition(self, partition: Partition) -> None:
        """Cancel the partition's syncs, and return when none is in flight: its files may be deleted then."""
        self._enrolled.pop(partition, None)
        timer = self._timers.pop(partition, None)
        if timer is not None:
            timer.cancel()
        if partition in self._under_way:
            drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._draining.setdefault(partition, []).append(drained)
            await drained

    async def drain(self) -> None:
        """Return when everything that was enrolled has been synced."""
        while self._workers:
            await asyncio.gather(*self._workers)

    async def _work(self) -> None:
        try:
            while free := [one for one in self._enrolled if one not in self._under_way]:
                syncs = self._begin(free)
                if not syncs:
                    continue
                began = self._stopwatch()
                errors = await self._offload.run(partial(_sync_all, syncs))
                self._on_synced(self._stopwatch() - began)
                self._finish(syncs, errors)
        finally:
            self._working -= 1

    def _finish(self, syncs: "list[PartitionSync]", errors: list[StorageError | None]) -> None:
        # This comes first: whatever happens to one partition, the others can be synced again.
        self._under_way.difference_update(sync.partition for sync in syncs)
        for sync, error in zip(syncs, errors, strict=True):
            try:
                sync.finish(error)
            except Exception as failure:  # noqa: BLE001 - one who waits must not cost the others their answer
                self._on_failure(failure)
            for drained in self._draining.pop(sync.partition, ()):
                # The waiting task may have been cancelled: a follower's fetcher, when the broker stops.
                if not drained.done():
                    drained.set_result(None)

    def _begin(self, free: list[Partition]) -> "list[PartitionSync]":
        """Begin a fair share of the enrolled partitions, and leave some for the other workers."""
        share = math.ceil(len(free) / self._workers_max)
        syncs = []
        for partition in free[:share]:
            del self._enrolled[partition]
            sync = PartitionSync.begin(partition)
            if sync is not None:
                self._under_way.add(partition)
                syncs.append(sync)
        return syncs


class PartitionSync:
    """One sync in flight: its partition, the range of the log that it covers, and the number of bytes.

    It begins and finishes on the event loop, and runs in another thread.
    """

    __slots__ = ("bytes_appended", "partition", "pending")

    def __init__(self, partition: Partition, pending: PendingSync, bytes_appended: int) -> None:
        self.partition = partition
        self.pending = pending
        self.bytes_appended = bytes_appended

    @classmethod
    def begin(cls, partition: Partition) -> "PartitionSync | None":
        """Return what to sync now; None if everything is on disk."""
        if not partition.is_online:
            return None
        if partition.changing.locked():
            # Another thread may be truncating the log.
            partition.syncs.request_sync_within(partition, NOT_URGENT_MS)
            return None
        try:
            pending = partition.log.begin_sync()
        except StorageError as error:
            partition.go_offline(error)
            return None
        if pending is None:
            # The log may have synced itself, as retention does before it removes files.
            partition.on_synced(partition.log.synced_end, partition.bytes_appended)
            return None
        return cls(partition, pending, partition.bytes_appended)

    def finish(self, error: StorageError | None) -> None:
        """The work in the other thread is done, or failed with `error`."""
        partition = self.partition
        if not partition.has_log:
            # The partition was deleted, closed or taken offline since, so no request is waiting.
            return
        if isinstance(error, HandlesExhausted):
            # Nothing was lost, so waiting requests continue to wait.
            partition.on_storage_error(error)
            partition.syncs.request_sync_within(partition, RETRY_MS)
            return
        if error is not None:
            # The kernel may have dropped the pages: a second sync would succeed and prove nothing.
            partition.go_offline(error)
            return
        if not partition.is_online:
            return
        log = partition.log
        log.finish_sync(self.pending)
        partition.on_synced(log.synced_end, self.bytes_appended)


def _sync_all(syncs: list[PartitionSync]) -> list[StorageError | None]:
    return [_sync(sync) for sync in syncs]


def _sync(sync: PartitionSync) -> StorageError | None:
    try:
        sync.pending.run()
    except StorageError as error:
        return error
    return None
