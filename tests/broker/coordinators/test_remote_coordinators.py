"""Leaders and groups whose transactions' coordinator is another broker."""

import asyncio
from typing import Any

import pytest

from broker.running_broker import RunningBroker
from broker.transaction_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_PRODUCER_EPOCH,
    NEW,
    NOT_COORDINATOR,
    NOT_ENOUGH_REPLICAS,
    OLD,
    TRANSACTION_ABORTABLE,
    fetch_offsets,
    has_open_transaction,
    markers,
    read,
)
from broker.two_brokers import ONE, TwoBrokers, both_protocols, call, end, producer_at, state
from respool.broker.coordinators import remote_coordinators
from respool.broker.coordinators.producer_id_blocks import BLOCK_SIZE
from respool.broker.coordinators.runtime import CoordinatorRuntime
from respool.wire.api_table import Api


def test_a_leader_asks_the_coordinator_on_the_other_broker_before_it_takes_the_first_batch(
    world: TwoBrokers,
) -> None:
    producer = producer_at(world)
    assert producer.send("rides", 1).error_code == TRANSACTION_ABORTABLE
    producer.write("rides", 1)
    producer.write("rides", 1)

    asked = world.network.bodies(Api.ADD_PARTITIONS_TO_TXN)
    # Once in vain, once for the first batch, not for the next.
    assert [one.transactions[0].verify_only for one in asked] == [True, True]


def test_in_version_2_writing_there_makes_the_partition_part_of_it_at_the_other_broker(
    world: TwoBrokers,
) -> None:
    producer = producer_at(world, NEW)
    assert producer.send("rides", 1).error_code == 0

    (asked,) = world.network.bodies(Api.ADD_PARTITIONS_TO_TXN)
    assert not asked.transactions[0].verify_only
    assert state(world, producer) == "Ongoing"


@both_protocols
def test_a_late_batch_of_an_older_epoch_is_refused_across_brokers(
    world: TwoBrokers, speaks: dict[str, int]
) -> None:
    producer = producer_at(world, speaks)
    zombie = producer.zombie()
    assert producer.init().error_code == 0
    assert zombie.send("rides", 1).error_code == INVALID_PRODUCER_EPOCH
    assert not has_open_transaction(world.two, "rides", 1)


@both_protocols
def test_a_batch_waits_outside_while_the_coordinator_cannot_be_reached(
    world: TwoBrokers, speaks: dict[str, int]
) -> None:
    producer = producer_at(world, speaks)
    if speaks is OLD:
        producer.add(("rides", 1))
    world.network.cut_off = {ONE}
    assert producer.send("rides", 1).error_code == NOT_ENOUGH_REPLICAS
    world.network.cut_off = set()
    assert producer.send("rides", 1).error_code == 0


def test_questions_that_come_while_one_is_under_way_go_together(world: TwoBrokers) -> None:
    producer = producer_at(world, NEW)
    world.network.gate = asyncio.Event()
    sending = [world.two.start(producer.send_("rides", number)) for number in (1, 2)]
    sending.append(world.two.start(producer.send_("fares", 0)))
    world.network.gate.set()
    codes = [world.two.finish(one).error_code for one in sending]

    assert codes == [0, 0, 0]
    first, second = world.network.bodies(Api.ADD_PARTITIONS_TO_TXN)
    assert len(first.transactions) == len(second.transactions) == 1
    assert {topic.name for topic in second.transactions[0].topics} == {"rides", "fares"}


def test_the_next_transactions_first_batch_waits_for_the_last_ones_end(world: TwoBrokers) -> None:
    producer = producer_at(world, NEW)
    producer.write("rides", 1, b"a")
    world.two.offload.hold()
    assert producer.end(commit=True) == 0
    sending = world.two.start(producer.send_("rides", 1, b"b"))
    world.settle()
    assert not sending.done()
    world.run(call(world.two.offload.release))
    assert world.two.finish(sending).error_code == 0
    end(world, producer, commit=False)

    assert read(world.two, "rides", 1) == [b"a"]


def test_a_late_batch_is_not_taken_for_one_of_the_next_transaction(
    world: TwoBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    1. A transaction is aborted; its marker is written, and the coordinator has not heard so.   2. A late batch of it
       comes, and the coordinator is asked: it cannot say now.   3. It hears of the marker, and the next transaction of
       the same epoch adds the partition.   4. Asked again, it would say yes. TRAPS rule 56.
    """
    # As in life: whoever asks again does so after a moment.
    monkeypatch.setattr(remote_coordinators, "PAUSE_S", 1.0)
    producer = producer_at(world, OLD)
    late = producer.zombie()
    producer.add(("rides", 1))
    held: list[tuple[CoordinatorRuntime, Any]] = []
    report = CoordinatorRuntime.report
    monkeypatch.setattr(
        CoordinatorRuntime, "report", lambda runtime, request: held.append((runtime, request))
    )
    assert producer.end(commit=False) == 0
    world.settle(3)
    assert (state(world, producer), len(markers(world.two, "rides", 1))) == ("PrepareAbort", 1)

    async def play() -> int:
        sending = asyncio.ensure_future(late.send_("rides", 1, b"aborted"))
        # Until it was asked, and has said so.
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(world.network.bodies(Api.ADD_PARTITIONS_TO_TXN)) == 1
        monkeypatch.setattr(CoordinatorRuntime, "report", report)
        for runtime, request in held:
            report(runtime, request)
        assert set((await producer.add_(("rides", 1))).values()) == {0}
        return int((await sending).error_code)

    assert world.run(play()) == NOT_ENOUGH_REPLICAS
    assert producer.send("rides", 1, b"kept").error_code == 0
    end(world, producer, commit=True)
    assert read(world.two, "rides", 1) == [b"kept"]


@both_protocols
def test_a_group_coordinator_asks_the_transactions_coordinator_on_the_other_broker(
    world: TwoBrokers, speaks: dict[str, int]
) -> None:
    producer = producer_at(world, speaks)
    group = world.group_id(at=world.two)
    if speaks is OLD:
        assert producer.commit_offsets(group, ("rides", 0, 1)) == [TRANSACTION_ABORTABLE]
        assert producer.add_offsets(group) == 0
    world.network.cut_off = {ONE}
    assert producer.commit_offsets(group, ("rides", 0, 1)) == [COORDINATOR_LOAD_IN_PROGRESS]
    world.network.cut_off = set()
    assert producer.commit_offsets(group, ("rides", 0, 1)) == [0]
    end(world, producer, commit=True)

    assert fetch_offsets(world.two, group, "rides", stable=True) == (0, 1)


@both_protocols
def test_a_group_coordinator_whose_question_takes_too_long_tells_the_producer_to_ask_again(
    world: TwoBrokers, speaks: dict[str, int]
) -> None:
    """It passed on that there are concurrent transactions, which is fatal to some here."""
    producer, another = producer_at(world, speaks), producer_at(world, like="shop")
    group = world.group_id(at=world.two)
    if speaks is OLD:
        assert producer.add_offsets(group) == 0
    # Somebody else's transaction is being written, and the coordinator's disk takes its time.
    world.one.offload.hold()
    others = world.one.start(another.add_offsets_(group))
    world.settle()
    assert producer.commit_offsets(group, ("rides", 0, 1)) == [COORDINATOR_LOAD_IN_PROGRESS]
    world.run(call(world.one.offload.release))
    assert world.one.finish(others) == 0
    assert producer.commit_offsets(group, ("rides", 0, 1)) == [0]


def test_who_looks_after_an_id_or_a_group_is_told_by_every_broker_alike(world: TwoBrokers) -> None:
    for broker in world:
        for key_type, runtimes in enumerate(
            (world.one.broker.groups.runtimes, world.one.broker.transactions.runtimes)
        ):
            for key in map("any-{}".format, range(10)):
                reply = broker.ask(Api.FIND_COORDINATOR, 2, key=key, key_type=key_type)
                expected = world.at(runtimes.topic, runtimes.partition_of(key)).broker.id
                assert (reply.error_code, reply.node_id) == (0, expected)
                assert reply.host == f"broker-{expected}" or expected == broker.broker.id


def test_a_broker_that_is_not_the_coordinator_says_so(world: TwoBrokers) -> None:
    producer = producer_at(world)
    group = world.group_id(at=world.two)
    who = {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
    }
    two, one = world.two, world.one
    codes = [
        two.ask(
            Api.INIT_PRODUCER_ID,
            5,
            transactional_id=producer.transactional_id,
            transaction_timeout=1_000,
            producer_id=-1,
            producer_epoch=-1,
        ).error_code,
        two.ask(Api.END_TXN, 4, **who, committed=True).error_code,
        two.ask(Api.ADD_OFFSETS_TO_TXN, 4, **who, group_id=group).error_code,
        one.ask(
            Api.HEARTBEAT, 4, group_id=group, generation_id=1, member_id="m", group_instance_id=None
        ).error_code,
    ]
    assert codes == [NOT_COORDINATOR] * 4


def test_any_broker_gives_ids_to_idempotent_producers_and_none_twice(world: TwoBrokers) -> None:
    async def draw() -> list[int]:
        async def some(broker: RunningBroker) -> list[int]:
            ids = broker.broker.producer_ids
            return [await ids.next() for _ in range(BLOCK_SIZE + 10)]

        drawn = await asyncio.gather(*map(some, world))
        return [one for each in drawn for one in each]

    drawn = world.run(draw())
    assert len(set(drawn)) == len(drawn)
    reply = world.two.ask(
        Api.INIT_PRODUCER_ID,
        5,
        transactional_id=None,
        transaction_timeout=0,
        producer_id=-1,
        producer_epoch=-1,
    )
    assert reply.error_code == 0
    assert reply.producer_id not in drawn
