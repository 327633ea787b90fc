"""Machines small enough to see through, a counter per name, and a world for the coordinators that run them."""

import asyncio
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from uuid import UUID

from respool.broker.coordinators.runtime import CoordinatorRuntime
from respool.broker.partitions.flusher import Flusher
from respool.broker.partitions.partition import Partition
from respool.broker.steady_clock import SteadyClock
from respool.coordination.decision import (
    Answer,
    CancelTimer,
    CoordinatorRecord,
    Decision,
    RecordsProducer,
    SetTimer,
    Ticket,
    TimerKey,
)
from respool.log.partition_log import PartitionLog
from respool.model.ids import (
    NO_PRODUCER_ID,
    Offset,
    ProducerId,
    TopicId,
    TopicPartition,
)
from respool.model.topic_config import TopicConfig
from respool.sim.disk.simulated_disk import SimDisk
from support.inline_offload import InlineOffload
from support.lone_leader import lead_alone
from support.sim_clock import SimClock


@dataclass
class Add:
    name: bytes


@dataclass
class Look:
    name: bytes


@dataclass
class Park:
    """Answered by the timer, `after_ms` later."""

    name: bytes
    after_ms: int


class CountingMachine:
    writing_requests: tuple[type, ...] = (Add,)

    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.parked: dict[bytes, Ticket] = {}
        self.is_loaded = False

    def decide(self, request: Any, *, ticket: Ticket, now_ms: int, wall_ms: int) -> Decision:
        if isinstance(request, Park):
            self.parked[request.name] = ticket
            return Decision(
                timers=(SetTimer(key=(request.name,), due_at_ms=now_ms + request.after_ms),)
            )
        count = self.counts.get(request.name, 0)
        if isinstance(request, Look):
            return Decision(answers=(Answer(ticket=ticket, reply=count),))
        return Decision(
            records=(CoordinatorRecord(key=request.name, value=bytes([count + 1])),),
            answers=(Answer(ticket=ticket, reply=count + 1),),
            timers=(CancelTimer(key=(request.name,)),),
        )

    def on_timer(self, key: TimerKey, *, now_ms: int, wall_ms: int) -> Decision:
        name = key[0]
        assert isinstance(name, bytes)
        return Decision(answers=(Answer(ticket=self.parked.pop(name), reply="time is up"),))

    def on_loaded(self, *, now_ms: int, wall_ms: int) -> Decision:
        self.is_loaded = True
        return Decision()

    def replay(self, record: CoordinatorRecord) -> None:
        if record.value is None:
            self.counts.pop(record.key, None)
        else:
            self.counts[record.key] = record.value[0]


@dataclass
class AddInTransaction:
    name: bytes
    producer: RecordsProducer


@dataclass
class AddAndDo:
    """Add, and have an effect when that is committed."""

    name: bytes
    effect: str


@dataclass
class Do:
    """Only have an effect."""

    effect: str


class TransactionalCounter(CountingMachine):
    """Counts what is committed; what producers add in transactions waits for their ends."""

    def __init__(self, effects_at_start: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.pending: dict[int, list[CoordinatorRecord]] = {}
        self._effects_at_start = effects_at_start

    def decide(self, request: Any, *, ticket: Ticket, now_ms: int, wall_ms: int) -> Decision:
        if isinstance(request, AddInTransaction):
            decision = super().decide(
                Add(request.name), ticket=ticket, now_ms=now_ms, wall_ms=wall_ms
            )
            return replace(decision, producer=request.producer)
        if isinstance(request, AddAndDo):
            decision = super().decide(
                Add(request.name), ticket=ticket, now_ms=now_ms, wall_ms=wall_ms
            )
            return replace(decision, effects=(request.effect,))
        if isinstance(request, Do):
            return Decision(effects=(request.effect,))
        return super().decide(request, ticket=ticket, now_ms=now_ms, wall_ms=wall_ms)

    def on_loaded(self, *, now_ms: int, wall_ms: int) -> Decision:
        super().on_loaded(now_ms=now_ms, wall_ms=wall_ms)
        return Decision(effects=self._effects_at_start)

    def replay(
        self, record: CoordinatorRecord, *, producer_id: ProducerId = NO_PRODUCER_ID
    ) -> None:
        if producer_id == NO_PRODUCER_ID:
            super().replay(record)
        else:
            self.pending.setdefault(producer_id, []).append(record)

    def replay_end_transaction(self, producer_id: ProducerId, *, is_committed: bool) -> None:
        for record in self.pending.pop(producer_id, ()):
            if is_committed:
                super().replay(record)


class World:
    def __init__(self) -> None:
        self.disk = SimDisk(Random(1))
        self.disk.make_folder("groups-0")
        self.clock = SimClock()
        self.offload = InlineOffload()
        self.partition = self.open_partition()

    def open_partition(self) -> Partition:
        log = PartitionLog.open(
            disk=self.disk,
            folder="groups-0",
            config=TopicConfig(),
            now_ms=0,
            log_start=Offset(0),
            recovery_point=Offset(0),
            clean=False,
            producer_expiration_ms=1000,
        )
        partition = Partition(
            name=TopicPartition("groups", 0),
            topic_id=TopicId(UUID(int=1)),
            log=log,
            syncs=Flusher(self.offload, workers_max=1),
        )
        return lead_alone(partition)

    def runtime(self) -> CoordinatorRuntime:
        return CoordinatorRuntime(
            partition=self.partition,
            machine=CountingMachine(),
            clock=SteadyClock(self.clock),
            offload=self.offload,
        )

    async def loaded_runtime(self) -> CoordinatorRuntime:
        runtime = self.runtime()
        await runtime.load()
        return runtime

    async def transactional_runtime(
        self, machine: TransactionalCounter | None = None, **callbacks: Any
    ) -> tuple[CoordinatorRuntime, TransactionalCounter]:
        machine = machine or TransactionalCounter()
        runtime = CoordinatorRuntime(
            partition=self.partition,
            machine=machine,
            clock=SteadyClock(self.clock),
            offload=self.offload,
            **callbacks,
        )
        await runtime.load()
        return runtime, machine


async def turn() -> None:
    for _ in range(6):
        await asyncio.sleep(0)
