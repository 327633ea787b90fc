"""Periodic measurements: gauges of the broker's state, and the delay of its event loop."""

import asyncio
from dataclasses import dataclass
from time import perf_counter
from typing import NoReturn

from respool.broker.broker import Broker
from respool.broker.metrics.turns import in_turns
from respool.broker.partitions.partition import Partition
from respool.ports.metrics import Metrics

# Partitions counted per turn of the event loop: less than a millisecond.
PARTITIONS_PER_TURN = 250
LOOP_DELAY_EVERY_S = 0.1
# In seconds. The loop's own timers have a resolution of a millisecond.
LOOP_DELAY_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Gauges:
    def __init__(self, metrics: Metrics) -> None:
        self._partitions = metrics.gauge("respool_partitions", "Partitions held.")
        self._offline = metrics.gauge(
            "respool_partitions_offline", "Partitions that do not serve: their disk or log failed."
        )
        self._led = metrics.gauge("respool_partitions_led", "Partitions led here.")
        self._under_replicated = metrics.gauge(
            "respool_partitions_under_replicated",
            "Partitions led here of which not every replica is in sync.",
        )
        self._under_min_isr = metrics.gauge(
            "respool_partitions_under_min_isr",
            "Partitions led here that refuse acks=all: too few replicas are in sync.",
        )
        self._controls = metrics.gauge("respool_controller", "1 where this is the controller.")
        self._log_bytes = metrics.gauge("respool_log_bytes", "Bytes of record batches held.")
        self._memory = metrics.gauge(
            "respool_memory_used_bytes", "Memory for requests and replies under way."
        )

    async def report(self, broker: Broker) -> None:
        """Update all gauges. Partitions are counted in slices, since there may be very many."""
        total = _Total()
        async for turn in in_turns(broker.partitions, PARTITIONS_PER_TURN):
            for partition in turn:
                total.add(partition)
        self._partitions.set(total.partitions)
        self._offline.set(total.partitions - total.online)
        self._led.set(total.led)
        self._under_replicated.set(total.under_replicated)
        self._under_min_isr.set(total.under_min_isr)
        self._controls.set(broker.may_act() and broker.image.controller == broker.id)
        self._log_bytes.set(total.log_bytes)
        self._memory.set(broker.memory.used)


@dataclass(slots=True)
class _Total:
    partitions: int = 0
    online: int = 0
    led: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    log_bytes: int = 0

    def add(self, partition: Partition) -> None:
        self.partitions += 1
        if not partition.is_online:
            return
        self.online += 1
        self.log_bytes += partition.log.size_bytes
        leader = partition.leader
        if leader is not None:
            self.led += 1
            image = leader.image
            self.under_replicated += len(image.isr) < len(image.replicas)
            self.under_min_isr += not leader.is_min_isr_met


class LoopDelay:
    """Measures the event loop's delay: how late a timer fires that has to wait for other work."""

    def __init__(self, metrics: Metrics) -> None:
        self._delay = metrics.histogram(
            "respool_loop_delay_seconds",
            "How late a timer of the broker's loop is called; looked at ten times a second.",
            buckets=LOOP_DELAY_BOUNDS,
        )

    async def run(self) -> NoReturn:
        while True:
            began = perf_counter()
            await asyncio.sleep(LOOP_DELAY_EVERY_S)
            # A test may have advanced the loop's time; then the timer is early.
            self._delay.observe(max(0.0, perf_counter() - began - LOOP_DELAY_EVERY_S))
