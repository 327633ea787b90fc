"""Delivers one partition's delayed records: waits for commits and for the clock, and appends copies.

```
      committed records            the clock
             |                         |
             v                         v
     +--------------- a pass ---------------+
     | a job in another thread: feed, take  |    partition_delays.py
     | on the event loop: still leading?    |
     | then append                          |
     +--------------------------------------+
```
The event loop is the log's only writer, so nothing changes between the check of the role and the append. Copies that
were not appended are due again. A pass holds the worker's lock; retention takes it, too.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from respool.broker.deliveries.partition_delays import Job, PartitionDelays
from respool.broker.partitions.commit_waiters import FetchWaiter, when_committed
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.watermarks import ReadTo
from respool.broker.run_uncancelled import run_uncancelled
from respool.model.errors import RequestError, StorageError
from respool.model.ids import Offset
from respool.pacing.rate_limited_log import RateLimitedLog
from respool.ports.clock import Clock
from respool.ports.disk import Disk
from respool.ports.offload import Offload
from respool.replication.leader import Leader
from respool.timing.wheel import WheelCorrupt

logger = logging.getLogger(__name__)

T = TypeVar("T")

# The clock is read at least this often: it may be adjusted, and timers fire a little early.
LOOK_S_MAX = 1.0
LOOK_S_MIN = 0.001
# Committed records are collected for this long, unless a record is due.
FEED_PAUSE_S = 0.005
RETRY_S = 1.0
CHECKPOINT_MS = 60_000
# How long retention waits until carried records are committed; after that it retries later.
COMMIT_S_MAX = 10.0
# Limit for carried records that are not stable yet: each takes memory.
CARRIED_TOGETHER = 100_000


class DeliveryWorld(Protocol):
    """The shared state of a broker's workers: `Deliveries`."""

    clock: Clock
    disk: Disk
    offload: Offload

    @property
    def entries_max(self) -> int:
        """How many entries the partition may keep in memory."""

    def may_act(self) -> bool: ...

    def deliver_max(self) -> int:
        """How many records may be delivered now."""

    def on_delivered(self, due_ms: list[int], *, now_ms: int) -> None: ...


class CommitSignal(FetchWaiter):
    """Wakes a worker when any record becomes stable."""

    def __init__(self, event: asyncio.Event) -> None:
        super().__init__(bytes_wanted=0)
        self._event = event

    def wake(self) -> None:
        self._event.set()


class DeliveryWorker:
    def __init__(self, partition: Partition, world: DeliveryWorld) -> None:
        self.partition = partition
        self._world = world
        self._event = asyncio.Event()
        self.lock = asyncio.Lock()
        # None until the first pass, and after an error: it is rebuilt from the log.
        self.delays: PartitionDelays | None = None
        # The leader role for which copies of earlier leaders were read.
        self._leader: Leader | None = None
        # Carried records may be missing in the log, so they must be checked again.
        self._is_doubtful = False
        # The log end after the last carried record.
        self._carried_end = Offset(0)
        # On the leader: everything below it was carried, so retention may delete it.
        self.carried_to = Offset(0)
        self._wake_at_ms: int | None = None
        self._checkpoint_at_ms = world.clock.monotonic_ms() + CHECKPOINT_MS
        self._complaints = RateLimitedLog(logger)

    def wake(self) -> None:
        """The partition's role has changed, or began again."""
        self._event.set()

    @property
    def pending_count(self) -> int:
        return 0 if self.delays is None else len(self.delays.pending)

    async def run(self) -> None:
        """Run until it is cancelled, or the partition is closed."""
        signal = CommitSignal(self._event)
        self.partition.add_fetch_waiter(signal, ReadTo.STABLE)
        try:
            while not self.partition.is_detached:
                self._event.clear()
                if await self.run_pass():
                    await asyncio.sleep(0)
                else:
                    await self._wait()
        finally:
            self.partition.remove_fetch_waiter(signal)

    async def _wait(self) -> None:
        """Wait until records are committed or due, or a checkpoint is due."""
        while not self._event.is_set():
            left_s, checkpoint_s = self._seconds_left(), self._seconds_to_checkpoint()
            if left_s <= 0 or checkpoint_s <= 0:
                return
            wait_s = min(left_s, checkpoint_s)
            try:
                async with asyncio.timeout(None if wait_s == math.inf else wait_s):
                    await self._event.wait()
            except TimeoutError:
                continue
        await asyncio.sleep(max(0.0, min(self._seconds_left(), FEED_PAUSE_S)))

    def _seconds_left(self) -> float:
        """How long to wait; 0 or less: a record is due."""
        if self._wake_at_ms is None:
            return math.inf
        left_ms = self._wake_at_ms - self._world.clock.now_ms()
        return 0.0 if left_ms <= 0 else max(LOOK_S_MIN, min(left_ms / 1000, LOOK_S_MAX))

    def _seconds_to_checkpoint(self) -> float:
        """Also when the topic is idle: a start after a kill reads the log from the last checkpoint."""
        partition = self.partition
        if not partition.is_online or not partition.has_log:
            return math.inf
        if self.delays is None or not self.delays.is_changed:
            return math.inf
        return (self._checkpoint_at_ms - self._world.clock.monotonic_ms()) / 1000

    async def run_pass(self) -> bool:
        """Feed committed records, and deliver due ones. Return True if there is more to do at once."""
        async with self.lock:
            return await self._try_pass()

    async def _try_pass(self) -> bool:
        partition = self.partition
        if not partition.is_online or not partition.has_log:
            self._wake_at_ms = self._later()
            return False
        try:
            return await self._pass()
        except (StorageError, RequestError, WheelCorrupt) as error:
            # The log has changed, or the disk failed or is full: the state can be rebuilt from the log.
            self.delays = self._leader = None
            self._wake_at_ms = self._later()
            self._complaints.log(
                logging.WARNING,
                "%s: the index of delayed records is read again: %s",
                partition.name,
                error,
                now_s=self._world.clock.monotonic_ms() / 1000,
            )
            return False

    def _later(self) -> int:
        return self._world.clock.now_ms() + int(RETRY_S * 1000)

    async def _pass(self) -> bool:
        partition, world = self.partition, self._world
        delays = await self._opened()
        leader = self._leading()
        if self._leader is not None and (leader is not self._leader or self._is_doubtful):
            self._leader, self._is_doubtful = None, False
            await self._run(delays.end_leading)
        stable_end, now_ms = partition.last_stable_offset, world.clock.now_ms()
        if leader is None:
            # A leader may deliver later, once its lease is renewed or its epoch's first offset is committed.
            self._wake_at_ms = None if partition.leader is None else self._later()
            job = await self._run(partial(delays.follow, stable_end, now_ms=now_ms))
        else:
            deliver_max = world.deliver_max()
            job = await self._run(
                partial(
                    delays.lead,
                    stable_end,
                    now_ms=now_ms,
                    is_new=self._leader is None,
                    deliver_max=deliver_max,
                )
            )
            if job.is_fed:
                self._leader = leader
            self._wake_at_ms = job.wake_at_ms
            if deliver_max == 0 and self._wake_at_ms is not None:
                self._wake_at_ms = max(self._wake_at_ms, now_ms + 10)
            await self._append(delays, leader, job)
        await self._maybe_checkpoint(delays)
        return job.is_busy

    async def _opened(self) -> PartitionDelays:
        partition, world = self.partition, self._world
        log = partition.log
        delays = self.delays
        if delays is not None and delays.log is log and delays.fits_log:
            delays.pending.limit_memory(world.entries_max)
            return delays
        self._leader = self.delays = None
        opened = partial(
            PartitionDelays,
            world.disk,
            log.folder,
            log,
            now_ms=world.clock.now_ms(),
            entries_max=world.entries_max,
        )
        delays = await self._run(opened)
        if not delays.fits_log:
            await self._run(delays.restart)
            delays = await self._run(opened)
        self.delays = delays
        return delays

    def _leading(self) -> Leader | None:
        """The leader role, if it may deliver: all deliveries of earlier leaders are committed, and so known."""
        partition = self.partition
        leader = partition.leader
        if leader is None or partition.config.respool_mirror or not self._world.may_act():
            return None
        return leader if partition.high_watermark >= leader.first_offset_of_epoch else None

    async def _append(self, delays: PartitionDelays, leader: Leader, job: Job) -> None:
        for number, one in enumerate(job.batches):
            now_ms = self._world.clock.now_ms()
            try:
                if self._leading() is not leader or self.partition.log is not delays.log:
                    await self._run(partial(delays.put_back, job.batches[number:]))
                    return
                self.partition.append(one.batch, now_ms=now_ms)
            except RequestError:
                await self._run(partial(delays.put_back, job.batches[number:]))
                raise
            self._world.on_delivered([due.due_ms for due in one.due], now_ms=now_ms)

    async def _maybe_checkpoint(self, delays: PartitionDelays) -> None:
        now_ms = self._world.clock.monotonic_ms()
        if now_ms >= self._checkpoint_at_ms and delays.is_changed:
            self._checkpoint_at_ms = now_ms + CHECKPOINT_MS
            await self._run(delays.write_checkpoint)

    async def checkpoint(self) -> None:
        """Before a stop."""
        async with self.lock:
            if self.delays is not None and self.delays.is_changed:
                try:
                    await self._run(self.delays.write_checkpoint)
                except StorageError as error:
                    # Without it, the next start scans more of the log.
                    logger.warning("%s: no checkpoint of delays: %s", self.partition.name, error)

    async def _run(self, work: Callable[[], T]) -> T:
        return await run_uncancelled(self._world.offload.run(work))

    # -- retention ---------------------------------------------------------------------------------------------------

    async def carry_to(self, new_start: Offset) -> bool:
        """Append records that wait below `new_start` again, and commit them. Return False if that must wait.

        Raises:
            RequestError, StorageError: it could not be appended or committed.
        """
        begin = self.partition.log.local_start
        try:
            while begin < new_start:
                async with self.lock:
                    end = await self._carry(begin, new_start)
                if end is None or not await self._wait_for_carried():
                    return False
                begin = end
            async with asyncio.timeout(COMMIT_S_MAX):
                await when_committed(self.partition.waiters, self._carried_end)
        except TimeoutError:
            return False
        except (RequestError, StorageError):
            # Prepared records that were not appended must be prepared again.
            self._is_doubtful = True
            raise
        self.carried_to = new_start
        return True

    async def _wait_for_carried(self) -> bool:
        """Wait while many carried records are not stable yet. False: an open transaction holds them up."""
        until_ms = self._world.clock.monotonic_ms() + COMMIT_S_MAX * 1000
        while self.delays is not None and self.delays.pending.carrying > CARRIED_TOGETHER:
            if self._world.clock.monotonic_ms() >= until_ms:
                return False
            await asyncio.sleep(FEED_PAUSE_S)
        return True

    async def _carry(self, begin: Offset, new_start: Offset) -> Offset | None:
        """Carry a chunk, and return where it ends. None: it must wait."""
        delays, leader = self.delays, self._leader
        if delays is None or leader is None or self._leading() is not leader:
            return None
        if delays.pending.scanned_to < new_start:
            return None
        now_ms = self._world.clock.now_ms()
        carried = await self._run(partial(delays.carry, begin, new_start, now_ms=now_ms))
        if carried is None:
            return None
        batches, end = carried
        if self._leading() is not leader:
            self._is_doubtful = True
            return None
        for batch in batches:
            appended = self.partition.append(batch, now_ms=now_ms)
            self._carried_end = Offset(appended.last_offset + 1)
        return end

    async def count_waiting(self, end: Offset) -> int:
        """How many records below `end` wait here; 0 if that is not known."""
        async with self.lock:
            delays = self.delays
            if delays is None:
                return 0
            now_ms = self._world.clock.now_ms()
            return await self._run(partial(delays.count_waiting, end, now_ms=now_ms))
