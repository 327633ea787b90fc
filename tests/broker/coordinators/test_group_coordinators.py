"""Groups from request bytes to reply bytes: members that wait for each other, crashes, topics that go."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from broker.group_client import (
    COORDINATOR_NOT_AVAILABLE,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    UNKNOWN_MEMBER_ID,
    Member,
    commit,
    committed,
    let_pass,
    restart,
    runtimes,
    settled,
    start_with_groups,
    turns,
    wait_until_loaded,
)
from broker.running_broker import LATEST, RunningBroker, StartBroker
from broker.wire_client import decode_reply, encode_request
from respool.broker.dispatch import handle
from respool.broker.outcome import Outcome, Pipelined, Reply
from respool.wire.api_table import Api
from respool.wire.codec import decode_request

INITIAL_DELAY_MS = 3_000
INVALID_TOPIC = 17
DAY_MS = 24 * 3_600_000
either_end = pytest.mark.parametrize("crash", [False, True])


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker)
    broker.create_topic("rides", partitions=3)
    return broker


def test_members_that_come_within_the_initial_delay_share_out_once(
    start_broker: StartBroker,
) -> None:
    broker = start_with_groups(start_broker, group_initial_rebalance_delay_ms=INITIAL_DELAY_MS)
    members = [Member(broker) for _ in range(3)]
    settling = [broker.start(one.join_and_sync()) for one in members]
    assert not any(task.done() for task in settling)

    let_pass(broker, INITIAL_DELAY_MS)
    # More came meanwhile, so it waits once more.
    assert not any(task.done() for task in settling)
    let_pass(broker, INITIAL_DELAY_MS)

    for task in settling:
        broker.finish(task)
    assert {one.generation for one in members} == {1}
    assert [one.is_leader for one in members].count(True) == 1
    assert all(one.assignment == b"share of " + one.member_id.encode() for one in members)


def test_a_member_that_falls_silent_is_out_and_the_others_share_anew(
    broker: RunningBroker,
) -> None:
    silent, *others = settled(broker, "drivers", 3)

    for _ in range(2):
        let_pass(broker, SESSION_TIMEOUT_MS // 2)
        codes = [one.heartbeat() for one in others]
    assert codes == [REBALANCE_IN_PROGRESS] * 2
    broker.run(_all(one.join_and_sync() for one in others))

    assert silent.heartbeat() == UNKNOWN_MEMBER_ID
    (leader,) = [one for one in others if one.is_leader]
    assert set(leader.members) == {one.member_id for one in others}


@pytest.mark.parametrize("jump_ms", [24 * 3_600_000, -24 * 3_600_000])
def test_a_wall_clock_that_is_set_costs_no_member_its_session(
    broker: RunningBroker, jump_ms: int
) -> None:
    silent, stays = settled(broker, "drivers", 2)

    broker.clock.skew(jump_ms)
    let_pass(broker, SESSION_TIMEOUT_MS - 1)
    assert stays.heartbeat() == 0
    # Time itself still counts.
    let_pass(broker, 1)

    assert stays.heartbeat() == REBALANCE_IN_PROGRESS
    stays.settle()
    assert silent.heartbeat() == UNKNOWN_MEMBER_ID


def test_a_machine_that_sleeps_costs_no_member_its_session(broker: RunningBroker) -> None:
    """Members on the same machine slept as well, and nobody could have been heard of."""
    first, second = settled(broker, "drivers", 2)

    broker.clock.sleep(DAY_MS)
    let_pass(broker, SESSION_TIMEOUT_MS - 1)

    assert first.heartbeat() == second.heartbeat() == 0


@pytest.mark.parametrize("wrong_by_ms", [30 * DAY_MS, -30 * DAY_MS])
def test_a_broker_that_was_started_with_a_wrong_clock_loses_no_offsets_for_that(
    broker: RunningBroker, wrong_by_ms: int
) -> None:
    commit(broker, "drivers", ("rides", 0, 5))

    broker.clock.skew(wrong_by_ms)
    restart(broker, crash=False)
    # NTP puts it right a moment later.
    broker.clock.skew(-wrong_by_ms)
    let_pass(broker, DAY_MS)
    commit(broker, "guests", ("rides", 0, 6))
    restart(broker, crash=False)
    let_pass(broker, DAY_MS)

    assert committed(broker, "drivers") == {("rides", 0): 5}
    assert committed(broker, "guests") == {("rides", 0): 6}


def test_a_member_that_never_syncs_does_not_hold_the_others_up(broker: RunningBroker) -> None:
    first, second = settled(broker, "drivers", 2)

    joins = [broker.start(one.join()) for one in (first, second)]
    for join in joins:
        broker.finish(join)
    # The leader never brings the shares.
    leader, follower = (first, second) if first.is_leader else (second, first)
    waiting = broker.start(follower.sync())
    let_pass(broker, REBALANCE_TIMEOUT_MS)

    assert broker.finish(waiting).error_code == REBALANCE_IN_PROGRESS
    follower.settle()
    assert follower.members == (follower.member_id,)
    assert leader.heartbeat() == UNKNOWN_MEMBER_ID


@either_end
def test_a_group_goes_on_after_a_restart_without_sharing_out_anew(
    broker: RunningBroker, crash: bool
) -> None:
    members = settled(broker, "drivers", 3)
    members[0].commit(("rides", 0, 7))

    restart(broker, crash=crash)

    assert [one.heartbeat() for one in members] == [0, 0, 0]
    assert members[1].commit(("rides", 1, 8)) == [0]
    assert committed(broker, "drivers") == {("rides", 0): 7, ("rides", 1): 8}
    assert broker.run(members[2].sync()).assignment == members[2].assignment


@either_end
def test_a_member_that_does_not_come_back_after_a_restart_is_missed(
    broker: RunningBroker, crash: bool
) -> None:
    lost, stays = settled(broker, "drivers", 2)

    restart(broker, crash=crash)
    let_pass(broker, SESSION_TIMEOUT_MS - 1)
    assert stays.heartbeat() == 0
    let_pass(broker, 1)

    assert stays.heartbeat() == REBALANCE_IN_PROGRESS
    stays.settle()
    assert lost.heartbeat() == UNKNOWN_MEMBER_ID


def test_a_client_that_goes_away_while_it_waits_leaves_nothing_behind(
    broker: RunningBroker,
) -> None:
    (member,) = settled(broker, "drivers", 1)
    joining = broker.start(Member(broker).join())

    # What the connection does when it is lost.
    joining.cancel()
    let_pass(broker, REBALANCE_TIMEOUT_MS)

    assert joining.cancelled()
    assert all(not runtime._waiting for runtime in runtimes(broker))
    member.member_id = ""
    let_pass(broker, 5 * 60_000)
    member.settle()
    assert member.members == (member.member_id,)


def test_whoever_waits_is_sent_looking_for_the_coordinator_when_the_broker_stops(
    broker: RunningBroker,
) -> None:
    settled(broker, "drivers", 1)
    joining = broker.start(Member(broker).join())

    broker.run(_call(broker.broker.groups.runtimes.stop))

    assert broker.finish(joining).error_code == NOT_COORDINATOR


@either_end
def test_offsets_of_a_deleted_topic_are_gone(broker: RunningBroker, crash: bool) -> None:
    broker.create_topic("fares")
    for number in range(5):
        commit(broker, f"group {number}", ("rides", 0, number), ("fares", 0, number))

    broker.run(broker.broker.topics.delete("fares"))

    assert committed(broker, "group 3") == {("rides", 0): 3}
    restart(broker, crash=crash)
    assert committed(broker, "group 3") == {("rides", 0): 3}


def test_groups_go_on_when_a_full_disk_has_room_again(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("respool.broker.coordinators.runtimes.REOPEN_DELAY_S", 0)
    (member,) = settled(broker, "drivers", 1)
    member.commit(("rides", 0, 7))

    broker.disk.faults.capacity_bytes = 0
    assert member.commit(("rides", 0, 8)) == [COORDINATOR_NOT_AVAILABLE]
    broker.disk.faults.capacity_bytes = None
    wait_until_loaded(broker)

    assert committed(broker, "drivers") == {("rides", 0): 7}
    assert member.heartbeat() == 0
    assert member.commit(("rides", 0, 8)) == [0]
    broker.run(broker.broker.topics.delete("rides"))
    assert committed(broker, "drivers") == {}


def test_offsets_of_a_topic_that_is_deleted_while_the_disk_is_full_go_when_there_is_room(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("respool.broker.coordinators.runtimes.REOPEN_DELAY_S", 0)
    broker.create_topic("fares")
    commit(broker, "drivers", ("rides", 0, 7), ("fares", 0, 7))
    broker.disk.faults.capacity_bytes = 0
    broker.run(broker.broker.topics.delete("fares"))
    broker.disk.faults.capacity_bytes = None
    wait_until_loaded(broker)
    assert committed(broker, "drivers") == {("rides", 0): 7}


def test_a_partition_that_is_offline_takes_only_its_own_groups_with_it(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("respool.broker.coordinators.runtimes.REOPEN_DELAY_S", 0)
    names = {
        broker.broker.groups.runtimes.partition_of(f"group {n}"): f"group {n}" for n in range(9)
    }
    broker.take_offline("__consumer_offsets", 1)

    assert commit(broker, names[1], ("rides", 0, 1)) == [COORDINATOR_NOT_AVAILABLE]
    broker.run(turns())
    assert commit(broker, names[1], ("rides", 0, 1)) == [NOT_COORDINATOR]
    assert commit(broker, names[2], ("rides", 0, 1)) == [0]


def test_clients_may_read_the_topic_of_the_groups_and_not_write_it(broker: RunningBroker) -> None:
    commit(broker, "drivers", ("rides", 0, 7))
    number = broker.broker.groups.runtimes.partition_of("drivers")

    assert broker.offset("__consumer_offsets", number, at=LATEST) == 1
    reply = broker.ask(Api.DELETE_TOPICS, 4, topic_names=["__consumer_offsets"], timeout=1000)
    assert [one.error_code for one in reply.responses] == [INVALID_TOPIC]


def test_members_are_thrown_out_and_offsets_set_with_nobody_in_between(
    broker: RunningBroker,
) -> None:
    """What a tool does to reset a group that is alive: LeaveGroup and OffsetCommit, sent in one go."""
    members = settled(broker, "drivers", 2)
    members[0].commit(("rides", 0, 100))
    leaving = [{"member_id": one.member_id, "group_instance_id": None} for one in members]
    partition = {
        "partition_index": 0,
        "committed_offset": 3,
        "committed_leader_epoch": -1,
        "committed_metadata": "reset",
    }
    topics = [{"name": "rides", "partitions": [partition]}]
    broker.offload.hold()

    async def one_after_the_other() -> list[Outcome]:
        # As a connection does that has both in its buffer: neither waits for the disk, so nobody can come in between.
        return [
            _handle(broker, Api.LEAVE_GROUP, 3, group_id="drivers", members=leaving),
            _handle(broker, Api.OFFSET_COMMIT, 8, group_id="drivers", member_id="", topics=topics),
        ]

    left, reset = broker.run(one_after_the_other())
    # Members that commit meanwhile come too late.
    late = [broker.start(_commit_late(one)) for one in members]
    broker.run(_call(broker.offload.release))

    assert [one.error_code for one in _read(broker, Api.LEAVE_GROUP, 3, left).members] == [0, 0]
    reply = _read(broker, Api.OFFSET_COMMIT, 8, reset)
    assert reply.topics[0].partitions[0].error_code == 0
    assert [broker.finish(one) for one in late] == [UNKNOWN_MEMBER_ID] * 2
    assert committed(broker, "drivers") == {("rides", 0): 3}
    for member in members:
        member.member_id = ""
    broker.run(_all(one.join_and_sync() for one in members[:1]))


def _handle(broker: RunningBroker, api: Api, version: int, **fields: Any) -> Outcome:
    return handle(decode_request(encode_request(api, version, **fields)), broker.broker)


def _read(broker: RunningBroker, api: Api, version: int, outcome: Outcome) -> Any:
    async def wait() -> Reply:
        assert isinstance(outcome, Pipelined)
        return await outcome.wait()

    return decode_reply(api, version, b"".join(broker.run(wait())))


async def _commit_late(member: Member) -> int:
    partition = {
        "partition_index": 0,
        "committed_offset": 101,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    reply = await member.broker.answer(
        Api.OFFSET_COMMIT,
        8,
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        topics=[{"name": "rides", "partitions": [partition]}],
    )
    return int(reply.topics[0].partitions[0].error_code)


async def _all(works: Any) -> None:
    await asyncio.gather(*works)
    await turns()


async def _call(work: Any) -> Any:
    result = work()
    return await result if isinstance(result, Coroutine) else result
