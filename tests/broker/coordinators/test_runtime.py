"""The runtime of coordinators, with a machine small enough to see through: a counter per name."""

import asyncio
import logging

import pytest

from broker.counting_machine import (
    Add,
    Look,
    Park,
    TransactionalCounter,
    World,
    turn,
)
from respool.coordination.decision import (
    Decision,
    SetTimer,
)
from respool.coordination.record_bytes import CoordinatorRecordDamaged
from respool.model.coordinator_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from respool.model.errors import DiskFailed, HandlesExhausted


def test_nobody_is_answered_before_the_log_is_loaded() -> None:
    async def story() -> None:
        runtime = World().runtime()
        with pytest.raises(CoordinatorLoadInProgress):
            runtime.ask(Look(b"a"))
        await runtime.load()
        assert await runtime.ask(Look(b"a")) == 0

    asyncio.run(story())


def test_a_reply_leaves_only_when_its_records_are_committed() -> None:
    async def story() -> None:
        world = World()
        runtime = await world.loaded_runtime()
        world.offload.hold()
        added = runtime.ask(Add(b"a"))
        await turn()
        assert not added.done()
        world.offload.release()
        assert await added == 1

    asyncio.run(story())


def test_a_look_does_not_tell_of_what_could_still_be_lost() -> None:
    async def story() -> None:
        world = World()
        runtime = await world.loaded_runtime()
        world.offload.hold()
        runtime.ask(Add(b"a"))
        looked = runtime.ask(Look(b"a"))
        await turn()
        assert not looked.done()
        world.offload.release()
        assert await looked == 1

    asyncio.run(story())


def test_decisions_in_one_turn_see_each_others_records() -> None:
    async def story() -> None:
        runtime = await World().loaded_runtime()
        replies = [runtime.ask(Add(b"a")) for _ in range(3)]
        assert await asyncio.gather(*replies) == [1, 2, 3]

    asyncio.run(story())


def test_a_new_coordinator_on_the_same_log_has_the_same_state() -> None:
    async def story() -> None:
        world = World()
        first = await world.loaded_runtime()
        await asyncio.gather(*(first.ask(Add(name)) for name in (b"a", b"b", b"a")))
        second = await world.loaded_runtime()
        assert second.machine.counts == {b"a": 2, b"b": 1}  # type: ignore[attr-defined]
        assert second.machine.is_loaded  # type: ignore[attr-defined]

    asyncio.run(story())


def test_a_log_not_opened_for_too_many_open_files_is_loaded_by_the_next_coordinator() -> None:
    async def story() -> None:
        world = World()
        runtime, _ = await world.transactional_runtime()
        assert await runtime.ask(Add(b"a")) == 1
        segment = world.partition.log._parts.segments.active
        segment.finish()
        segment.release()
        world.disk.faults.fail("open", error=HandlesExhausted, times=None)
        failures: list[str] = []
        runtime, _ = await world.transactional_runtime(on_failed=lambda: failures.append("failed"))
        with pytest.raises(NotCoordinator):
            runtime.ask(Look(b"a"))
        assert failures == ["failed"]
        world.disk.faults.heal()
        runtime, _ = await world.transactional_runtime()
        assert await runtime.ask(Look(b"a")) == 1

    asyncio.run(story())


def test_a_damaged_log_is_not_loaded_again_and_again() -> None:
    async def story() -> None:
        world = World()
        runtime, _ = await world.transactional_runtime()
        assert await runtime.ask(Add(b"a")) == 1
        world.disk.faults.fail("read", times=None)
        failures: list[str] = []
        runtime, _ = await world.transactional_runtime(on_failed=lambda: failures.append("failed"))
        with pytest.raises(NotCoordinator):
            runtime.ask(Look(b"a"))
        assert not failures
        # Another replica may be sound: it is left to that. It stayed here, led and online, and nobody served it.
        assert not world.partition.is_online

    asyncio.run(story())


def test_a_record_that_nobody_can_read_takes_no_replica_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is the same on all of them."""

    def replay(*_: object, **__: object) -> None:
        raise CoordinatorRecordDamaged("as the test wants it")

    async def story() -> None:
        world = World()
        runtime, _ = await world.transactional_runtime()
        assert await runtime.ask(Add(b"a")) == 1
        monkeypatch.setattr(TransactionalCounter, "replay", replay)
        runtime, _ = await world.transactional_runtime()
        assert not runtime.is_active
        assert world.partition.is_online

    asyncio.run(story())


def test_after_a_power_cut_what_was_answered_is_there() -> None:
    async def story() -> None:
        world = World()
        runtime = await world.loaded_runtime()
        for _ in range(5):
            await runtime.ask(Add(b"a"))
        world.disk.crash()
        world.disk = world.disk.reopen()
        world.partition = world.open_partition()
        assert await (await world.loaded_runtime()).ask(Look(b"a")) == 5

    asyncio.run(story())


def test_a_timer_that_is_due_answers_who_waits() -> None:
    async def story() -> None:
        world = World()
        runtime = await world.loaded_runtime()
        parked = runtime.ask(Park(b"a", after_ms=0))
        assert await parked == "time is up"

    asyncio.run(story())


def test_a_timer_moved_away_does_not_ring_at_its_old_time() -> None:
    async def story() -> None:
        world = World()
        runtime = await world.loaded_runtime()
        first = runtime.ask(Park(b"a", after_ms=5))
        runtime.ask(Park(b"b", after_ms=6))
        runtime.apply(
            Decision(timers=(SetTimer(key=(b"a",), due_at_ms=world.clock.now_ms() + 10**7),))
        )
        world.clock.advance(1_000)
        while b"b" in runtime.machine.parked:  # type: ignore[attr-defined]
            await asyncio.sleep(0.001)
        assert not first.done()
        runtime.stop()
        with pytest.raises(NotCoordinator):
            await first

    asyncio.run(story())


def test_when_the_disk_fails_everyone_is_sent_away_and_nothing_is_answered() -> None:
    async def story() -> None:
        world = World()
        runtime = await world.loaded_runtime()
        world.disk.faults.fail("sync", path="*.log")
        with pytest.raises(CoordinatorNotAvailable):
            await runtime.ask(Add(b"a"))
        with pytest.raises(CoordinatorNotAvailable):
            await runtime.ask(Add(b"a"))
        with pytest.raises(NotCoordinator):
            runtime.ask(Look(b"a"))

    asyncio.run(story())


def test_whoever_waits_is_sent_away_when_its_timer_meets_a_partition_that_is_offline() -> None:
    async def story() -> None:
        world = World()
        failures: list[str] = []
        runtime, _ = await world.transactional_runtime(on_failed=lambda: failures.append("failed"))
        parked = runtime.ask(Park(b"a", after_ms=1))
        world.partition.go_offline(DiskFailed("as the test wants it"))
        world.clock.advance(1)
        with pytest.raises(CoordinatorNotAvailable):
            await parked
        assert failures == ["failed"]
        with pytest.raises(NotCoordinator):
            runtime.ask(Look(b"a"))

    asyncio.run(story())


def test_a_coordinator_whose_partition_another_leads_sends_everyone_there_and_calls_it_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        world = World()
        runtime = await world.loaded_runtime()
        world.partition.role.resign("broker 2 leads it now")
        with pytest.raises(CoordinatorNotAvailable, match=r"broker 2|another broker"):
            await runtime.ask(Add(b"a"))

    with caplog.at_level(logging.INFO):
        asyncio.run(story())
    assert [one.levelname for one in caplog.records if "stops" in one.message] == ["INFO"]


def test_what_is_due_while_the_broker_may_not_act_waits_until_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("respool.broker.coordinators.runtime.POSTPONED_MS", 1)

    async def story() -> None:
        world, may_act = World(), False
        runtime, _ = await world.transactional_runtime(may_act=lambda: may_act)
        parked = runtime.ask(Park(b"a", after_ms=0))
        for _ in range(5):
            await asyncio.sleep(0.002)
            world.clock.advance(1)
        assert not parked.done()
        may_act = True
        # The timer is on the loop's clock, and what is due on this one.
        async with asyncio.timeout(60):
            while not parked.done():
                world.clock.advance(1)
                await asyncio.sleep(0.002)
        assert await parked == "time is up"

    asyncio.run(story())
