"""The runtime of coordinators, with a machine small enough to see through: a counter per name."""

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

import pytest

from respool.broker.flusher import Flusher
from respool.broker.partition import Partition
from respool.broker.shard import Shard
from respool.coordination.decision import (
    Answer,
    CancelTimer,
    CoordinatorRecord,
    Decision,
    SetTimer,
    Ticket,
    TimerKey,
)
from respool.log.partition_log import PartitionLog
from respool.model.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from respool.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from respool.model.topic_config import TopicConfig
from respool.sim.clock import SimClock
from respool.sim.disk import SimDisk
from respool.sim.offload import InlineOffload


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
    def __init__(self) -> None:
        self.counts: dict[bytes, int] = {}
        self.parked: dict[bytes, Ticket] = {}
        self.is_loaded = False

    def decide(self, request: Any, *, ticket: Ticket, now_ms: int) -> Decision:
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

    def on_timer(self, key: TimerKey, *, now_ms: int) -> Decision:
        name = key[0]
        assert isinstance(name, bytes)
        return Decision(answers=(Answer(ticket=self.parked.pop(name), reply="time is up"),))

    def on_loaded(self, *, now_ms: int) -> Decision:
        self.is_loaded = True
        return Decision()

    def replay(self, record: CoordinatorRecord) -> None:
        if record.value is None:
            self.counts.pop(record.key, None)
        else:
            self.counts[record.key] = record.value[0]


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
        return Partition(
            name=TopicPartition("groups", 0),
            topic_id=TopicId(UUID(int=1)),
            leader_epoch=LeaderEpoch(0),
            log=log,
            syncs=Flusher(self.offload, workers_max=1),
        )

    def shard(self) -> Shard:
        return Shard(
            partition=self.partition,
            machine=CountingMachine(),
            clock=self.clock,
            offload=self.offload,
        )

    async def loaded_shard(self) -> Shard:
        shard = self.shard()
        await shard.load()
        return shard


async def turn() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


def test_nobody_is_answered_before_the_log_is_loaded() -> None:
    async def story() -> None:
        shard = World().shard()
        with pytest.raises(CoordinatorLoadInProgress):
            shard.ask(Look(b"a"))
        await shard.load()
        assert await shard.ask(Look(b"a")) == 0

    asyncio.run(story())


def test_a_reply_leaves_only_when_its_records_are_committed() -> None:
    async def story() -> None:
        world = World()
        shard = await world.loaded_shard()
        world.offload.hold()
        added = shard.ask(Add(b"a"))
        await turn()
        assert not added.done()
        world.offload.release()
        assert await added == 1

    asyncio.run(story())


def test_a_look_does_not_tell_of_what_could_still_be_lost() -> None:
    async def story() -> None:
        world = World()
        shard = await world.loaded_shard()
        world.offload.hold()
        shard.ask(Add(b"a"))
        looked = shard.ask(Look(b"a"))
        await turn()
        assert not looked.done()
        world.offload.release()
        assert await looked == 1

    asyncio.run(story())


def test_decisions_in_one_turn_see_each_others_records() -> None:
    async def story() -> None:
        shard = await World().loaded_shard()
        replies = [shard.ask(Add(b"a")) for _ in range(3)]
        assert await asyncio.gather(*replies) == [1, 2, 3]

    asyncio.run(story())


def test_a_new_shard_on_the_same_log_has_the_same_state() -> None:
    async def story() -> None:
        world = World()
        first = await world.loaded_shard()
        await asyncio.gather(*(first.ask(Add(name)) for name in (b"a", b"b", b"a")))
        second = await world.loaded_shard()
        assert second.machine.counts == {b"a": 2, b"b": 1}  # type: ignore[attr-defined]
        assert second.machine.is_loaded  # type: ignore[attr-defined]

    asyncio.run(story())


def test_after_a_power_cut_what_was_answered_is_there() -> None:
    async def story() -> None:
        world = World()
        shard = await world.loaded_shard()
        for _ in range(5):
            await shard.ask(Add(b"a"))
        world.disk.crash()
        world.disk = world.disk.reopen()
        world.partition = world.open_partition()
        assert await (await world.loaded_shard()).ask(Look(b"a")) == 5

    asyncio.run(story())


def test_a_timer_that_is_due_answers_who_waits() -> None:
    async def story() -> None:
        world = World()
        shard = await world.loaded_shard()
        parked = shard.ask(Park(b"a", after_ms=0))
        assert await parked == "time is up"

    asyncio.run(story())


def test_a_timer_moved_away_does_not_ring_at_its_old_time() -> None:
    async def story() -> None:
        world = World()
        shard = await world.loaded_shard()
        first = shard.ask(Park(b"a", after_ms=5))
        shard.ask(Park(b"b", after_ms=6))
        shard.tell(
            Decision(timers=(SetTimer(key=(b"a",), due_at_ms=world.clock.now_ms() + 10**7),))
        )
        world.clock.advance(1_000)
        while b"b" in shard.machine.parked:  # type: ignore[attr-defined]
            await asyncio.sleep(0.001)
        assert not first.done()
        shard.stop()
        with pytest.raises(NotCoordinator):
            await first

    asyncio.run(story())


def test_when_the_disk_fails_everyone_is_sent_away_and_nothing_is_answered() -> None:
    async def story() -> None:
        world = World()
        shard = await world.loaded_shard()
        world.disk.faults.fail("sync", path="*.log")
        with pytest.raises(CoordinatorNotAvailable):
            await shard.ask(Add(b"a"))
        with pytest.raises(CoordinatorNotAvailable):
            await shard.ask(Add(b"a"))
        with pytest.raises(NotCoordinator):
            shard.ask(Look(b"a"))

    asyncio.run(story())
