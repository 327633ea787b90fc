"""A group with retries at exactly-once in a simulated run: every message is handled or buried, once."""

import asyncio
from collections import Counter
from collections.abc import Mapping

from respool.model.ids import TopicPartition
from respool.model.retry.failure_headers import read_failure
from respool.model.retry.group_topics import dead_letter_topic, retry_topic
from respool.ports.peers import PeerUnreachable
from respool.sim.checks.checker import FinalReads
from respool.sim.checks.delay_history import DelayHistory
from respool.sim.checks.history import History
from respool.sim.clients.consumers import SimConsumer
from respool.sim.clients.delay_readers import DelayReader
from respool.sim.clients.retrying_member import DONE, GROUP, RetryingMember, place_text
from respool.sim.clients.sim_client import OK, SimClient
from respool.sim.clients.workload import TRANSACTION_TIMEOUT_MS, WorkloadFactory
from respool.sim.machine import Machine
from respool.sim.runtime.simulated_sources import rng_of

SOURCE = TopicPartition("fares", 0)
# How long the next message may take.
PATIENCE_S = 120.0


class RetryScenario:
    def __init__(self, seed: int, *, machines: list[Machine], history: History) -> None:
        self._rng = rng_of("retries", seed)
        self._machines = machines
        # Its transactions are not those that the other checks expect.
        self._main = history
        self._history = DelayHistory(history)
        self._version = self._rng.choice((1, 2))

    def topics(self) -> Mapping[str, tuple[int, Mapping[str, str]]]:
        return {
            DONE: (1, {}),
            retry_topic(GROUP): (1, {"respool.delay": "true"}),
            dead_letter_topic(GROUP): (1, {}),
        }

    def start(self, factory: WorkloadFactory) -> list[SimClient]:
        return [self._member(factory, "retrying")]

    def _member(self, factory: WorkloadFactory, reader: str) -> RetryingMember:
        """Always with one transactional id: a new member fences the one before."""
        return factory.new_client(
            RetryingMember,
            "retrying",
            source=SOURCE,
            reader=self._reader(factory, f"{reader}-reader"),
            version=self._version,
            timeout_ms=TRANSACTION_TIMEOUT_MS,
            # Of its own: both number what they send from 1 on.
            history=DelayHistory(self._main),
        )

    def _reader(self, factory: WorkloadFactory, name: str) -> SimConsumer:
        return factory.new_client(
            DelayReader, name, names=(), is_committed=True, history=self._history
        )

    # -- in the end --------------------------------------------------------------------------------------------------

    async def finish(self, factory: WorkloadFactory, final: FinalReads) -> None:
        member = self._member(factory, "last")
        member.failure_odds = 0.0
        expected = Counter(
            f"{SOURCE.topic}-{SOURCE.partition}@{offset}".encode()
            for offset in final.committed.get(SOURCE, {})
        )
        # The clocks of some brokers were set back.
        latest_ms = max(one.clock.latest_ms for one in self._machines)
        for machine in self._machines:
            machine.clock.skew_ms += max(0, latest_ms - machine.clock.now_ms())
        task = member.start()
        found = await self._wait_for(factory, expected)
        member.is_winding_down = True
        await asyncio.wait_for(task, timeout=PATIENCE_S)
        for place in sorted(expected.keys() | found.keys()):
            if expected[place] != found[place]:
                self._history.violate(
                    "R1", f"{place.decode()} was handled or buried {found[place]} times"
                )

    async def _wait_for(self, factory: WorkloadFactory, expected: Counter[bytes]) -> Counter[bytes]:
        reader = self._reader(factory, "retries-final")
        task = reader.process.spawn(self._read_until(reader, expected))
        found: Counter[bytes] = await task
        await reader.close()
        return found

    async def _read_until(self, reader: SimConsumer, expected: Counter[bytes]) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        positions = {
            TopicPartition(DONE, 0): 0,
            TopicPartition(dead_letter_topic(GROUP), 0): 0,
        }
        loop, count = asyncio.get_running_loop(), -1
        until_s = 0.0
        while expected - found:
            if found.total() > count:
                count, until_s = found.total(), loop.time() + PATIENCE_S
            elif loop.time() > until_s:
                break
            for name, position in positions.items():
                try:
                    polled = await reader.poll(name, position, wait_ms=200)
                except PeerUnreachable:
                    continue
                if polled.code == OK:
                    positions[name] = polled.next_offset
                    for _, record in polled.records:
                        is_buried = name.topic != DONE
                        place = (
                            place_text(read_failure(record.headers)) if is_buried else record.value
                        )
                        found[place or b""] += 1
                        self._history.counts[
                            "retries: buried" if is_buried else "retries: done"
                        ] += 1
                else:
                    await reader.pause()
        return found
