"""A share partition at its leader: loaded, written, locked, waited for."""

import asyncio
from typing import Any

import pytest

from broker.group_client import restart, start_with_groups
from broker.handlers.share_groups.share_client import ShareMember, acquired
from broker.running_broker import RunningBroker, StartBroker
from respool.wire.api_table import Api

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER = 6
INVALID_REQUEST = 42
GROUP_ID_NOT_FOUND = 69
UNKNOWN_TOPIC_ID = 100
INVALID_RECORD_STATE = 121
SESSION_NOT_FOUND = 122
INVALID_SESSION_EPOCH = 123
SESSION_LIMIT_REACHED = 133


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker, share_coordinator_state_topic_partitions=2)
    broker.create_topic("orders")
    broker.set_for_group("billing", {"share.auto.offset.reset": "earliest"})
    return broker


@pytest.fixture
def one(broker: RunningBroker) -> ShareMember:
    member = ShareMember(broker)
    member.join()
    return member


def produce(broker: RunningBroker, count: int = 5) -> None:
    broker.produce("orders", values=tuple(b"%d" % one for one in range(count)))


def other(one: ShareMember) -> ShareMember:
    return ShareMember(one.broker, name="two")


def test_a_new_group_begins_at_the_end_and_that_is_stored_before_anything_is_delivered(
    broker: RunningBroker,
) -> None:
    produce(broker)
    member = ShareMember(broker, group="latest")
    member.join()
    assert member.take() == []
    produce(broker)
    assert member.take() == [(5, 9, 1)]
    # Nothing was acknowledged before the leader died.
    restart(broker, crash=True)
    again = ShareMember(broker, group="latest", name="again")
    assert again.take() == [(5, 9, 1)]


def test_a_fetch_waits_for_records_and_one_of_those_that_wait_is_woken(
    broker: RunningBroker, one: ShareMember
) -> None:
    members = [one, other(one)]
    for member in members:
        assert member.take() == []

    async def story() -> list[Any]:
        waiting = [
            asyncio.ensure_future(
                broker.answer(Api.SHARE_FETCH, 2, **member.fields(max_wait=60_000))
            )
            for member in members
        ]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        return waiting

    tasks = broker.run(story())
    produce(broker, 3)

    async def first() -> Any:
        done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return done.pop().result()

    reply = broker.run(first())
    assert acquired(reply.responses[0].partitions[0]) == [(0, 2, 1)]


def test_a_fetch_waits_for_its_minimum_and_holds_nothing_meanwhile(
    broker: RunningBroker, one: ShareMember
) -> None:
    produce(broker)
    one.take()
    one.acknowledge((0, 4, ACCEPT))

    async def begin() -> "asyncio.Task[Any]":
        fields = one.fields(max_wait=60_000, min_bytes=1_000)
        waiting = asyncio.ensure_future(broker.answer(Api.SHARE_FETCH, 2, **fields))
        await asyncio.sleep(0)
        return waiting

    waiting = broker.run(begin())
    # About a hundred bytes.
    produce(broker)
    assert not waiting.done()
    two = other(one)
    assert two.take(max_records=1, share_acquire_mode=1) == [(5, 5, 1)]
    produce(broker, 200)
    reply = broker.finish(waiting)
    assert acquired(reply.responses[0].partitions[0]) == [(6, 209, 1)]


def test_a_minimum_that_does_not_come_gets_what_there_is(
    broker: RunningBroker, one: ShareMember
) -> None:
    produce(broker)
    assert one.take(min_bytes=1_000_000) == [(0, 4, 1)]


def test_a_fetch_that_was_cancelled_leaves_its_turn_to_the_next(
    broker: RunningBroker, one: ShareMember
) -> None:
    two = other(one)
    one.take()
    two.take()

    async def story() -> Any:
        tasks = [
            asyncio.ensure_future(
                broker.answer(Api.SHARE_FETCH, 2, **member.fields(max_wait=60_000))
            )
            for member in (one, two)
        ]
        for _ in range(20):
            await asyncio.sleep(0)
        share = next(iter(broker.broker.shares))
        machine = share.machine()
        assert machine.next_offset(0) == 0
        return tasks

    tasks = broker.run(story())

    async def produce_and_cancel() -> Any:
        share = next(iter(broker.broker.shares))
        waiters = list(share._waiters)
        assert len(waiters) == 2
        waiters[0].wake()
        del share._waiters[waiters[0]]
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)

    broker.run(produce_and_cancel())
    produce(broker)
    reply = broker.finish(tasks[1])
    assert acquired(reply.responses[0].partitions[0]) == [(0, 4, 1)]


def test_locks_end_and_a_late_accept_counts_if_nobody_was_faster(
    broker: RunningBroker, one: ShareMember
) -> None:
    produce(broker)
    one.take()
    broker.clock.advance(30_100)

    async def ring() -> None:
        for share in broker.broker.shares:
            share.on_alarm()

    broker.run(ring())
    two = other(one)
    assert one.acknowledge((0, 1, ACCEPT)).responses[0].partitions[0].error_code == 0
    assert two.take() == [(2, 4, 2)]
    late = one.acknowledge((2, 4, ACCEPT)).responses[0].partitions[0]
    assert late.error_code == INVALID_RECORD_STATE


def test_renewed_locks_do_not_end(broker: RunningBroker, one: ShareMember) -> None:
    produce(broker)
    one.take()
    broker.clock.advance(20_000)
    reply = one.acknowledge((0, 2, RENEW), is_renew_ack=True)
    assert reply.responses[0].partitions[0].error_code == 0
    assert reply.acquisition_lock_timeout.total_seconds() == 30
    broker.clock.advance(15_000)

    async def ring() -> None:
        for share in broker.broker.shares:
            share.on_alarm()

    broker.run(ring())
    assert other(one).take() == [(3, 4, 2)]


def test_delays_of_the_group_hold_records(broker: RunningBroker, one: ShareMember) -> None:
    broker.set_for_group(
        "billing",
        {"share.auto.offset.reset": "earliest", "respool.share.retry.delays.ms": "1000"},
    )
    produce(broker)
    one.take()
    assert one.take((0, 4, RELEASE)) == []
    broker.clock.advance(1_100)
    assert one.take() == [(0, 4, 2)]


def test_altered_offsets_fence_what_is_in_memory(broker: RunningBroker, one: ShareMember) -> None:
    produce(broker)
    one.take()
    one.acknowledge((0, 4, ACCEPT), share_session_epoch=-1)
    broker.ask(
        Api.SHARE_GROUP_HEARTBEAT,
        1,
        group_id="billing",
        member_id="one",
        member_epoch=-1,
        rack_id=None,
        subscribed_topic_names=None,
    )
    topics = [{"topic_name": "orders", "partitions": [{"partition_index": 0, "start_offset": 2}]}]
    reply = broker.ask(Api.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="billing", topics=topics)
    assert reply.error_code == 0
    two = other(one)
    two.join()
    assert two.take(max_wait=60_000) == [(2, 4, 1)]
