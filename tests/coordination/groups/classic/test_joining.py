import pytest

from coordination.group_world import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    GroupWorld,
    error_of,
    subscription,
)
from respool.coordination.decision import Ticket
from respool.coordination.groups.classic.joining import NEW_MEMBER_JOIN_MS
from respool.coordination.groups.group_requests import GroupState, Protocol
from respool.model.coordinator_errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from respool.model.errors import InvalidRequest

RANGE = Protocol("range", subscription(TOPIC))
STICKY = Protocol("sticky", subscription(TOPIC))
ROUND = Protocol("roundrobin", subscription(TOPIC))


# --- who may join


def test_a_new_member_is_told_its_id_and_joins_with_it() -> None:
    world = GroupWorld()
    told = world.joined(world.join())
    assert error_of(told) is MemberIdRequired
    assert told.member_id == "app-00000000-0000-0000-0000-000000000001"
    again = world.join(told.member_id)
    assert not world.has_reply(again)
    world.advance(DELAY_MS)
    reply = world.joined(again)
    assert (reply.error, reply.member_id, reply.generation) == (None, told.member_id, 1)
    assert reply.leader == told.member_id
    assert [member.member_id for member in reply.members] == [told.member_id]


def test_an_old_client_joins_without_knowing_its_id() -> None:
    world = GroupWorld()
    ticket = world.join(requires_known_member_id=False)
    world.advance(DELAY_MS)
    assert world.joined(ticket).generation == 1


def test_a_pending_member_that_does_not_come_back_is_forgotten() -> None:
    world = GroupWorld()
    told = world.joined(world.join())
    world.advance(SESSION_MS)
    assert error_of(world.joined(world.join(told.member_id))) is UnknownMemberId


def test_a_group_that_nobody_came_back_to_leaves_no_trace() -> None:
    world = GroupWorld()
    world.join()
    assert world.state is GroupState.EMPTY
    world.advance(SESSION_MS)
    assert world.describe().state is GroupState.DEAD
    assert not world.log


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001, -1])
def test_a_session_timeout_out_of_range_is_refused(timeout_ms: int) -> None:
    world = GroupWorld()
    assert (
        error_of(world.joined(world.join(session_timeout_ms=timeout_ms))) is InvalidSessionTimeout
    )
    assert world.state is GroupState.DEAD


@pytest.mark.parametrize("group_id", ["", "g" * 32_768])
def test_a_group_id_that_cannot_be_is_refused(group_id: str) -> None:
    world = GroupWorld()
    assert error_of(world.joined(world.join(group_id=group_id))) is InvalidGroupId


def test_a_group_id_may_have_any_characters() -> None:
    world = GroupWorld()
    name = "../\n\0 ☃'\""
    ticket = world.join(group_id=name, requires_known_member_id=False)
    world.advance(DELAY_MS)
    reply = world.joined(ticket)
    world.sync(reply.member_id, 1, group_id=name)
    world.reload()
    assert world.describe(name).state is GroupState.STABLE


def test_an_id_that_no_member_has_is_refused() -> None:
    world = GroupWorld()
    assert error_of(world.joined(world.join("app-unknown"))) is UnknownMemberId
    world.new_members(1)
    assert error_of(world.joined(world.join("app-unknown"))) is UnknownMemberId


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("", (RANGE,)),
        ("consumer", ()),
        ("x" * 40_000, (RANGE,)),
        ("consumer", (Protocol("x" * 40_000, b""),)),
    ],
)
def test_a_first_member_must_bring_a_protocol(
    protocol_type: str, protocols: tuple[Protocol, ...]
) -> None:
    world = GroupWorld()
    reply = world.joined(world.join(protocol_type=protocol_type, protocols=protocols))
    assert error_of(reply) is InconsistentGroupProtocol
    assert world.state is GroupState.DEAD


def test_a_member_with_no_protocol_in_common_is_refused() -> None:
    world = GroupWorld()
    ids = world.new_members(2, protocols=(RANGE, STICKY))
    for fields in ({"protocols": (ROUND,)}, {"protocol_type": "connect"}):
        assert error_of(world.joined(world.join(**fields))) is InconsistentGroupProtocol
    assert world.heartbeat(ids[0], 1).error is None


def test_an_instance_id_that_fits_no_record_is_refused() -> None:
    world = GroupWorld()
    assert error_of(world.joined(world.join(instance_id="i" * 40_000))) is InvalidRequest


def test_a_long_client_id_makes_no_long_member_id() -> None:
    world = GroupWorld()
    assert len(world.joined(world.join(client_id="c" * 32_000)).member_id) < 300


def test_a_full_group_takes_no_more() -> None:
    world = GroupWorld(group_max_size=2)
    ids = world.new_members(2)
    assert error_of(world.joined(world.join())) is GroupMaxSizeReached
    assert error_of(world.joined(world.join(instance_id="i"))) is GroupMaxSizeReached
    assert world.heartbeat(ids[0], 1).error is None


def test_a_group_fills_up_while_it_waits_for_joins() -> None:
    world = GroupWorld(group_max_size=2)
    first, second, third = (world.join(requires_known_member_id=False) for _ in range(3))
    assert error_of(world.joined(third)) is GroupMaxSizeReached
    world.advance(DELAY_MS * 2)
    assert world.joined(first).generation == world.joined(second).generation == 1


def test_a_limit_lowered_lets_those_stay_who_join_first() -> None:
    world = GroupWorld()
    ids = world.new_members(3)
    world.settings = GroupWorld(group_max_size=2).settings
    world.reload()
    assert world.state is GroupState.PREPARING_REBALANCE
    first, second, third = (world.join(one) for one in ids)
    assert error_of(world.joined(third)) is GroupMaxSizeReached
    assert world.joined(first).generation == world.joined(second).generation == 2
    assert len(world.describe().members) == 2


# --- what a join sets off


def test_a_new_member_makes_the_others_join_again() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    newcomer = world.join(requires_known_member_id=False)
    assert error_of(world.heartbeat(one, 1)) is RebalanceInProgress
    replies = world.rejoin(one, two)
    assert {reply.generation for reply in replies} == {2} == {world.joined(newcomer).generation}
    assert world.joined(newcomer).leader == one
    assert len(replies[0].members) == 3
    assert replies[1].members == ()


def test_the_leader_may_ask_for_a_rebalance_with_nothing_changed() -> None:
    world = GroupWorld()
    leader, other = world.new_members(2)
    again = world.join(leader)
    assert not world.has_reply(again)
    assert error_of(world.heartbeat(other, 1)) is RebalanceInProgress


def test_another_member_that_joins_with_nothing_changed_is_told_the_generation() -> None:
    world = GroupWorld()
    leader, other = world.new_members(2)
    reply = world.joined(world.join(other))
    assert (reply.error, reply.generation, reply.leader, reply.members) == (None, 1, leader, ())
    assert world.state is GroupState.STABLE


def test_a_changed_subscription_makes_a_rebalance() -> None:
    world = GroupWorld()
    leader, other = world.new_members(2)
    changed = Protocol("range", subscription(TOPIC, "more"))
    ticket = world.join(other, protocols=(changed,))
    assert world.state is GroupState.PREPARING_REBALANCE
    told = world.joined(world.join(leader))
    assert {one.member_id: one.metadata for one in told.members}[other] == changed.metadata
    assert world.joined(ticket).generation == 2


def test_a_member_that_missed_the_answer_to_its_join_gets_it_again() -> None:
    world = GroupWorld()
    ids = [world.joined(one).member_id for one in _begun(world, 2)]
    reply = world.joined(world.join(ids[0]))
    assert (reply.generation, len(reply.members)) == (1, 2)
    assert world.state is GroupState.COMPLETING_REBALANCE


def test_a_member_that_changes_before_the_sync_begins_the_rebalance_again() -> None:
    world = GroupWorld()
    one, two = (world.joined(ticket).member_id for ticket in _begun(world, 2))
    waiting = world.sync(two, 1)
    world.join(one, protocols=(Protocol("range", subscription("other")),))
    assert error_of(world.synced(waiting)) is RebalanceInProgress
    assert world.state is GroupState.PREPARING_REBALANCE


def test_who_asks_twice_is_answered_the_second_time() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    first = world.join(one)
    second = world.join(one)
    assert error_of(world.joined(first)) is RebalanceInProgress
    world.join(two)
    assert world.joined(second).generation == 2


def test_a_new_member_that_waits_too_long_is_dropped() -> None:
    world = GroupWorld(group_max_session_timeout_ms=2 * NEW_MEMBER_JOIN_MS)
    slow = world.new_members(
        1, rebalance_timeout_ms=10 * NEW_MEMBER_JOIN_MS, session_timeout_ms=2 * NEW_MEMBER_JOIN_MS
    )
    ghost = world.join(requires_known_member_id=False)
    world.advance(NEW_MEMBER_JOIN_MS)
    assert error_of(world.joined(ghost)) is UnknownMemberId
    assert world.rejoin(*slow)[0].generation == 2


# --- protocols


def test_the_protocol_most_members_like_best_is_chosen() -> None:
    world = GroupWorld()
    likes = [(RANGE, STICKY), (STICKY, RANGE), (STICKY, ROUND, RANGE)]
    tickets = [world.join(requires_known_member_id=False, protocols=one) for one in likes]
    world.advance(DELAY_MS * 4)
    assert {world.joined(ticket).protocol_name for ticket in tickets} == {"sticky"}


def test_only_a_protocol_that_all_support_is_chosen() -> None:
    world = GroupWorld()
    likes = [(STICKY, RANGE), (STICKY, RANGE), (RANGE,)]
    tickets = [world.join(requires_known_member_id=False, protocols=one) for one in likes]
    world.advance(DELAY_MS * 4)
    assert {world.joined(ticket).protocol_name for ticket in tickets} == {"range"}


def test_a_group_moves_to_another_protocol_one_member_after_the_other() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    world.join(one, protocols=(STICKY, RANGE))
    assert world.joined(world.join(two)).protocol_name == "range"
    world.share_out([one, two], 2)
    world.join(two, protocols=(STICKY, RANGE))
    assert world.joined(world.join(one, protocols=(STICKY, RANGE))).protocol_name == "sticky"


def test_a_group_left_by_all_may_begin_with_another_type() -> None:
    world = GroupWorld()
    world.leave(*world.new_members(2))
    ticket = world.join(protocol_type="connect", protocols=(ROUND,), requires_known_member_id=False)
    world.advance(DELAY_MS)
    assert world.joined(ticket).protocol_type == "connect"


# --- static members


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    world = GroupWorld()
    old, other = world.new_static_members("i1", "i2")
    reply = world.joined(world.join(instance_id="i2"))
    assert (reply.error, reply.generation, reply.skip_assignment) == (None, 1, False)
    assert reply.member_id not in (old, other)
    assert world.heartbeat(old, 1, instance_id="i1").error is None
    synced = world.synced(world.sync(reply.member_id, 1, instance_id="i2"))
    assert synced.assignment == other.encode()


def test_the_member_it_replaces_is_fenced_everywhere() -> None:
    world = GroupWorld()
    (old,) = world.new_static_members("i1")
    world.join(instance_id="i1")
    assert error_of(world.heartbeat(old, 1, instance_id="i1")) is FencedInstanceId
    assert error_of(world.synced(world.sync(old, 1, instance_id="i1"))) is FencedInstanceId
    assert error_of(world.joined(world.join(old, instance_id="i1"))) is FencedInstanceId
    error = world.commit(5, member_id=old, generation=1, instance_id="i1")
    assert type(error) is FencedInstanceId
    assert world.committed() == -1


def test_a_static_member_keeps_its_place_when_the_coordinator_is_lost() -> None:
    world = GroupWorld()
    world.new_static_members("i1", "i2")
    new = world.joined(world.join(instance_id="i1")).member_id
    world.reload()
    assert world.heartbeat(new, 1, instance_id="i1").error is None
    assert world.describe().members[0].assignment


def test_a_leader_that_comes_back_is_told_not_to_share_out_anew() -> None:
    world = GroupWorld()
    leader, _ = world.new_static_members("i1", "i2")
    reply = world.joined(world.join(instance_id="i1"))
    assert reply.skip_assignment
    assert reply.leader == reply.member_id
    assert len(reply.members) == 2
    assert world.synced(world.sync(reply.member_id, 1)).assignment == leader.encode()


def test_an_old_client_that_led_is_told_that_another_leads() -> None:
    world = GroupWorld()
    leader, _ = world.new_static_members("i1", "i2")
    reply = world.joined(world.join(instance_id="i1", supports_skipping_assignment=False))
    assert (reply.skip_assignment, reply.leader, reply.members) == (False, leader, ())


def test_a_static_member_that_changes_the_protocol_makes_a_rebalance() -> None:
    world = GroupWorld()
    world.new_static_members("i1", "i2", protocols=(RANGE, STICKY))
    ticket = world.join(instance_id="i1", protocols=(STICKY,))
    assert not world.has_reply(ticket)
    assert world.state is GroupState.PREPARING_REBALANCE


def test_a_static_member_that_comes_back_before_the_sync_makes_a_rebalance() -> None:
    world = GroupWorld()
    tickets = [world.join(instance_id=one) for one in ("i1", "i2")]
    world.advance(DELAY_MS * 3)
    one, two = (world.joined(ticket).member_id for ticket in tickets)
    waiting = world.sync(two, 1, instance_id="i2")
    new = world.join(instance_id="i2")
    assert error_of(world.synced(waiting)) is FencedInstanceId
    assert world.state is GroupState.PREPARING_REBALANCE
    world.join(one, instance_id="i1")
    assert world.joined(new).generation == 2


def test_a_static_member_that_joins_twice_is_one_member() -> None:
    world = GroupWorld()
    first = world.join(instance_id="i1")
    second = world.join(instance_id="i1")
    assert error_of(world.joined(first)) is FencedInstanceId
    world.advance(DELAY_MS)
    assert world.joined(second).generation == 1
    assert len(world.describe().members) == 1


def test_a_static_member_with_an_id_that_was_never_its_own_is_unknown() -> None:
    world = GroupWorld()
    world.new_static_members("i1")
    assert error_of(world.joined(world.join("made-up", instance_id="i9"))) is UnknownMemberId


def test_a_pending_member_cannot_turn_static() -> None:
    world = GroupWorld()
    told = world.joined(world.join())
    assert error_of(world.joined(world.join(told.member_id, instance_id="i1"))) is UnknownMemberId


def test_a_static_member_that_comes_back_and_never_syncs_is_dropped() -> None:
    world = GroupWorld()
    world.new_static_members("i1")
    lazy = world.joined(world.join(instance_id="i1")).member_id
    for _ in range(REBALANCE_MS // 5_000 - 1):
        world.advance(5_000)
        assert world.heartbeat(lazy, 1).error is None
    world.advance(5_000)
    assert error_of(world.heartbeat(lazy, 1)) is UnknownMemberId


def test_a_static_member_that_comes_back_and_syncs_stays() -> None:
    """It was replaced before it had synced: the newcomer syncs, and nobody waits for the old one."""
    world = GroupWorld()
    tickets = [world.join(instance_id=one) for one in ("i1", "i2")]
    world.advance(DELAY_MS * 3)
    leader, other = (world.joined(ticket).member_id for ticket in tickets)
    world.sync(leader, 1, shares={leader: b"l", other: b"o"})
    assert world.state is GroupState.STABLE
    new = world.joined(world.join(instance_id="i2")).member_id
    assert world.synced(world.sync(new, 1)).assignment == b"o"
    for _ in range(REBALANCE_MS // 5_000 + 1):
        world.advance(5_000)
        assert world.heartbeat(leader, 1).error is world.heartbeat(new, 1).error is None
    assert world.state is GroupState.STABLE


def _begun(world: GroupWorld, count: int) -> list[Ticket]:
    """Members that have joined and not synced yet."""
    tickets = [world.join(requires_known_member_id=False) for _ in range(count)]
    world.advance(DELAY_MS * (count + 1))
    return tickets
