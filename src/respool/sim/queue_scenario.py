"""Share groups in a simulated run: who works, and that in the end each record is accepted or a dead letter."""

import asyncio
from collections.abc import Mapping
from typing import Any

from respool.model.ids import TopicPartition
from respool.model.retry.failure_headers import FailureRecord, UnreadableFailure, read_failure
from respool.ports.peers import PeerUnreachable
from respool.records.build import NewRecord
from respool.sim.checks.checker import FinalReads, check
from respool.sim.checks.history import History
from respool.sim.checks.queue_history import QueueHistory
from respool.sim.checks.queue_ledger import QueueGroup
from respool.sim.checks.queue_watch import QueueWatch
from respool.sim.clients.consumers import SimConsumer
from respool.sim.clients.final_reader import FinalReader
from respool.sim.clients.producers import IdempotentProducer
from respool.sim.clients.queue_worker import DiligentWorker, QueueObserver, QueueWorker
from respool.sim.clients.sim_client import OK, SimClient
from respool.sim.clients.transactional_producer import SimTransactionalProducer
from respool.sim.clients.workload import TRANSACTION_TIMEOUT_MS, WorkloadFactory
from respool.sim.machine import Machine
from respool.sim.runtime.simulated_sources import rng_of

TOPIC = "jobs"
DEAD_LETTERS = "dlq.jobs"
# How long the next progress of a group may take: the longest pause, locks, and the loading of what is stored.
PATIENCE_S = 60.0
# Batches of producers have at most as many records.
BATCH_RECORDS_MAX = 4


class JobProducer(IdempotentProducer):
    """Workers handle records more slowly than brokers take them."""

    in_flight_max = 1


def share_settings(seed: int) -> dict[str, int]:
    """Broker settings of a run with share groups: everything happens within seconds."""
    rng = rng_of("share settings", seed)
    return {
        "group_share_session_timeout_ms": 6_000,
        "group_share_heartbeat_interval_ms": 1_000,
        "group_share_record_lock_duration_ms": rng.choice((1_000, 3_000)),
        "group_share_partition_max_record_locks": rng.choice((5, 20, 200)),
        "share_coordinator_state_topic_partitions": rng.choice((1, 2)),
        "share_coordinator_snapshot_update_records_per_snapshot": rng.choice((0, 3, 20)),
        "share_coordinator_prune_interval_ms": rng.choice((500, 5_000)),
        "share_coordinator_cold_snapshot_interval_ms": rng.choice((1_000, 300_000)),
    }


def _draw_group(name: str, seed: int, *, is_ordered: bool) -> QueueGroup:
    rng = rng_of(f"group {name}", seed)
    limit = rng.choice((2, 3, 5))
    delays = rng.choice(((), (), (500,), (2_000, 6_000)))
    is_committed, is_from_earliest = rng.random() < 0.5, rng.random() < 0.5
    configs = {
        "share.delivery.count.limit": str(limit),
        "share.isolation.level": "read_committed" if is_committed else "read_uncommitted",
        "share.auto.offset.reset": "earliest" if is_from_earliest else "latest",
        "errors.deadletterqueue.topic.name": DEAD_LETTERS,
    }
    if delays:
        configs["respool.share.retry.delays.ms"] = ",".join(map(str, delays))
    if is_ordered:
        configs["respool.share.order"] = "key"
    return QueueGroup(
        name=name,
        configs=configs,
        delivery_limit=limit,
        lock_ms=share_settings(seed)["group_share_record_lock_duration_ms"],
        delays_ms=delays,
        is_ordered=is_ordered,
        is_committed=is_committed,
        is_from_earliest=is_from_earliest,
    )


class QueueScenario:
    def __init__(self, seed: int, *, machines: list[Machine], history: History) -> None:
        self._rng = rng = rng_of("queues", seed)
        self._machines = machines
        self.names = [TopicPartition(TOPIC, number) for number in range(rng.randint(1, 2))]
        self.groups = [_draw_group("workers", seed, is_ordered=False)]
        if rng.random() < 0.5:
            self.groups.append(_draw_group("in-order", seed, is_ordered=True))
        self.history = QueueHistory(history, groups=self.groups, early_ms=self._early_ms)
        self._watch = QueueWatch(
            machines=machines, history=history, batch_records_max=BATCH_RECORDS_MAX
        )

    def _early_ms(self) -> float:
        """How far the wall clocks of the brokers are, or were, apart: a new leader goes by its own."""
        clocks = [one.clock for one in self._machines]
        apart = max(one.latest_ms for one in clocks) - min(one.now_ms() for one in clocks)
        return float(max(0, apart))

    def topics(self) -> Mapping[str, tuple[int, Mapping[str, str]]]:
        return {
            TOPIC: (len(self.names), {}),
            DEAD_LETTERS: (1, {"errors.deadletterqueue.group.enable": "true"}),
        }

    def start(self, factory: WorkloadFactory) -> list[SimClient]:
        self._watch.start()
        rng, clients = self._rng, list[SimClient]()
        sending: dict[str, Any] = {"names": self.names, "history": self.history}
        clients.append(factory.new_client(JobProducer, "jobs", **sending))
        if rng.random() < 0.5:
            clients.append(
                factory.new_client(
                    SimTransactionalProducer,
                    "jobs-txn",
                    version=rng.choice((1, 2)),
                    timeout_ms=TRANSACTION_TIMEOUT_MS,
                    **sending,
                )
            )
        for group in self.groups:
            for number in range(rng.randint(1, 3)):
                name = f"{group.name}-{number}"
                clients.append(self._member(factory, QueueWorker, name, group))
        clients.append(self._observer(factory, "queue-observer"))
        return clients

    def _member(self, factory: WorkloadFactory, kind: Any, name: str, group: QueueGroup) -> Any:
        return factory.new_client(
            kind, name, group=group, topic=TOPIC, kept=self._watch.kept, history=self.history
        )

    def _observer(self, factory: WorkloadFactory, name: str) -> QueueObserver:
        return factory.new_client(
            QueueObserver, name, groups=self.groups, is_known=self._is_known, history=self.history
        )

    def _is_known(self, group: str) -> bool:
        """Every broker that runs knows the group's settings; one that starts reads them first."""
        brokers = [one.broker for one in self._machines if one.broker is not None]
        return bool(brokers) and all(group in one.image.group_configs for one in brokers)

    # -- in the end --------------------------------------------------------------------------------------------------

    async def finish(self, factory: WorkloadFactory, _: FinalReads) -> None:
        """After all faults: what is left is handled, and everything is read."""
        latest_ms = max(one.clock.latest_ms for one in self._machines)
        for machine in self._machines:
            machine.clock.skew_ms += max(0, latest_ms - machine.clock.now_ms())
        final = await self._read_topic(factory)
        workers = [
            self._member(factory, DiligentWorker, f"{group.name}-last", group)
            for group in self.groups
            if group.name in self.history.configured
        ]
        tasks = [one.start() for one in workers]
        observer = self._observer(factory, "queues-final")
        await observer.process.spawn(self._drain(observer, final))
        for worker in workers:
            worker.is_winding_down = True
        late = (await asyncio.wait(tasks, timeout=PATIENCE_S))[1] if tasks else set()
        for task in late:
            self.history.violate("D", "a worker of a share group cannot finish")
            task.cancel()
        await asyncio.gather(*tasks)
        await self._watch.stop()
        self._watch.look()
        letters = await self._read_letters(factory)
        keys = {value: sent.record.key for value, sent in self.history.sends.items()}
        check(self.history, final, {})
        for ledger in self.history.ledgers.values():
            group = ledger.group
            shown = final.committed if group.is_committed else final.uncommitted
            if group.name in self.history.configured:
                ledger.check(shown, keys, letters)

    async def _read_topic(self, factory: WorkloadFactory) -> FinalReads:
        final = FinalReads()
        reader = FinalReader(
            loop=factory.loop,
            history=self.history,
            factory=factory,
            names=self.names,
            patience_s=TRANSACTION_TIMEOUT_MS / 1_000 + 20,
        )
        for is_committed, reads in ((False, final.uncommitted), (True, final.committed)):
            client = factory.new_client(
                SimConsumer,
                f"queue-final-{is_committed}",
                names=self.names,
                is_committed=is_committed,
                history=self.history,
            )
            reads.update(await client.process.spawn(reader.read_to_the_end(client)))
        return final

    async def _drain(self, observer: QueueObserver, final: FinalReads) -> None:
        """Q4: each group comes to the end of the log."""
        loop, before, until_s = asyncio.get_running_loop(), "", loop_s() + PATIENCE_S
        while left := await self._left(observer, final):
            if left != before:
                before, until_s = left, loop.time() + PATIENCE_S
            elif loop.time() > until_s:
                inside = "; ".join(f"{name}: {one}" for name, one in self._watch.states().items())
                self.history.violate("Q4", f"{left}, and nothing moves: {inside}")
                break
            await observer.pause()
        await observer.close()

    async def _left(self, observer: QueueObserver, final: FinalReads) -> str:
        """What the groups have not finished yet; empty: nothing."""
        for group in self.groups:
            if group.name not in self.history.configured:
                continue
            try:
                found = await observer.look(group)
            except PeerUnreachable:
                found = None
            if found is None:
                return f"{group.name} cannot be described"
            for name in self.names:
                start, lag = found.get(name, (-1, -1))
                if lag or start < max(final.uncommitted.get(name, {}), default=0):
                    return f"{group.name} begins {name} at {start} with a lag of {lag}"
        return ""

    async def _read_letters(self, factory: WorkloadFactory) -> list[FailureRecord]:
        reader = factory.new_client(
            SimConsumer, "letters", names=(), is_committed=False, history=self.history
        )
        task = reader.process.spawn(self._read_all(reader))
        records: list[NewRecord] = await task
        letters = []
        for record in records:
            try:
                letter = read_failure(record.headers)
            except UnreadableFailure as error:
                self.history.violate("Q10", f"a letter cannot be read: {error}")
                continue
            self._check_letter(letter, record)
            letters.append(letter)
        return letters

    def _check_letter(self, letter: FailureRecord, record: NewRecord) -> None:
        """It has the record's content."""
        self.history.counts["queues: letters"] += 1
        name = TopicPartition(letter.topic, letter.partition)
        value = self.history.seen.get(name, {}).get(letter.offset)
        if value is not None and record.value != value:
            self.history.violate(
                "Q10", f"the letter of {name}@{letter.offset} has {record.value!r}, not {value!r}"
            )

    async def _read_all(self, reader: SimConsumer) -> list[NewRecord]:
        found: list[NewRecord] = []
        for number in range(self._letter_partitions()):
            found += await self._read_partition(reader, TopicPartition(DEAD_LETTERS, number))
        await reader.close()
        return found

    def _letter_partitions(self) -> int:
        """The operator may have added some."""
        counts = [
            len(one.broker.image.topics[DEAD_LETTERS].partitions)
            for one in self._machines
            if one.broker is not None
        ]
        return max(counts)

    async def _read_partition(self, reader: SimConsumer, name: TopicPartition) -> list[NewRecord]:
        found: list[NewRecord] = []
        position, until_s = 0, loop_s() + PATIENCE_S
        while True:
            try:
                polled = await reader.poll(name, position)
            except PeerUnreachable:
                continue
            if polled.code == OK:
                found += [record for _, record in polled.records]
                position = polled.next_offset
                if position >= polled.high_watermark:
                    break
            if loop_s() > until_s:
                self.history.violate("D", f"{name} does not come to its end")
                break
            await reader.pause()
        return found


def loop_s() -> float:
    return asyncio.get_running_loop().time()
