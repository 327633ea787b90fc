"""The runtime of coordinators: effects of decisions, and decisions that are part of a producer's transaction."""

import asyncio
from typing import Any

import pytest

from broker.counting_machine import (
    Add,
    AddAndDo,
    AddInTransaction,
    Do,
    Look,
    TransactionalCounter,
    World,
    turn,
)
from respool.broker.coordinators.runtime import CoordinatorRuntime
from respool.coordination.decision import (
    RecordsProducer,
)
from respool.model.coordinator_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidTransactionState,
    NotCoordinator,
)
from respool.model.errors import DiskFailed, InvalidProducerEpoch, StorageFailed
from respool.model.ids import (
    ProducerId,
)
from respool.records.markers import EndTransactionMarker

# --- effects


def test_an_effect_comes_when_its_decision_is_committed_and_not_before() -> None:
    async def story() -> None:
        world = World()
        effects: list[str] = []
        runtime, _ = await world.transactional_runtime(on_effect=effects.append)
        world.offload.hold()
        runtime.ask(AddAndDo(b"a", "write markers"))
        await turn()
        assert effects == []
        world.offload.release()
        await turn()
        assert effects == ["write markers"]

    asyncio.run(story())


def test_an_effect_without_records_waits_for_what_was_appended_before() -> None:
    async def story() -> None:
        world = World()
        effects: list[str] = []
        runtime, _ = await world.transactional_runtime(on_effect=effects.append)
        runtime.report(Do("at once"))
        assert effects == ["at once"]
        world.offload.hold()
        runtime.ask(Add(b"a"))
        runtime.report(Do("later"))
        await turn()
        assert effects == ["at once"]
        world.offload.release()
        await turn()
        assert effects == ["at once", "later"]

    asyncio.run(story())


def test_a_decision_that_was_not_committed_has_no_effect() -> None:
    async def story() -> None:
        world = World()
        effects: list[str] = []
        runtime, _ = await world.transactional_runtime(on_effect=effects.append)
        world.disk.faults.fail("sync", path="*.log")
        with pytest.raises(CoordinatorNotAvailable):
            await runtime.ask(AddAndDo(b"a", "write markers"))
        assert effects == []

    asyncio.run(story())


def test_a_decision_that_could_not_be_written_has_no_effect() -> None:
    async def story() -> None:
        world = World()
        effects: list[str] = []
        runtime, machine = await world.transactional_runtime(on_effect=effects.append)
        world.disk.faults.capacity_bytes = 0
        with pytest.raises(CoordinatorNotAvailable):
            await runtime.ask(AddAndDo(b"a", "write markers"))
        assert (effects, machine.counts) == ([], {})

    asyncio.run(story())


def test_effects_whose_commit_is_not_waited_for_any_more_are_left_to_the_next() -> None:
    """1. A transaction's end is decided.   2. The broker cannot be sure of its lease, and lets nobody wait.   3. The
    lease was valid: the broker leads on, and the decision is committed. Somebody has to write the markers."""

    async def story() -> None:
        world = World()
        effects: list[str] = []
        failures: list[str] = []
        runtime, _ = await world.transactional_runtime(
            on_effect=effects.append, on_failed=lambda: failures.append("failed")
        )
        world.offload.hold()
        asked = runtime.ask(AddAndDo(b"a", "write markers"))
        world.partition.role.on_fenced()
        world.offload.release()
        with pytest.raises(CoordinatorNotAvailable):
            await asked
        assert (effects, failures, runtime.is_active) == ([], ["failed"], False)

    asyncio.run(story())


def test_a_coordinator_that_fails_while_effects_wait_is_replaced_once() -> None:
    """Seed 4000080: the append that failed took the partition offline, which who waited heard first; both failed the
    coordinator, and the second replacement found that the first had been there already."""

    async def story() -> None:
        world = World()
        failures: list[str] = []
        runtime, _ = await world.transactional_runtime(on_failed=lambda: failures.append("failed"))
        world.offload.hold()
        waiting = runtime.ask(AddAndDo(b"a", "write markers"))
        world.disk.faults.fail("append", path="*.log")
        failing = runtime.ask(Add(b"a"))
        world.offload.release()
        for asked in (waiting, failing):
            with pytest.raises(CoordinatorNotAvailable):
                await asked
        assert failures == ["failed"]

    asyncio.run(story())


def test_a_coordinator_continues_when_only_replies_were_not_awaited() -> None:
    async def story() -> None:
        world = World()
        runtime, _ = await world.transactional_runtime()
        world.offload.hold()
        asked = runtime.ask(Add(b"a"))
        world.partition.role.on_fenced()
        world.offload.release()
        with pytest.raises(CoordinatorNotAvailable):
            await asked
        assert await runtime.ask(Look(b"a")) == 1

    asyncio.run(story())


def test_a_stopped_coordinator_leaves_its_effects_to_the_next() -> None:
    async def story() -> None:
        world = World()
        effects: list[str] = []
        runtime, _ = await world.transactional_runtime(on_effect=effects.append)
        world.offload.hold()
        asked = runtime.ask(AddAndDo(b"a", "write markers"))
        runtime.stop()
        world.offload.release()
        await turn()
        assert effects == []
        with pytest.raises(NotCoordinator):
            await asked
        await world.transactional_runtime(
            TransactionalCounter(effects_at_start=("write markers",)), on_effect=effects.append
        )
        assert effects == ["write markers"]

    asyncio.run(story())


def test_a_report_needs_no_reply_and_a_stopped_coordinator_ignores_it() -> None:
    async def story() -> None:
        world = World()
        runtime, machine = await world.transactional_runtime()
        runtime.report(Add(b"a"))
        assert machine.counts == {b"a": 1}
        assert not runtime._waiting
        runtime.stop()
        runtime.report(Add(b"a"))
        assert machine.counts == {b"a": 1}

    asyncio.run(story())


# --- decisions that are part of a producer's transaction


BANK = RecordsProducer(producer_id=ProducerId(7), producer_epoch=2)
SHOP = RecordsProducer(producer_id=ProducerId(8), producer_epoch=0)


def marker(producer: RecordsProducer, *, is_commit: bool, epoch: int = 0) -> EndTransactionMarker:
    return EndTransactionMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch + epoch,
        coordinator_epoch=0,
        is_commit=is_commit,
    )


async def add_verified(runtime: CoordinatorRuntime, name: bytes, producer: RecordsProducer) -> Any:
    guard = runtime.begin_verification(producer)
    return await runtime.ask(AddInTransaction(name, producer), guard=guard)


@pytest.mark.parametrize("is_commit", [False, True])
def test_records_of_a_transaction_count_from_its_end_on(is_commit: bool) -> None:
    async def story() -> None:
        runtime, machine = await World().transactional_runtime()
        assert await add_verified(runtime, b"a", BANK) == 1
        # Its transaction has begun here, so no guard is needed any more.
        assert runtime.begin_verification(BANK) is None
        assert await runtime.ask(AddInTransaction(b"b", BANK)) == 1
        assert await runtime.ask(Look(b"a")) == 0

        runtime.end_transaction(marker(BANK, is_commit=is_commit))

        assert machine.counts == ({b"a": 1, b"b": 1} if is_commit else {})
        assert await runtime.ask(Look(b"a")) == int(is_commit)

    asyncio.run(story())


def test_the_end_of_a_transaction_counts_when_it_is_committed() -> None:
    async def story() -> None:
        world = World()
        runtime, _ = await world.transactional_runtime()
        await add_verified(runtime, b"a", BANK)
        world.offload.hold()
        next_offset = runtime.end_transaction(marker(BANK, is_commit=True))
        looked = runtime.ask(Look(b"a"))
        await turn()
        assert (next_offset, world.partition.high_watermark) == (2, 1)
        assert not looked.done()
        world.offload.release()
        assert await looked == 1

    asyncio.run(story())


def test_a_decision_refused_to_its_producer_fails_only_that_request() -> None:
    async def story() -> None:
        world = World()
        failures: list[str] = []
        runtime, machine = await world.transactional_runtime(on_failed=lambda: failures.append("!"))
        before = runtime.ask(Add(b"x"))
        with pytest.raises(InvalidTransactionState):
            await runtime.ask(AddInTransaction(b"a", BANK))
        assert await before == 1
        assert await runtime.ask(Look(b"a")) == 0
        assert (machine.pending, failures, world.partition.log.log_end) == ({}, [], 1)

    asyncio.run(story())


def test_a_zombies_decision_is_refused_and_the_transaction_of_its_successor_goes_on() -> None:
    async def story() -> None:
        runtime, machine = await World().transactional_runtime()
        successor = RecordsProducer(producer_id=BANK.producer_id, producer_epoch=3)
        await add_verified(runtime, b"a", successor)
        with pytest.raises(InvalidProducerEpoch):
            await add_verified(runtime, b"b", BANK)
        with pytest.raises(InvalidProducerEpoch):
            runtime.end_transaction(marker(BANK, is_commit=True))
        runtime.end_transaction(marker(successor, is_commit=True))
        assert machine.counts == {b"a": 1}

    asyncio.run(story())


def test_a_guard_is_void_once_the_transaction_has_ended() -> None:
    async def story() -> None:
        runtime, machine = await World().transactional_runtime()
        guard = runtime.begin_verification(BANK)
        runtime.end_transaction(marker(BANK, is_commit=False))
        with pytest.raises(InvalidTransactionState):
            await runtime.ask(AddInTransaction(b"late", BANK), guard=guard)
        assert machine.pending == {}

    asyncio.run(story())


def test_a_producers_decision_on_a_full_disk_stops_the_coordinator() -> None:
    async def story() -> None:
        world = World()
        failures: list[str] = []
        runtime, _ = await world.transactional_runtime(on_failed=lambda: failures.append("!"))
        guard = runtime.begin_verification(BANK)
        world.disk.faults.capacity_bytes = 0
        with pytest.raises(CoordinatorNotAvailable):
            await runtime.ask(AddInTransaction(b"a", BANK), guard=guard)
        assert failures == ["!"]

    asyncio.run(story())


def test_an_end_that_cannot_be_written_changes_nothing() -> None:
    async def story() -> None:
        world = World()
        runtime, machine = await world.transactional_runtime()
        await add_verified(runtime, b"a", BANK)
        world.disk.faults.capacity_bytes = 0
        with pytest.raises(StorageFailed):
            runtime.end_transaction(marker(BANK, is_commit=True))
        assert machine.counts == {}
        world.disk.faults.capacity_bytes = None
        runtime.end_transaction(marker(BANK, is_commit=True))
        assert machine.counts == {b"a": 1}

    asyncio.run(story())


def test_a_loading_or_stopped_coordinator_ends_and_begins_no_transaction() -> None:
    async def story() -> None:
        world = World()
        runtime = world.runtime()
        with pytest.raises(CoordinatorLoadInProgress):
            runtime.end_transaction(marker(BANK, is_commit=True))
        with pytest.raises(CoordinatorLoadInProgress):
            runtime.begin_verification(BANK)
        runtime.stop()
        with pytest.raises(NotCoordinator):
            runtime.end_transaction(marker(BANK, is_commit=True))
        with pytest.raises(NotCoordinator):
            runtime.begin_verification(BANK)
        assert world.partition.log.log_end == 0

    asyncio.run(story())


def test_where_the_partition_is_offline_no_transaction_begins() -> None:
    async def story() -> None:
        world = World()
        runtime, _ = await world.transactional_runtime()
        world.partition.go_offline(DiskFailed("as the test wants it"))
        with pytest.raises(CoordinatorNotAvailable):
            runtime.begin_verification(BANK)

    asyncio.run(story())


@pytest.mark.parametrize("crash", [False, True])
def test_a_log_with_transactions_is_loaded_as_it_was_lived_through(crash: bool) -> None:
    async def story() -> None:
        world = World()
        runtime, lived = await world.transactional_runtime()
        third = RecordsProducer(producer_id=ProducerId(9), producer_epoch=0)
        await runtime.ask(Add(b"plain"))
        await add_verified(runtime, b"committed", BANK)
        await add_verified(runtime, b"aborted", SHOP)
        await runtime.ask(Add(b"plain"))
        runtime.end_transaction(marker(SHOP, is_commit=False))
        await add_verified(runtime, b"open", third)
        # With transactions of version 2 the end has the next epoch.
        runtime.end_transaction(marker(BANK, is_commit=True, epoch=1))
        # Of a transaction that wrote nothing here.
        runtime.end_transaction(marker(BANK, is_commit=True, epoch=2))
        await runtime.ask(Look(b"plain"))

        if crash:
            world.disk.crash()
            world.disk = world.disk.reopen()
            world.partition = world.open_partition()
        runtime, loaded = await world.transactional_runtime()

        assert loaded.counts == lived.counts == {b"plain": 2, b"committed": 1}
        assert loaded.pending == lived.pending
        assert list(loaded.pending) == [third.producer_id]
        assert runtime.begin_verification(third) is None
        runtime.end_transaction(marker(third, is_commit=True))
        assert loaded.counts[b"open"] == 1

    asyncio.run(story())
