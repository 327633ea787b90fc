"""Group commit: one fdatasync for all waiting batches, off the event loop.

A partition that needs a sync enrols once; a worker syncs the files of all enrolled partitions in one call to another
thread, and notifies them. What is appended meanwhile enrols again and waits for the next call, so the busier the
broker, the more batches share one sync.
"""

import asyncio
import math
from collections.abc import Callable
from functools import partial

from respool.broker.partitions.partition import Partition
from respool.broker.partitions.partition_sync import PartitionSync
from respool.model.errors import StorageError
from respool.ports.offload import Offload


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
        # Told of what nobody foresaw.
        self._on_failure = on_failure
        self._stopwatch = stopwatch
        self._on_synced = on_synced
        self._workers_max = workers_max
        # Enrolled and not yet taken by a worker. A dict for its order.
        self._enrolled: dict[Partition, None] = {}
        # Taken by a worker. A partition is never with two: its syncs must finish in order.
        self._under_way: set[Partition] = set()
        self._workers: set[asyncio.Task[None]] = set()
        # How many of them will still look at what is enrolled. Not the number of tasks: one that has
        # looked for the last time is a task for another turn of the loop, and takes nobody any more.
        self._working = 0
        # Who waits until nothing of a partition is under way.
        self._settling: dict[Partition, list[asyncio.Future[None]]] = {}
        # Partitions with respool.flush=interval that have something to sync when the time comes.
        self._timers: dict[Partition, asyncio.TimerHandle] = {}

    def request_sync(self, partition: Partition) -> None:
        """Sync what the partition has appended so far, soon."""
        if partition in self._enrolled:
            return
        self._enrolled[partition] = None
        if partition not in self._under_way and self._working < self._workers_max:
            self._working += 1
            worker = asyncio.get_running_loop().create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    def request_sync_within(self, partition: Partition, delay_ms: int) -> None:
        """Sync what the partition will have appended by then; asking again before then adds nothing."""
        if partition not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[partition] = loop.call_later(delay_ms / 1000, self._on_interval, partition)

    def _on_interval(self, partition: Partition) -> None:
        del self._timers[partition]
        self.request_sync(partition)

    def stop_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def settle(self, partition: Partition) -> None:
        """Sync the partition no more, and return when nothing of it is under way: its files may go then."""
        self._enrolled.pop(partition, None)
        timer = self._timers.pop(partition, None)
        if timer is not None:
            timer.cancel()
        if partition in self._under_way:
            settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._settling.setdefault(partition, []).append(settled)
            await settled

    async def drain(self) -> None:
        """Return when everything enrolled before has been synced."""
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

    def _finish(self, syncs: list[PartitionSync], errors: list[StorageError | None]) -> None:
        # First of all: whatever happens to one of them, the others can be synced again.
        self._under_way.difference_update(sync.partition for sync in syncs)
        for sync, error in zip(syncs, errors, strict=True):
            try:
                sync.finish(error)
            except Exception as failure:  # noqa: BLE001 - one who waits must not cost the others their answer
                self._on_failure(failure)
            for settled in self._settling.pop(sync.partition, ()):
                # Who waited may have been cancelled meanwhile: a follower's fetcher, when the broker stops.
                if not settled.done():
                    settled.set_result(None)

    def _begin(self, free: list[Partition]) -> list[PartitionSync]:
        """Begin a fair share of what is enrolled, so that the other workers find some too."""
        share = math.ceil(len(free) / self._workers_max)
        syncs = []
        for partition in free[:share]:
            del self._enrolled[partition]
            sync = PartitionSync.begin(partition)
            if sync is not None:
                self._under_way.add(partition)
                syncs.append(sync)
        return syncs


def _sync_all(syncs: list[PartitionSync]) -> list[StorageError | None]:
    return [_sync(sync) for sync in syncs]


def _sync(sync: PartitionSync) -> StorageError | None:
    try:
        sync.pending.run()
    except StorageError as error:
        return error
    return None
