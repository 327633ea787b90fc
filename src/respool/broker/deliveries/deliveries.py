"""Delivers delayed records: one worker for each partition of a topic with `respool.delay`."""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from respool.broker.deliveries.delivery_worker import DeliveryWorker
from respool.broker.partitions.partition import Partition
from respool.model.errors import RequestError, StorageError
from respool.model.ids import Offset
from respool.model.server_settings import DelaySettings
from respool.model.topic_config import TopicConfig
from respool.pacing.token_bucket import TokenBucket
from respool.ports.clock import Clock
from respool.ports.disk import Disk
from respool.ports.metrics import Family, Metrics
from respool.ports.offload import Offload
from respool.timing.entries import ENTRY_MEMORY_BYTES
from respool.timing.zones import zones_version

logger = logging.getLogger(__name__)

# In seconds: from a timer's resolution to a backlog after downtime.
LATENESS_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 10.0, 60.0, 600.0)
_NO_LIMIT = 1_000_000


class Deliveries:
    def __init__(
        self,
        *,
        settings: DelaySettings,
        clock: Clock,
        disk: Disk,
        offload: Offload,
        metrics: Metrics,
        may_act: Callable[[], bool],
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
    ) -> None:
        self.clock = clock
        self.disk = disk
        self.offload = offload
        self._settings = settings
        self._may_act = may_act
        self._spawn = spawn
        self._workers: dict[Partition, tuple[DeliveryWorker, asyncio.Task[None]]] = {}
        limit = settings.delay_deliveries_per_s_max
        self._rate = TokenBucket(rate_per_s=limit) if limit else None
        self._lateness = metrics.histogram(
            "respool_delay_lateness_seconds",
            "How late delayed records were delivered.",
            buckets=LATENESS_BOUNDS,
        )
        metrics.add_collector(self._collect)

    # -- partitions --------------------------------------------------------------------------------------------------

    def on_opened(self, partition: Partition, config: TopicConfig) -> None:
        """A partition was opened here, in any role."""
        if not config.respool_delay or partition in self._workers:
            return
        if not self._workers:
            logger.info("schedules use the time zones of %s", zones_version())
        for one in [one for one in self._workers if one.is_detached]:
            # A worker exists if an earlier attempt to open the log failed.
            del self._workers[one]
        worker = DeliveryWorker(partition, self)
        self._workers[partition] = worker, self._spawn(worker.run())

    async def on_closed(self, partition: Partition) -> None:
        """Stop using the partition's files, which are about to be moved."""
        found = self._workers.pop(partition, None)
        if found is not None:
            _, task = found
            task.cancel()
            await asyncio.wait([task])

    def on_role(self, partition: Partition) -> None:
        """This broker has become the partition's leader, or has ceased to be."""
        worker = self.worker(partition)
        if worker is not None:
            worker.wake()

    async def stop(self) -> None:
        """Write checkpoints, so that the next start reads little of the logs."""
        workers = [worker for worker, _ in self._workers.values()]
        await asyncio.gather(*self.cancel(), return_exceptions=True)
        await asyncio.gather(*(worker.checkpoint() for worker in workers))

    def cancel(self) -> "list[asyncio.Task[None]]":
        """Cancel the workers, as at the end of the process; return their tasks."""
        tasks = [task for _, task in self._workers.values()]
        self._workers.clear()
        for one in tasks:
            one.cancel()
        return tasks

    # -- for producers and retention ---------------------------------------------------------------------------------

    def pending_count(self, partition: Partition) -> int:
        """The number of delayed records that wait in the partition, as far as known."""
        worker = self.worker(partition)
        return 0 if worker is None else worker.pending_count

    def next_due_ms(self, partition: Partition) -> int | None:
        worker = self.worker(partition)
        if worker is None or worker.delays is None:
            return None
        return worker.delays.pending.next_due_ms()

    def carried_bytes(self, partition: Partition) -> int:
        """Bytes of the log that do not count towards `retention.bytes`."""
        worker = self.worker(partition)
        if worker is None or worker.delays is None:
            return 0
        return worker.delays.pending.carried_bytes

    def deletable_to(self, partition: Partition) -> Offset:
        """Retention may delete records below this offset: none of them waits any more.

        A follower deletes what its leader has deleted, and a mirror what its source has.
        """
        worker = self.worker(partition)
        if worker is None:
            return partition.log_start
        return max(worker.carried_to, partition.log_start)

    async def carry(self, partition: Partition, new_start: Offset) -> None:
        """Append records that wait below `new_start` again, if this broker leads; afterwards the originals may be
        deleted.
        """
        worker = self.worker(partition)
        if worker is None:
            return
        try:
            await worker.carry_to(new_start)
        except (RequestError, StorageError) as error:
            logger.warning(
                "%s: delayed records could not be copied to the log's end yet, so no record before %d is deleted: %s",
                partition.name,
                new_start,
                error,
            )

    async def count_waiting(self, partition: Partition, end: Offset) -> int:
        """How many delayed records lie below an offset; 0 if the partition has none, or they are not known."""
        worker = self.worker(partition)
        if worker is None:
            return 0
        try:
            return await worker.count_waiting(end)
        except (RequestError, StorageError):
            return 0

    # -- for workers: DeliveryWorld ------------------------------------------------------------------------------------

    @property
    def entries_max(self) -> int:
        memory = self._settings.delay_memory_bytes_max
        return memory // (ENTRY_MEMORY_BYTES * max(1, len(self._workers)))

    def may_act(self) -> bool:
        return self._may_act()

    def deliver_max(self) -> int:
        if self._rate is None:
            return _NO_LIMIT
        return max(0, int(self._rate.available(now_ms=self.clock.monotonic_ms())))

    def on_delivered(self, due_ms: list[int], *, now_ms: int) -> None:
        if self._rate is not None:
            self._rate.take(len(due_ms), now_ms=self.clock.monotonic_ms())
        for one in due_ms:
            self._lateness.observe(max(0, now_ms - one) / 1000)

    # ----------------------------------------------------------------------------------------------------------------

    def worker(self, partition: Partition) -> DeliveryWorker | None:
        """The partition's worker; None if its topic has no delays."""
        found = self._workers.get(partition)
        return None if found is None else found[0]

    def _collect(self) -> Iterator[Family]:
        workers = [worker for worker, _ in self._workers.values() if worker.partition.is_leading]
        due = [one for worker in workers if (one := self.next_due_ms(worker.partition)) is not None]
        yield Family(
            "respool_delay_pending",
            "gauge",
            "Delayed records that wait in partitions led here; cancelled ones count until their time.",
            (),
            [((), sum(worker.pending_count for worker in workers))],
        )
        left_s = (min(due) - self.clock.now_ms()) / 1000 if due else math.inf
        yield Family(
            "respool_delay_next_due_seconds",
            "gauge",
            "Time until the next delayed record is due, or a little less; negative: it is late; infinite: none waits.",
            (),
            [((), left_s)],
        )
