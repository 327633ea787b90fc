"""A topic with delays in a simulated run: who writes and reads it, and what must be true in the end."""

import asyncio
from collections.abc import Mapping
from typing import Any

from respool.model.ids import TopicPartition
from respool.ports.peers import PeerUnreachable
from respool.sim.checks.checker import FinalReads
from respool.sim.checks.delay_history import DelayHistory
from respool.sim.checks.delay_watch import PATIENCE_S, DelayWatch
from respool.sim.checks.history import History
from respool.sim.clients.delay_producers import (
    LEVELS,
    DelayingProducer,
    DelayingTransactionalProducer,
)
from respool.sim.clients.delay_readers import DelayReader
from respool.sim.clients.sim_client import SimClient
from respool.sim.clients.workload import TRANSACTION_TIMEOUT_MS, WorkloadFactory
from respool.sim.machine import Machine
from respool.sim.runtime.simulated_sources import rng_of

TOPIC = "alarms"


class DelayScenario:
    def __init__(self, seed: int, *, machines: list[Machine], history: History) -> None:
        self._rng = rng = rng_of("delays", seed)
        self.history = DelayHistory(history)
        self.names = [TopicPartition(TOPIC, number) for number in range(rng.randint(1, 2))]
        self._watch = DelayWatch(machines=machines, names=self.names, history=self.history)
        self._watching: asyncio.Task[None] | None = None

    def topics(self) -> Mapping[str, tuple[int, Mapping[str, str]]]:
        """The topics by name, with their partitions and settings."""
        return {TOPIC: (len(self.names), self._configs())}

    def _configs(self) -> Mapping[str, str]:
        rng = self._rng
        found = {
            "respool.delay": "true",
            "respool.delay.levels": LEVELS,
            "message.timestamp.type": rng.choice(("CreateTime", "LogAppendTime", "LogAppendTime")),
        }
        if rng.random() < 0.5:
            found |= {"segment.bytes": "1024", "retention.bytes": rng.choice(("0", "3000"))}
        return found

    def start(self, factory: WorkloadFactory) -> list[SimClient]:
        """Watch from now on, and return the clients."""
        self._watching = asyncio.ensure_future(self._watch.watch())
        rng, clients = self._rng, list[SimClient]()
        shared: dict[str, Any] = {"names": self.names, "history": self.history}
        for number in range(rng.randint(1, 2)):
            clients.append(factory.new_client(DelayingProducer, f"delay-{number}", **shared))
        for number in range(rng.randint(0, 1)):
            clients.append(
                factory.new_client(
                    DelayingTransactionalProducer,
                    f"delay-txn-{number}",
                    version=rng.choice((1, 2)),
                    timeout_ms=TRANSACTION_TIMEOUT_MS,
                    **shared,
                )
            )
        clients.append(
            factory.new_client(
                DelayReader, "delay-reader", is_committed=rng.random() < 0.5, **shared
            )
        )
        return clients

    async def finish(self, factory: WorkloadFactory, _: FinalReads) -> None:
        """After all faults: what is due is delivered, and shown to a new reader."""
        await self._watch.check()
        assert self._watching is not None
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        reader = factory.new_client(
            DelayReader, "delay-final", names=self.names, history=self.history, is_committed=True
        )
        await reader.process.spawn(self._read_everything(reader))

    async def _read_everything(self, reader: DelayReader) -> None:
        for name in self.names:
            log = self._watch.logs[name]
            seen, start = await self._read(reader, name)
            if not log.has_gap:
                expected = log.visible()
                for offset in sorted(expected.keys() ^ seen.keys()):
                    text = "not shown" if offset in expected else "shown, and should not be"
                    if offset >= start:
                        self.history.violate("D1", f"{name}@{offset} is {text}")
        await reader.close()

    async def _read(
        self, reader: DelayReader, name: TopicPartition
    ) -> tuple[dict[int, bytes], int]:
        """The records that a reader sees, and the offset from which on retention had left everything."""
        seen: dict[int, bytes] = {}
        loop = asyncio.get_running_loop()
        position, reached, until_s = 0, -1, 0.0
        is_end, start = False, None
        while not is_end or start is None:
            if position > reached:
                reached, until_s = position, loop.time() + PATIENCE_S
            elif loop.time() > until_s:
                self.history.violate("D1", f"{name} does not come to its end from {position}")
                break
            try:
                position, found, is_end = await reader.read_on(name, position)
                start = await reader.start_of(name) if is_end else None
            except PeerUnreachable:
                continue
            seen |= found
        return seen, start or 0
