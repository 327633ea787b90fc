"""A topic that is shrunk, grown and retired in a simulated run: who writes and reads it, and what must be true.

In half of the runs a group reads all of it, and brokers promise it each key's order for as long as it takes. In the
others partitions are taken away with what is in them, and begin again.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from respool.model.ids import TopicPartition
from respool.sim.checks.checker import FinalReads, check
from respool.sim.checks.cluster_observer import ClusterObserver
from respool.sim.checks.history import GroupView, History
from respool.sim.checks.layout_history import LayoutHistory, ShownOrder
from respool.sim.checks.layout_watch import LayoutWatch
from respool.sim.clients.final_reader import FinalReader
from respool.sim.clients.layout_clients import (
    LayoutOperator,
    LayoutProducer,
    LayoutReader,
    SteadyMember,
)
from respool.sim.clients.sim_client import SimClient
from respool.sim.clients.transactional_producer import SimTransactionalProducer
from respool.sim.clients.workload import TRANSACTION_TIMEOUT_MS, Workload, WorkloadFactory
from respool.sim.machine import Machine
from respool.sim.runtime.simulated_sources import rng_of

TOPIC = "trips"
GROUP = "travellers"
# Longer than a run, and than its clocks jump.
FOR_EVER_MS = 10**12
# How long transactions may stay open after the faults.
PATIENCE_S = 120.0
COUNTS = ((4, 2, 1), (6, 3, 2, 1), (6, 3, 1))
RETIRE_ODDS = 0.4


class LayoutScenario:
    def __init__(
        self, seed: int, *, machines: list[Machine], history: History, observer: ClusterObserver
    ) -> None:
        self._rng = rng = rng_of("layouts", seed)
        self._counts = rng.choice(COUNTS)
        self._retires = rng.random() < RETIRE_ODDS
        # Partitions that are taken away with their records are not waited for in order.
        self._barrier_ms = rng.choice((0, 1_000, 5_000)) if self._retires else FOR_EVER_MS
        self.names = [TopicPartition(TOPIC, number) for number in range(self._counts[0])]
        self.history = LayoutHistory(history, partitions_max=self._counts[0], forgets=self._retires)
        self._watch = LayoutWatch(TOPIC, machines=machines, observer=observer, history=self.history)
        self._watching: asyncio.Task[None] | None = None
        self._view = GroupView()
        self._workload = Workload()

    def topics(self) -> Mapping[str, tuple[int, Mapping[str, str]]]:
        """The topics by name, with their partitions and settings."""
        return {
            TOPIC: (self._counts[0], {"respool.shrink.barrier.ms": str(self._barrier_ms)}),
        }

    def start(self, factory: WorkloadFactory) -> list[SimClient]:
        """Watch from now on, and return the clients."""
        self._watching = asyncio.ensure_future(self._watch.watch())
        rng = self._rng
        shared: dict[str, Any] = {"names": self.names, "history": self.history}
        clients: list[SimClient] = [
            factory.new_client(LayoutProducer, f"trip-{number}", **shared)
            for number in range(rng.randint(1, 2))
        ]
        for number in range(0 if self._retires else rng.randint(0, 2)):
            producer = factory.new_client(
                SimTransactionalProducer,
                f"trip-txn-{number}",
                version=rng.choice((1, 2)),
                timeout_ms=TRANSACTION_TIMEOUT_MS,
                **shared,
            )
            clients.append(producer)
            self._workload.transactional.append(producer)
        clients.append(
            factory.new_client(
                LayoutReader,
                "trip-reader",
                is_committed=rng.random() < 0.5,
                forgets=self._retires,
                **shared,
            )
        )
        member = None
        if not self._retires:
            member = factory.new_client(
                SteadyMember,
                "trip-member",
                is_committed=True,
                group=GROUP,
                view=self._view,
                order=ShownOrder(self.history),
                **shared,
            )
            clients.append(member)
        clients.append(
            factory.new_client(
                LayoutOperator,
                "trip-operator",
                topic=TOPIC,
                counts=self._counts,
                retires=self._retires,
                # A group that has not joined yet is not waited for.
                may_begin=lambda: member is None or member.has_joined,
                history=self.history,
            )
        )
        return clients

    async def finish(self, factory: WorkloadFactory, _: FinalReads) -> None:
        """After all faults: the last change is complete, and nothing is lost, doubled or reordered."""
        await self._watch.check_complete()
        self._watch.look()
        assert self._watching is not None
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        image = self._watch.image()
        if image is None:
            return
        reader = FinalReader(
            loop=factory.loop,
            history=self.history,
            factory=factory.with_history(self.history),
            names=[TopicPartition(TOPIC, one) for one in range(len(image.partitions))],
            patience_s=PATIENCE_S,
        )
        final = await reader.read_all(self._workload)
        if self._retires:
            self._forget()
        check(self.history, final, {} if self._retires else {GROUP: self._view})

    def _forget(self) -> None:
        """What was in partitions that were taken away may be gone, on purpose."""
        smallest = self._counts[-1]
        self.history.read_committed.clear()
        self.history.read_uncommitted.clear()
        for sent in self.history.sends.values():
            if sent.name.partition >= smallest:
                sent.is_durable = False
