from typing import Any

import pytest

from coordination.group_world import DELAY_MS, REBALANCE_MS, SESSION_MS, GroupWorld, error_of
from respool.coordination.groups.group_coordinator_shard import HEARD_AGAIN_MS
from respool.coordination.groups.group_requests import GroupState, LeavingMember
from respool.model.coordinator_errors import (
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    RebalanceInProgress,
    UnknownMemberId,
)

# --- sync


def completing(world: GroupWorld, count: int = 2) -> list[str]:
    """Members that have joined, and wait for the leader's assignment."""
    tickets = [world.join(requires_known_member_id=False) for _ in range(count)]
    world.advance(DELAY_MS * (count + 1))
    return [world.joined(ticket).member_id for ticket in tickets]


def test_members_wait_for_what_the_leader_brings() -> None:
    world = GroupWorld()
    leader, other = completing(world)
    waiting = world.sync(other, 1)
    assert not world.has_reply(waiting)
    mine = world.sync(leader, 1, shares={leader: b"mine", other: b"yours"})
    assert world.synced(mine).assignment == b"mine"
    reply = world.synced(waiting)
    assert (reply.error, reply.assignment) == (None, b"yours")
    assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")


def test_the_assignment_is_in_the_log_by_the_decision_that_answers() -> None:
    world = GroupWorld()
    leader, other = completing(world)
    world.sync(leader, 1, shares={leader: b"mine", other: b"yours"})
    assert len(world.log) == 1
    world.reload()
    assert world.synced(world.sync(other, 1)).assignment == b"yours"


def test_who_syncs_later_gets_its_assignment_at_once() -> None:
    world = GroupWorld()
    leader, other = completing(world)
    world.sync(leader, 1, shares={other: b"yours"})
    assert world.synced(world.sync(other, 1)).assignment == b"yours"
    assert world.synced(world.sync(leader, 1)).assignment == b""


def test_only_the_leader_shares_out() -> None:
    world = GroupWorld()
    leader, other = completing(world)
    world.sync(other, 1, shares={leader: b"all", other: b"all"})
    assert world.state is GroupState.COMPLETING_REBALANCE
    world.sync(leader, 1, shares={leader: b"mine", "made-up": b"x"})
    assert world.synced(world.sync(other, 1)).assignment == b""


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"generation": 0}, IllegalGeneration),
        ({"generation": 2}, IllegalGeneration),
        ({"member_id": "nobody"}, UnknownMemberId),
        ({"instance_id": "nobody"}, UnknownMemberId),
        ({"group_id": "other"}, UnknownMemberId),
        ({"group_id": ""}, InvalidGroupId),
        ({"protocol_type": "connect"}, InconsistentGroupProtocol),
        ({"protocol_name": "sticky"}, InconsistentGroupProtocol),
    ],
)
def test_a_sync_that_does_not_fit_is_refused_and_changes_nothing(
    fields: dict[str, Any], error: type
) -> None:
    world = GroupWorld()
    leader, _ = completing(world)
    good: dict[str, Any] = {"member_id": leader, "generation": 1, "shares": {leader: b"x"}}
    assert error_of(world.synced(world.sync(**(good | fields)))) is error
    assert not world.log
    assert world.state is GroupState.COMPLETING_REBALANCE


def test_a_sync_during_the_join_phase_is_told_to_join_again() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    world.join(one)
    assert error_of(world.synced(world.sync(two, 1))) is RebalanceInProgress


def test_who_syncs_twice_is_answered_the_second_time() -> None:
    world = GroupWorld()
    leader, other = completing(world)
    first = world.sync(other, 1)
    second = world.sync(other, 1)
    assert error_of(world.synced(first)) is RebalanceInProgress
    world.sync(leader, 1, shares={other: b"yours"})
    assert world.synced(second).assignment == b"yours"


# --- heartbeats


def test_a_member_that_sends_heartbeats_stays() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    for _ in range(10):
        world.advance(SESSION_MS - 1)
        assert world.heartbeat(one, 1).error is None


def test_a_member_that_falls_silent_is_dropped_and_the_rest_shares_anew() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    world.heartbeat(two, 1)
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(one, 1).error is None
    world.advance(1)
    assert error_of(world.heartbeat(one, 1)) is RebalanceInProgress
    assert error_of(world.heartbeat(two, 1)) is UnknownMemberId
    assert len(world.rejoin(one)[0].members) == 1


def test_members_that_fall_silent_together_leave_the_group_empty() -> None:
    world = GroupWorld()
    world.new_members(3)
    world.advance(SESSION_MS)
    assert world.state is GroupState.EMPTY


def test_heartbeats_set_no_timers() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    before = dict(world.timers)
    for _ in range(100):
        world.now_ms += 10
        world.heartbeat(one, 1)
    assert world.timers == before


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"generation": 0}, IllegalGeneration),
        ({"generation": 2}, IllegalGeneration),
        ({"member_id": "nobody"}, UnknownMemberId),
        ({"instance_id": "nobody"}, UnknownMemberId),
        ({"group_id": "other"}, UnknownMemberId),
        ({"group_id": ""}, InvalidGroupId),
    ],
)
def test_a_heartbeat_that_does_not_fit_is_refused_and_keeps_nobody_alive(
    fields: dict[str, Any], error: type
) -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    world.advance(SESSION_MS // 2)
    good: dict[str, Any] = {"member_id": one, "generation": 1}
    assert error_of(world.heartbeat(**(good | fields))) is error
    world.advance(SESSION_MS // 2)
    assert world.state is GroupState.EMPTY


def test_a_heartbeat_before_the_assignment_is_fine_and_counts() -> None:
    world = GroupWorld()
    leader, other = completing(world)
    for _ in range(8):
        world.advance(SESSION_MS // 2)
        assert world.heartbeat(leader, 1).error is world.heartbeat(other, 1).error is None


def test_sessions_stand_still_while_members_wait_for_the_others() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    joining = world.join(one)
    for _ in range(3):
        world.advance(SESSION_MS - 1)
        world.heartbeat(two, 1)
    joining_two = world.join(two)
    assert world.joined(joining).generation == world.joined(joining_two).generation == 2
    waiting = world.sync(two, 2)
    for _ in range(3):
        world.advance(SESSION_MS - 1)
        world.heartbeat(one, 2)
    world.sync(one, 2)
    assert world.synced(waiting).error is None
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(two, 2).error is None
    world.advance(1)
    assert error_of(world.heartbeat(one, 2)) is UnknownMemberId


def test_a_sync_in_a_stable_group_keeps_the_member_alive() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    world.advance(SESSION_MS - 1)
    world.sync(one, 1)
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(one, 1).error is None


# --- leaving


def test_a_member_that_leaves_makes_the_others_share_anew_at_once() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    assert world.leave(two).members[0].error is None
    assert error_of(world.heartbeat(one, 1)) is RebalanceInProgress
    assert len(world.rejoin(one)[0].members) == 1


def test_the_last_member_to_leave_empties_the_group_for_good() -> None:
    world = GroupWorld()
    world.leave(*world.new_members(2))
    assert world.state is GroupState.EMPTY
    world.reload()
    assert world.state is GroupState.EMPTY


def test_each_member_that_leaves_is_answered_for_itself() -> None:
    world = GroupWorld()
    one, two = world.new_static_members("i1", "i2")
    reply = world.leave(
        LeavingMember("nobody"),
        LeavingMember(one, "i2"),
        LeavingMember("", "i9"),
        LeavingMember("", None),
        LeavingMember("", "i1"),
        LeavingMember(one, "i1"),
    )
    assert [None if left.error is None else type(left.error) for left in reply.members] == [
        UnknownMemberId,
        FencedInstanceId,
        UnknownMemberId,
        UnknownMemberId,
        None,
        UnknownMemberId,
    ]
    assert [left.instance_id for left in reply.members] == [None, "i2", "i9", None, "i1", "i1"]
    assert [member.member_id for member in world.describe().members] == [two]


def test_nobody_shares_anew_when_only_a_pending_member_leaves() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    told = world.joined(world.join())
    assert world.leave(told.member_id).members[0].error is None
    assert world.heartbeat(one, 1).error is None


def test_nobody_shares_anew_when_nobody_left() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    world.leave("nobody")
    assert world.heartbeat(one, 1).error is None


@pytest.mark.parametrize(("group_id", "error"), [("other", UnknownMemberId), ("", InvalidGroupId)])
def test_nobody_can_leave_a_group_that_is_not_there(group_id: str, error: type) -> None:
    world = GroupWorld()
    assert error_of(world.leave("nobody", group_id=group_id)) is error


def test_who_waits_and_is_taken_out_is_told_so() -> None:
    world = GroupWorld()
    one, two, three = world.new_members(3)
    joining = world.join(one)
    world.leave(one)
    assert error_of(world.joined(joining)) is UnknownMemberId
    assert {reply.generation for reply in world.rejoin(two, three)} == {2}
    syncing = world.sync(three, 2)
    world.leave(three)
    assert error_of(world.synced(syncing)) is UnknownMemberId
    assert world.rejoin(two)[0].generation == 3


def test_the_rebalance_ends_when_the_one_it_waits_for_leaves() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    joining = world.join(one)
    world.leave(two)
    assert world.joined(joining).generation == 2


def test_the_rebalance_ends_when_the_one_it_waits_for_falls_silent() -> None:
    world = GroupWorld()
    one, _ = world.new_members(2)
    joining = world.join(one)
    world.advance(SESSION_MS)
    assert world.joined(joining).generation == 2
    assert REBALANCE_MS > SESSION_MS


@pytest.mark.parametrize("phase", ["join", "sync"])
def test_a_rebalance_goes_on_when_the_coordinator_is_heard_again(phase: str) -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    joining = [world.join(one)]
    if phase == "sync":
        joining.append(world.join(two))
        assert all(map(world.has_reply, joining))
    world.now_ms += REBALANCE_MS + SESSION_MS
    world.shard.on_heard_again(now_ms=world.now_ms)
    world.advance(HEARD_AGAIN_MS - 1)
    if phase == "join":
        joining.append(world.join(two))
    assert [len(world.joined(one).members) for one in joining] in ([2, 0], [0, 2])


def test_members_have_some_time_when_the_coordinator_is_heard_again() -> None:
    """It could answer nobody, and its timers waited: that is not the members' silence."""
    world = GroupWorld()
    one, two = world.new_members(2)
    world.now_ms += 5 * SESSION_MS
    world.shard.on_heard_again(now_ms=world.now_ms)
    world.advance(HEARD_AGAIN_MS - 1)
    assert world.heartbeat(one, 1).error is None
    world.advance(1)
    assert error_of(world.heartbeat(two, 1)) is UnknownMemberId
