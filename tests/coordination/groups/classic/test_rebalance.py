from coordination.group_world import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    GroupWorld,
    error_of,
)
from respool.coordination.groups.classic.rebalance import WAIT_MS_MIN
from respool.coordination.groups.group_requests import GroupState, Protocol
from respool.model.coordinator_errors import RebalanceInProgress, UnknownMemberId


def stay_alive(world: GroupWorld, generation: int, *member_ids: str, ms: int) -> None:
    """Let time pass while these members send heartbeats."""
    for _ in range(ms // 1_000):
        world.advance(1_000)
        for member_id in member_ids:
            world.heartbeat(member_id, generation)


# --- the first rebalance of an empty group


def test_an_empty_group_waits_a_little_for_more_members() -> None:
    world = GroupWorld()
    first = world.join(requires_known_member_id=False)
    world.advance(DELAY_MS - 1)
    assert not world.has_reply(first)
    world.advance(1)
    assert world.joined(first).generation == 1


def test_it_waits_again_while_members_come() -> None:
    world = GroupWorld()
    first = world.join(requires_known_member_id=False)
    world.advance(DELAY_MS - 1)
    second = world.join(requires_known_member_id=False)
    world.advance(DELAY_MS)
    assert not world.has_reply(first)
    world.advance(1)
    assert world.joined(first).generation == world.joined(second).generation == 1


def test_it_waits_no_longer_than_the_rebalance_timeout() -> None:
    world = GroupWorld()
    first = world.join(requires_known_member_id=False, rebalance_timeout_ms=8_000)
    for _ in range(7):
        world.advance(1_000)
        world.join(requires_known_member_id=False)
    assert not world.has_reply(first)
    world.advance(1_000)
    assert world.joined(first).generation == 1
    assert len(world.joined(first).members) == 8


def test_without_a_delay_it_does_not_wait() -> None:
    world = GroupWorld(group_initial_rebalance_delay_ms=0)
    assert world.joined(world.join(requires_known_member_id=False)).generation == 1


def test_a_group_whose_first_members_leave_at_once_is_gone() -> None:
    world = GroupWorld()
    told = world.joined(world.join())
    waiting = world.join(told.member_id)
    world.leave(told.member_id)
    assert error_of(world.joined(waiting)) is UnknownMemberId
    world.advance(DELAY_MS)
    assert world.state is GroupState.DEAD
    assert not world.log


# --- later ones


def test_a_rebalance_ends_when_all_have_joined() -> None:
    world = GroupWorld()
    one, two, three = world.new_members(3)
    tickets = [world.join(one), world.join(two)]
    assert not any(map(world.has_reply, tickets))
    world.join(three)
    assert all(world.joined(ticket).generation == 2 for ticket in tickets)


def test_a_pending_member_is_waited_for_too() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    told = world.joined(world.join())
    rejoined = world.join(one)
    assert not world.has_reply(rejoined)
    world.join(told.member_id)
    assert world.joined(rejoined).generation == 2


def test_a_rebalance_waits_for_a_pending_member_only_its_session_timeout() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    world.join()
    rejoined = world.join(one)
    world.advance(SESSION_MS)
    assert world.joined(rejoined).generation == 2


def test_a_rebalance_goes_on_when_a_pending_member_leaves() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    told = world.joined(world.join())
    rejoined = world.join(one)
    assert world.leave(told.member_id).members[0].error is None
    assert world.joined(rejoined).generation == 2


def test_members_that_do_not_join_in_time_are_dropped() -> None:
    world = GroupWorld()
    leader, slow = world.new_members(2)
    rejoined = world.join(leader)
    stay_alive(world, 1, slow, ms=REBALANCE_MS - 1_000)
    assert not world.has_reply(rejoined)
    world.advance(1_000)
    assert len(world.joined(rejoined).members) == 1
    assert error_of(world.heartbeat(slow, 1)) is UnknownMemberId


def test_the_longest_rebalance_timeout_counts() -> None:
    world = GroupWorld()
    tickets = [
        world.join(requires_known_member_id=False, rebalance_timeout_ms=ms)
        for ms in (10_000, 90_000)
    ]
    world.advance(3 * DELAY_MS)
    one, two = (world.joined(ticket).member_id for ticket in tickets)
    world.share_out([one, two], 1)
    rejoined = world.join(one)
    stay_alive(world, 1, two, ms=89_000)
    assert not world.has_reply(rejoined)
    world.advance(1_000)
    assert world.joined(rejoined).generation == 2


def test_another_leads_when_the_leader_does_not_join() -> None:
    world = GroupWorld()
    leader, other = world.new_members(2)
    newcomer = world.join(requires_known_member_id=False)
    rejoined = world.join(other)
    world.advance(REBALANCE_MS)
    assert world.joined(rejoined).leader != leader
    told = [world.joined(one) for one in (rejoined, newcomer)]
    assert [len(reply.members) for reply in told if reply.leader == reply.member_id] == [2]


def test_a_static_member_that_does_not_join_stays_until_its_session_ends() -> None:
    world = GroupWorld()
    one, two = world.new_static_members("i1", "i2", session_timeout_ms=3 * REBALANCE_MS)
    rejoined = world.join(one, instance_id="i1", session_timeout_ms=3 * REBALANCE_MS)
    world.advance(REBALANCE_MS)
    assert [member.member_id for member in world.joined(rejoined).members] == [one, two]


def test_an_absent_static_leader_does_not_lead_on() -> None:
    world = GroupWorld()
    long_ms = 3 * REBALANCE_MS
    leader, other = world.new_static_members("i1", "i2", session_timeout_ms=long_ms)
    changed = (Protocol("range", b"changed"),)
    rejoined = world.join(other, instance_id="i2", session_timeout_ms=long_ms, protocols=changed)
    world.advance(REBALANCE_MS)
    reply = world.joined(rejoined)
    assert reply.leader == other
    assert [member.member_id for member in reply.members] == [leader, other]


def test_only_absent_static_members_are_left_and_go_with_their_sessions() -> None:
    world = GroupWorld()
    long_ms = 10 * REBALANCE_MS
    tickets = [
        world.join(instance_id="i1", session_timeout_ms=long_ms),
        world.join(requires_known_member_id=False),
    ]
    world.advance(3 * DELAY_MS)
    world.share_out([world.joined(ticket).member_id for ticket in tickets], 1)
    dynamic = world.joined(tickets[1]).member_id
    world.leave(dynamic)
    world.advance(2 * REBALANCE_MS)
    assert world.state is GroupState.PREPARING_REBALANCE
    world.advance(long_ms)
    assert world.describe().state is GroupState.EMPTY


def test_a_rebalance_timeout_of_nothing_leaves_time_to_sync() -> None:
    world = GroupWorld()
    ticket = world.join(requires_known_member_id=False, rebalance_timeout_ms=-5)
    world.advance(DELAY_MS)
    reply = world.joined(ticket)
    world.advance(WAIT_MS_MIN - 1)
    assert world.synced(world.sync(reply.member_id, 1)).error is None


# --- the sync phase


def test_members_that_never_sync_are_dropped_after_the_rebalance_timeout() -> None:
    world = GroupWorld()
    tickets = [world.join(requires_known_member_id=False) for _ in range(3)]
    world.advance(4 * DELAY_MS)
    leader, good, silent = (world.joined(ticket).member_id for ticket in tickets)
    started_ms = world.now_ms - DELAY_MS
    world.sync(good, 1)
    world.sync(leader, 1, shares={silent: b"lost"})
    assert world.state is GroupState.STABLE
    stay_alive(world, 1, leader, good, silent, ms=REBALANCE_MS)
    assert world.now_ms >= started_ms + REBALANCE_MS
    assert error_of(world.heartbeat(silent, 1)) is UnknownMemberId
    assert error_of(world.heartbeat(leader, 1)) is RebalanceInProgress
    assert {reply.generation for reply in world.rejoin(leader, good)} == {2}


def test_a_leader_that_never_syncs_does_not_hold_the_others_up() -> None:
    world = GroupWorld()
    tickets = [world.join(requires_known_member_id=False) for _ in range(2)]
    world.advance(3 * DELAY_MS)
    leader, other = (world.joined(ticket).member_id for ticket in tickets)
    waiting = world.sync(other, 1)
    stay_alive(world, 1, leader, ms=REBALANCE_MS)
    assert error_of(world.synced(waiting)) is RebalanceInProgress
    assert error_of(world.heartbeat(leader, 1)) is UnknownMemberId
    assert world.rejoin(other)[0].leader == other


def test_nobody_is_dropped_when_all_have_synced() -> None:
    world = GroupWorld()
    ids = world.new_members(3)
    stay_alive(world, 1, *ids, ms=2 * REBALANCE_MS)
    assert world.state is GroupState.STABLE
    assert len(world.log) == 1


def test_when_no_member_syncs_the_group_empties() -> None:
    world = GroupWorld()
    ids = world.new_members(2)
    world.rejoin(*ids)
    stay_alive(world, 2, *ids, ms=REBALANCE_MS)
    assert world.state is GroupState.EMPTY
    assert all(error_of(world.heartbeat(one, 2)) is UnknownMemberId for one in ids)


def test_a_first_generation_that_never_syncs_leaves_nothing_in_the_log() -> None:
    world = GroupWorld()
    ticket = world.join(requires_known_member_id=False)
    world.join()
    world.advance(DELAY_MS)
    (lazy,) = (world.joined(ticket).member_id,)
    stay_alive(world, 1, lazy, ms=REBALANCE_MS)
    assert world.state is GroupState.DEAD
    assert not world.log


def test_who_was_told_to_join_again_has_its_whole_session_for_that() -> None:
    """It waited in a sync, for longer than its session, and could not send heartbeats meanwhile."""
    world = GroupWorld()
    tickets = [world.join(requires_known_member_id=False) for _ in range(2)]
    world.advance(3 * DELAY_MS)
    leader, other = (world.joined(ticket).member_id for ticket in tickets)
    world.sync(other, 1)
    stay_alive(world, 1, leader, ms=2 * SESSION_MS)
    world.leave(leader)
    world.advance(SESSION_MS - 1)
    assert world.rejoin(other)[0].generation == 2


def test_a_sync_phase_that_was_broken_off_drops_nobody() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    world.rejoin(one, two)
    world.advance(1_000)
    world.join(one, protocols=(Protocol("range", b"changed"),))
    stay_alive(world, 2, two, ms=REBALANCE_MS - 1_000)
    world.advance(500)
    # The syncs of the second generation would have been due half a second ago.
    assert world.joined(world.join(two)).generation == 3
