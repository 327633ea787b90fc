from typing import Any

import pytest

from coordination.group_world import (
    DELAY_MS,
    GROUP,
    SESSION_MS,
    TOPIC,
    GroupWorld,
    error_of,
    subscription,
)
from coordination.shard_world import START_MS
from respool.coordination.groups import offset_requests
from respool.coordination.groups.group_requests import (
    GroupState,
    OffsetCommit,
    OffsetDelete,
    OffsetDeleteReply,
    OffsetToCommit,
    Protocol,
    TopicToCommit,
    TopicToFetch,
)
from respool.model.coordinator_errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidGroupId,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from respool.model.ids import Offset

DAY_MS = 24 * 60 * 60_000
RETENTION_MS = 7 * DAY_MS


# --- who may commit


def test_a_member_of_the_generation_commits() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    assert world.commit(5, member_id=one, generation=1) is None
    assert world.committed() == 5
    world.reload()
    assert world.committed() == 5


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"generation": 0}, IllegalGeneration),
        ({"generation": 2}, IllegalGeneration),
        ({"generation": -1}, IllegalGeneration),
        ({"member_id": "nobody"}, UnknownMemberId),
        ({"member_id": ""}, UnknownMemberId),
        ({"member_id": "", "generation": -1}, UnknownMemberId),
        ({"instance_id": "nobody"}, UnknownMemberId),
    ],
)
def test_a_commit_of_anyone_else_is_refused_and_changes_nothing(
    fields: dict[str, Any], error: type
) -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    world.commit(5, member_id=one, generation=1)
    before = len(world.log)
    good: dict[str, Any] = {"member_id": one, "generation": 1}
    refused = world.commit(9, **(good | fields))
    assert type(refused) is error
    assert world.committed() == 5
    assert len(world.log) == before


def test_the_groups_error_is_told_for_each_partition() -> None:
    world = GroupWorld()
    world.new_members(1)
    some = (OffsetToCommit(0, Offset(1)), OffsetToCommit(1, Offset(1)))
    reply = world.now(
        OffsetCommit(group_id=GROUP, topics=(TopicToCommit("a", some), TopicToCommit("b", some)))
    )
    errors = [one.error for topic in reply.topics for one in topic.partitions]
    assert [type(error) for error in errors] == [UnknownMemberId] * 4


def test_members_may_commit_what_they_have_read_before_they_join_again() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    world.leave(two)
    assert world.state is GroupState.PREPARING_REBALANCE
    assert world.commit(5, member_id=one, generation=1) is None


def test_nobody_commits_between_join_and_assignment() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    world.rejoin(one)
    assert world.state is GroupState.COMPLETING_REBALANCE
    assert type(world.commit(5, member_id=one, generation=2)) is RebalanceInProgress
    assert world.committed() == -1


def test_a_commit_keeps_its_member_alive() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    world.advance(SESSION_MS - 1)
    world.commit(5, member_id=one, generation=1)
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(one, 1).error is None


def test_a_member_that_was_dropped_cannot_move_the_groups_offsets() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    world.advance(SESSION_MS)
    assert type(world.commit(5, member_id=one, generation=1)) is UnknownMemberId


def test_anyone_commits_to_a_group_without_members() -> None:
    world = GroupWorld()
    assert world.commit(5) is None
    world.leave(*world.new_members(1))
    assert world.commit(6) is None
    assert world.commit(7, member_id="tool", generation=-1) is None
    assert world.committed() == 7


def test_a_commit_with_a_generation_needs_a_group() -> None:
    world = GroupWorld()
    fields: dict[str, Any] = {"member_id": "one", "generation": 3}
    assert type(world.commit(5, **fields)) is GroupIdNotFound
    assert type(world.commit(5, knows_member_epochs=False, **fields)) is IllegalGeneration
    world.commit(5)
    assert type(world.commit(6, **fields)) is UnknownMemberId


def test_a_group_id_that_fits_no_record_is_refused() -> None:
    world = GroupWorld()
    assert type(world.commit(5, group_id="g" * 40_000)) is InvalidGroupId


# --- deleting offsets


def delete(world: GroupWorld, topic: str = TOPIC) -> OffsetDeleteReply:
    reply = world.now(OffsetDelete(group_id=GROUP, topics=(TopicToFetch(topic, (0,)),)))
    assert isinstance(reply, OffsetDeleteReply)
    return reply


def test_offsets_of_a_topic_that_is_read_stay() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    for topic in (TOPIC, "old"):
        world.commit(5, topic=topic, member_id=one, generation=1)
    assert type(delete(world).topics[0].partitions[0].error) is GroupSubscribedToTopic
    assert delete(world, "old").topics[0].partitions[0].error is None
    assert (world.committed(), world.committed(topic="old")) == (5, -1)


def test_all_topics_count_as_read_when_a_subscription_cannot_be_read() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1, protocols=(Protocol("range", b"\0\0\0\0\0\5x"),))
    world.commit(5, member_id=one, generation=1)
    assert type(delete(world).topics[0].partitions[0].error) is GroupSubscribedToTopic


def test_a_group_of_another_kind_keeps_its_offsets_while_it_has_members() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1, protocol_type="connect")
    world.commit(5, member_id=one, generation=1)
    assert error_of(delete(world)) is NonEmptyGroup
    world.leave(one)
    assert error_of(delete(world)) is None
    assert world.committed() == -1


def test_there_must_be_a_group_to_delete_offsets_of() -> None:
    world = GroupWorld()
    assert error_of(delete(world)) is GroupIdNotFound


# --- expiry


def test_offsets_stay_while_the_group_has_members_however_old_they_are() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1, session_timeout_ms=30 * 60_000)
    world.commit(5, member_id=one, generation=1)
    for _ in range(2 * RETENTION_MS // (20 * 60_000)):
        world.advance(20 * 60_000)
        assert world.heartbeat(one, 1).error is None
    assert world.committed() == 5


def test_offsets_expire_the_retention_time_after_the_group_emptied() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1, session_timeout_ms=30 * 60_000)
    world.commit(5, member_id=one, generation=1)
    world.advance(20 * 60_000)
    world.leave(one)
    world.advance(RETENTION_MS - 1)
    assert world.committed() == 5
    world.advance(10 * 60_000)
    assert world.committed() == -1
    assert world.state is GroupState.DEAD
    world.reload()
    assert world.state is GroupState.DEAD


def test_offsets_committed_to_an_empty_group_have_their_own_time() -> None:
    """A reset of a group that has been empty for long must not be undone by the next look for old offsets."""
    world = GroupWorld()
    (one,) = world.new_members(1)
    world.commit(5, member_id=one, generation=1)
    world.leave(one)
    world.advance(RETENTION_MS - 60_000)
    world.commit(1)
    world.advance(DAY_MS)
    assert world.committed() == 1


def test_offsets_of_a_group_that_never_had_members_expire_after_their_commit() -> None:
    world = GroupWorld()
    world.commit(5)
    world.advance(RETENTION_MS - 1)
    assert world.committed() == 5
    world.advance(10 * 60_000)
    assert world.committed() == -1
    assert world.state is GroupState.DEAD


def test_offsets_of_a_topic_no_longer_read_expire_under_a_live_group() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1, session_timeout_ms=30 * 60_000)
    for topic in (TOPIC, "old"):
        world.commit(5, topic=topic, member_id=one, generation=1)
    for _ in range(RETENTION_MS // (20 * 60_000) + 2):
        world.advance(20 * 60_000)
        world.heartbeat(one, 1)
    assert (world.committed(), world.committed(topic="old")) == (5, -1)
    assert world.state is GroupState.STABLE


def test_offsets_stay_while_a_subscription_cannot_be_read_or_the_group_rebalances() -> None:
    world = GroupWorld(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1_000)
    unreadable = (Protocol("range", b"?"),)
    (one,) = world.new_members(1, session_timeout_ms=30 * 60_000, protocols=unreadable)
    world.commit(5, member_id=one, generation=1)
    world.advance(10 * 60_000)
    assert world.committed() == 5
    changed = (Protocol("range", subscription("other")),)
    world.join(requires_known_member_id=False, protocols=changed)
    assert world.state is GroupState.PREPARING_REBALANCE
    world.advance(SESSION_MS)
    assert world.committed() == 5


def test_an_empty_group_with_nothing_to_keep_goes_at_the_next_look() -> None:
    world = GroupWorld()
    world.leave(*world.new_members(1))
    world.advance(10 * 60_000)
    assert world.state is GroupState.DEAD


def test_a_group_somebody_is_about_to_join_does_not_go() -> None:
    world = GroupWorld(offsets_retention_check_interval_ms=1_000)
    (one,) = world.new_members(1)
    told = world.joined(world.join())
    world.leave(one)
    world.advance(2_000)
    ticket = world.join(told.member_id)
    world.advance(DELAY_MS)
    assert world.joined(ticket).error is None


@pytest.mark.parametrize("has_member", [False, True])
def test_a_clock_that_was_wrong_at_the_start_expires_no_offsets(has_member: bool) -> None:
    world = GroupWorld()
    if has_member:
        (one,) = world.new_members(1)
        world.commit(5, member_id=one, generation=1)
        world.leave(one)
    else:
        world.commit(5)
    # The next coordinator's machine had a wrong clock when its broker was started; it is right again by now.
    world.now_ms += 30 * DAY_MS
    world.ahead_ms = -30 * DAY_MS
    world.reload()
    world.advance(DAY_MS)
    assert world.committed() == 5
    world.advance(RETENTION_MS)
    assert world.committed() == -1


@pytest.mark.parametrize("ahead_ms", [30 * DAY_MS, -30 * DAY_MS])
def test_a_clock_that_is_set_expires_no_offsets(ahead_ms: int) -> None:
    world = GroupWorld()
    world.commit(5)
    world.ahead_ms = ahead_ms
    world.advance(DAY_MS)
    assert world.committed() == 5


@pytest.mark.parametrize("has_member", [False, True])
def test_commits_made_under_a_clock_that_was_behind_are_not_expired_by_the_next_coordinator(
    has_member: bool,
) -> None:
    world = GroupWorld()
    world.now_ms, world.ahead_ms = 0, START_MS
    world.reload()
    if has_member:
        (one,) = world.new_members(1)
        world.commit(5, member_id=one, generation=1)
        world.leave(one)
    else:
        world.commit(5)
    world.now_ms, world.ahead_ms = START_MS, 0
    world.reload()
    world.advance(DAY_MS)
    assert world.committed() == 5


def test_a_time_the_client_asked_for_runs_by_the_wall_clock() -> None:
    world = GroupWorld()
    world.now_ms, world.ahead_ms = 0, START_MS
    world.commit(5, retention_ms=2 * DAY_MS)
    world.now_ms, world.ahead_ms = START_MS, 0
    world.reload()
    world.advance(DAY_MS)
    assert world.committed() == 5
    world.advance(2 * DAY_MS)
    assert world.committed() == -1


def test_very_many_expire_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_requests, "EXPIRED_RECORDS_MAX", 10)
    world = GroupWorld()
    for number in range(50):
        world.commit(1, group_id=f"g{number}")
    before = len(world.log)
    world.now_ms += RETENTION_MS
    decision = world.shard.on_timer(("offset expiry",), now_ms=world.now_ms)
    assert len(decision.records) == 10
    world.carry_out(decision)
    world.advance(0)
    assert len(world.log) == before + 50
    assert min(world.timers.values()) > world.now_ms
