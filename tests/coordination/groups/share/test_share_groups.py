"""Share groups at their coordinator: members, assignment, state at the share coordinator, and what operators change."""

from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordination.group_world import join_of
from coordination.share_group_world import GROUP, SESSION_MS, ShareWorld, heartbeat_of
from respool.coordination.decision import Ticket
from respool.coordination.groups.consumer.consumer_requests import ConsumerGroupHeartbeat
from respool.coordination.groups.consumer.partition_sets import union
from respool.coordination.groups.group_requests import (
    DescribeGroups,
    FenceGroup,
    GroupState,
    ListGroups,
    OffsetCommit,
    OffsetToCommit,
    TopicToCommit,
)
from respool.coordination.groups.share.share_group_requests import (
    AlterShareStarts,
    DeleteShareGroup,
    DeleteShareStates,
    FindShareStates,
    InitializeShareStates,
    RemoveShareStates,
    ShareStart,
)
from respool.model.coordinator_errors import (
    CoordinatorNotAvailable,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidGroupId,
    NonEmptyGroup,
    UnknownMemberId,
)
from respool.model.errors import InvalidRequest
from respool.model.ids import Offset, TopicId


def all_of(world: ShareWorld, topic: str) -> dict[TopicId, frozenset[int]]:
    found = world.topics[topic]
    return {found.topic_id: frozenset(range(found.partition_count))}


# --- joining


def test_the_first_reply_has_the_partitions_once_they_have_state() -> None:
    world = ShareWorld()
    world.create("orders", 3)
    world.carries_out_at_once = False
    ticket = world.beat("one", 0, "orders")
    assert not world.has_reply(ticket)
    (effect,) = world.effects
    assert isinstance(effect, InitializeShareStates)
    # A new group begins where share.auto.offset.reset says.
    assert {one.offset for one in effect.starts} == {-1}

    world.carry_out_effects()

    reply = world.replies[ticket]
    assert (reply.error, reply.assignment) == (None, all_of(world, "orders"))
    assert reply.heartbeat_interval_ms == 5_000
    assert world.described().assignment_epoch == reply.member_epoch == world.described().epoch


def test_a_second_member_has_partitions_with_its_first_reply_and_nobody_loses_any() -> None:
    world = ShareWorld()
    world.create("orders", 1)
    one = world.beaten("one", 0, "orders")
    two = world.beaten("two", 0, "orders")
    assert one.assignment == two.assignment == all_of(world, "orders")
    again = world.beaten("one", one.member_epoch)
    assert again.assignment is None or again.assignment == all_of(world, "orders")


def test_the_reply_does_not_wait_for_the_share_coordinator_for_ever() -> None:
    world = ShareWorld()
    world.create("orders", 1)
    world.carries_out_at_once = False
    ticket = world.beat("one", 0, "orders")
    world.advance(999)
    assert not world.has_reply(ticket)
    world.advance(1)
    reply = world.replies[ticket]
    assert (reply.error, reply.assignment) == (None, {})
    world.carry_out_effects()
    later = world.beaten("one", reply.member_epoch)
    assert later.assignment == all_of(world, "orders")


def test_state_that_cannot_be_initialized_is_tried_again() -> None:
    world = ShareWorld()
    world.create("orders", 1)
    world.carries_out_at_once = False
    ticket = world.beat("one", 0, "orders")
    world.carry_out_effects(fails=True)
    assert not world.has_reply(ticket)
    assert world.effects == []
    world.advance(1_000)
    assert len(world.effects) == 1
    world.carry_out_effects()
    assert world.beaten("one", world.replies[ticket].member_epoch).assignment == all_of(
        world, "orders"
    )


def test_a_topic_that_does_not_exist_is_assigned_when_it_comes() -> None:
    world = ShareWorld()
    reply = world.beaten("one", 0, "orders")
    assert (reply.error, reply.assignment) == (None, {})
    world.create("orders", 2)
    assert world.beaten("one", reply.member_epoch).assignment == all_of(world, "orders")


def test_new_partitions_of_a_known_topic_begin_at_0_whatever_the_reset_says() -> None:
    world = ShareWorld()
    topic_id = world.create("orders", 1)
    epoch = world.beaten("one", 0, "orders").member_epoch
    world.enlarge("orders", 3)
    assert world.beaten("one", epoch).assignment == all_of(world, "orders")
    assert {number: world.stored[GROUP, topic_id, number][1] for number in range(3)} == {
        0: -1,
        1: 0,
        2: 0,
    }


def test_the_rest_of_a_new_topic_is_no_new_partition_after_a_failover() -> None:
    world = ShareWorld()
    topic_id = world.create("orders", 2)
    world.carries_out_at_once = False
    world.beat("one", 0, "orders")
    world.reload()
    # The new coordinator does again what was to be done.
    world.carry_out_effects()
    assert {world.stored[GROUP, topic_id, number] for number in range(2)} == {(0, -1)}


def test_a_recreated_topic_is_another_one_and_the_old_state_is_deleted() -> None:
    world = ShareWorld()
    old = world.create("orders", 1)
    epoch = world.beaten("one", 0, "orders").member_epoch
    world.delete("orders")
    assert world.stored == {}
    reply = world.beaten("one", epoch)
    assert reply.assignment == {}
    new = world.create("orders", 1)
    assert new != old
    assert world.beaten("one", reply.member_epoch).assignment == all_of(world, "orders")
    assert world.stored_partitions() == all_of(world, "orders")


# --- heartbeats


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": ""}, InvalidRequest),
        ({"member_id": ""}, InvalidRequest),
        ({"member_id": "x" * 37}, InvalidRequest),
        ({"rack_id": ""}, InvalidRequest),
        ({"topic_names": None}, InvalidRequest),
        ({"topic_names": ()}, InvalidRequest),
        ({"member_epoch": -2}, InvalidRequest),
        ({"group_id": "x" * 40_000}, InvalidRequest),
        ({"member_epoch": 1}, GroupIdNotFound),
        ({"member_epoch": -1}, GroupIdNotFound),
    ],
)
def test_a_heartbeat_that_cannot_be_is_refused_and_changes_nothing(
    fields: dict[str, Any], error: type[Exception]
) -> None:
    world = ShareWorld()
    before = list(world.log)
    reply = world.now(heartbeat_of("one", 0, "orders", **fields))
    assert isinstance(reply.error, error)
    assert world.log == before


def test_epochs_of_members() -> None:
    world = ShareWorld()
    world.create("orders", 1)
    first = world.beaten("one", 0, "orders").member_epoch
    assert isinstance(world.beaten("nobody", first).error, UnknownMemberId)
    assert isinstance(world.beaten("one", first + 1).error, FencedMemberEpoch)
    world.create("trips", 1)
    # The reply with the new epoch is lost: the one before is still taken, with the whole assignment.
    second = world.beaten("one", first, "orders", "trips")
    assert second.member_epoch > first
    again = world.beaten("one", first)
    assert (again.member_epoch, again.assignment) == (second.member_epoch, second.assignment)
    third = world.beaten("one", second.member_epoch, "orders")
    assert isinstance(world.beaten("one", first).error, FencedMemberEpoch)
    # A member that joins again under its id is the same one.
    assert world.beaten("one", 0, "orders").member_epoch == third.member_epoch
    assert len(world.described().members) == 1


def test_a_heartbeat_without_changes_writes_nothing() -> None:
    world = ShareWorld()
    world.create("orders", 1)
    epoch = world.beaten("one", 0, "orders").member_epoch
    before = list(world.log)
    assert world.beaten("one", epoch).assignment is None
    # librdkafka repeats its topics.
    assert world.beaten("one", epoch, "orders").assignment == all_of(world, "orders")
    assert world.log == before


def test_a_group_has_room_for_so_many_members() -> None:
    world = ShareWorld(group_share_max_size=2)
    world.create("orders", 1)
    for member in ("one", "two"):
        assert world.beaten(member, 0, "orders").error is None
    assert isinstance(world.beaten("three", 0, "orders").error, GroupMaxSizeReached)
    assert world.beaten("one", 0, "orders").error is None


def test_a_member_that_is_silent_is_removed_and_one_that_leaves_is_gone_at_once() -> None:
    world = ShareWorld()
    world.create("orders", 2)
    one = world.beaten("one", 0, "orders").member_epoch
    world.beaten("two", 0, "orders")
    world.advance(SESSION_MS - 1)
    one = world.beaten("one", one).member_epoch
    world.advance(1)
    assert [member.member_id for member in world.described().members] == ["one"]
    assert world.beaten("one", one).assignment == all_of(world, "orders")
    assert world.beaten("one", -1).member_epoch == -1
    assert world.described().state is GroupState.EMPTY


def test_a_group_may_have_its_own_session_timeout_and_interval() -> None:
    world = ShareWorld()
    world.configure(share_session_timeout_ms="60000", share_heartbeat_interval_ms="7000")
    world.create("orders", 1)
    assert world.beaten("one", 0, "orders").heartbeat_interval_ms == 7_000
    world.advance(59_999)
    assert len(world.described().members) == 1
    world.advance(1)
    assert world.described().members == ()


def test_members_get_time_after_an_outage_of_the_coordinator() -> None:
    world = ShareWorld()
    world.create("orders", 1)
    world.beaten("one", 0, "orders")
    world.now_ms += SESSION_MS - 1
    world.shard.on_heard_again(now_ms=world.now_ms)
    world.advance(9_999)
    assert len(world.described().members) == 1
    world.advance(1)
    assert world.described().members == ()


def test_a_newer_heartbeat_takes_the_place_of_one_that_waits() -> None:
    world = ShareWorld()
    world.create("orders", 1)
    world.carries_out_at_once = False
    old, new = world.beat("one", 0, "orders"), world.beat("one", 0, "orders")
    assert isinstance(world.replies[old].error, CoordinatorNotAvailable)
    world.carry_out_effects()
    assert world.replies[new].assignment == all_of(world, "orders")


# --- groups of other kinds


def test_a_share_group_is_no_consumer_group_and_the_other_way_round() -> None:
    world = ShareWorld()
    world.create("orders", 1)
    world.beaten("one", 0, "orders")
    commit = OffsetCommit(
        group_id=GROUP,
        topics=(TopicToCommit("orders", (OffsetToCommit(0, Offset(5)),)),),
    )
    (topic,) = world.now(commit).topics
    assert topic.partitions[0].error is not None
    assert isinstance(world.now(join_of("", group_id=GROUP)).error, GroupIdNotFound)
    heartbeat = ConsumerGroupHeartbeat(
        group_id=GROUP,
        member_id="m",
        member_epoch=0,
        client_id="c",
        client_host="h",
        rebalance_timeout_ms=1_000,
        topic_names=("orders",),
        owned={},
    )
    assert isinstance(world.now(heartbeat).error, GroupIdNotFound)
    (told,) = world.now(DescribeGroups(group_ids=(GROUP,))).groups
    assert isinstance(told.error, GroupIdNotFound)
    assert isinstance(
        world.now(FenceGroup(group_id=GROUP, topics=commit.topics)).error, GroupIdNotFound
    )

    world.now(
        OffsetCommit(group_id="offsets only", topics=commit.topics),
    )
    for taken in ("offsets only",):
        reply = world.beaten("one", 0, "orders", group_id=taken)
        assert isinstance(reply.error, GroupIdNotFound)
    assert isinstance(world.described("offsets only").error, GroupIdNotFound)


def test_share_groups_are_listed_under_their_type() -> None:
    world = ShareWorld()
    world.create("orders", 1)
    world.beaten("one", 0, "orders")
    (listed,) = world.now(ListGroups(types=frozenset({"Share"}), states=frozenset())).groups
    assert (listed.group_id, listed.type, listed.protocol_type) == (GROUP, "share", "share")
    assert listed.state is GroupState.STABLE
    assert world.now(ListGroups(types=frozenset({"consumer"}), states=frozenset())).groups == ()


# --- what operators change


def alter(world: ShareWorld, *starts: ShareStart, group: str = GROUP) -> Any:
    return world.now(AlterShareStarts(group_id=group, starts=starts))


def test_altered_offsets_create_the_group_and_replace_what_is_stored() -> None:
    world = ShareWorld()
    topic_id = world.create("orders", 2)
    reply = alter(world, ShareStart(topic_id, 0, Offset(7)))
    assert (reply.error, dict(reply.changed)) == (None, all_of(world, "orders"))
    # The other partition is left to share.auto.offset.reset.
    assert world.stored[GROUP, topic_id, 1] == (0, -1)
    first_epoch, offset = world.stored[GROUP, topic_id, 0]
    assert (first_epoch > 0, offset) == (True, 7)
    alter(world, ShareStart(topic_id, 0, Offset(3)))
    epoch, offset = world.stored[GROUP, topic_id, 0]
    # A leader that has read the state under the old epoch is fenced.
    assert (epoch > first_epoch, offset) == (True, 3)
    assert world.beaten("one", 0, "orders").assignment == all_of(world, "orders")
    assert world.stored[GROUP, topic_id, 0] == (epoch, 3)


def test_offsets_of_a_group_with_members_stay() -> None:
    world = ShareWorld()
    topic_id = world.create("orders", 1)
    world.beaten("one", 0, "orders")
    assert isinstance(alter(world, ShareStart(topic_id, 0, Offset(7))).error, NonEmptyGroup)
    for request in (
        DeleteShareStates(group_id=GROUP, topic_ids=frozenset({topic_id})),
        DeleteShareGroup(group_id=GROUP),
    ):
        assert isinstance(world.now(request).error, NonEmptyGroup)
    assert world.stored[GROUP, topic_id, 0] == (0, -1)


def test_offsets_are_deleted_by_topic_and_start_over() -> None:
    world = ShareWorld()
    orders, trips = world.create("orders", 1), world.create("trips", 1)
    world.beaten("one", 0, "orders", "trips")
    world.beaten("one", -1)
    request = DeleteShareStates(group_id=GROUP, topic_ids=frozenset({orders}))
    reply = world.now(request)
    assert (reply.error, set(reply.changed)) == (None, {orders})
    assert set(world.stored_partitions()) == {trips}
    found = world.now(FindShareStates(group_id=GROUP))
    assert set(found.initialized) == {trips}
    assert world.beaten("one", 0, "orders", "trips").assignment == union(
        all_of(world, "orders"), all_of(world, "trips")
    )


def test_a_deleted_group_leaves_nothing_and_its_name_is_free_only_then() -> None:
    world = ShareWorld()
    world.create("orders", 1)
    world.beaten("one", 0, "orders")
    world.beaten("one", -1)
    world.carries_out_at_once = False
    ticket = world.ask(DeleteShareGroup(group_id=GROUP))
    assert [type(one) for one in world.effects] == [RemoveShareStates]
    assert not world.has_reply(ticket)
    assert world.described().error is None
    world.carry_out_effects()
    assert world.replies[ticket].error is None
    assert isinstance(world.described().error, GroupIdNotFound)
    assert world.stored == {}
    # Nothing of it is in the log, either.
    world.reload()
    assert isinstance(world.described().error, GroupIdNotFound)
    for request in (
        DeleteShareGroup(group_id=GROUP),
        DeleteShareStates(group_id=GROUP, topic_ids=frozenset()),
        FindShareStates(group_id=GROUP),
    ):
        assert isinstance(world.now(request).error, GroupIdNotFound)


def test_a_member_that_joins_while_the_group_is_deleted_keeps_it_and_starts_over() -> None:
    world = ShareWorld()
    world.create("orders", 1)
    world.beaten("one", 0, "orders")
    world.beaten("one", -1)
    world.carries_out_at_once = False
    deletion = world.ask(DeleteShareGroup(group_id=GROUP))
    joined = world.beat("one", 0, "orders")
    world.carry_out_effects()
    assert isinstance(world.replies[deletion].error, NonEmptyGroup)
    assert world.replies[joined].assignment == all_of(world, "orders")
    assert world.stored_partitions() == all_of(world, "orders")


def test_a_deletion_that_fails_is_told_and_finished_later() -> None:
    world = ShareWorld()
    world.create("orders", 1)
    world.beaten("one", 0, "orders")
    world.beaten("one", -1)
    world.carries_out_at_once = False
    ticket = world.ask(DeleteShareGroup(group_id=GROUP))
    world.carry_out_effects(fails=True)
    assert isinstance(world.replies[ticket].error, CoordinatorNotAvailable)
    world.advance(1_000)
    world.carry_out_effects()
    assert world.stored == {}
    assert world.now(DeleteShareGroup(group_id=GROUP)).error is None


def test_requests_wait_for_what_is_under_way_and_are_answered_in_order() -> None:
    world = ShareWorld()
    topic_id = world.create("orders", 1)
    world.carries_out_at_once = False
    first = world.ask(
        AlterShareStarts(group_id=GROUP, starts=(ShareStart(topic_id, 0, Offset(1)),))
    )
    second = world.ask(
        AlterShareStarts(group_id=GROUP, starts=(ShareStart(topic_id, 0, Offset(2)),))
    )
    third = world.ask(DeleteShareGroup(group_id=GROUP))
    last = world.ask(AlterShareStarts(group_id=GROUP, starts=(ShareStart(topic_id, 0, Offset(3)),)))
    assert len(world.effects) == 1
    world.carry_out_effects()
    assert [world.replies[one].error for one in (first, second, third, last)] == [None] * 4
    assert world.stored[GROUP, topic_id, 0][1] == 3
    assert world.described().state is GroupState.EMPTY


def test_a_group_id_that_cannot_be_stored_is_refused() -> None:
    world = ShareWorld()
    topic_id = world.create("orders", 1)
    reply = alter(world, ShareStart(topic_id, 0, Offset(1)), group="x" * 40_000)
    assert isinstance(reply.error, InvalidGroupId)


# --- any history


TOPICS = ("orders", "trips", "fares")
MEMBERS = ("a", "b", "c", "d", "e")


class AnyHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = ShareWorld()
        self.world.carries_out_at_once = False
        # The epoch that each member knows, and what it subscribes to.
        self.members: dict[str, tuple[int, tuple[str, ...]]] = {}
        self.waiting: dict[str, tuple[Ticket, tuple[str, ...]]] = {}

    def hear(self) -> None:
        for member, (ticket, topics) in list(self.waiting.items()):
            if self.world.has_reply(ticket):
                del self.waiting[member]
                reply = self.world.replies[ticket]
                if reply.error is None:
                    self.members[member] = (reply.member_epoch, topics)
                else:
                    self.members.pop(member, None)

    @rule(member=st.sampled_from(MEMBERS), topics=st.sets(st.sampled_from(TOPICS), min_size=1))
    def join(self, member: str, topics: set[str]) -> None:
        names = tuple(sorted(topics))
        self.waiting[member] = (self.world.beat(member, 0, *names), names)
        self.hear()

    @rule(member=st.sampled_from(MEMBERS))
    def beat(self, member: str) -> None:
        if member in self.members and member not in self.waiting:
            epoch, names = self.members[member]
            self.waiting[member] = (self.world.beat(member, epoch), names)
            self.hear()

    @rule(member=st.sampled_from(MEMBERS))
    def leave(self, member: str) -> None:
        if self.members.pop(member, None) is not None:
            self.waiting.pop(member, None)
            self.world.beat(member, -1)

    @rule(ms=st.sampled_from([100, 1_000, 20_000]))
    def time(self, ms: int) -> None:
        self.world.advance(ms)
        self.hear()

    @rule(name=st.sampled_from(TOPICS), count=st.integers(1, 4))
    def topic(self, name: str, count: int) -> None:
        if name not in self.world.topics:
            self.world.create(name, count)
        elif count == 1:
            self.world.delete(name)
        else:
            have = self.world.topics[name].partition_count
            self.world.enlarge(name, max(have, count))

    @rule(fails=st.booleans(), reports=st.booleans())
    @precondition(lambda self: self.world.effects)
    def effect(self, *, fails: bool, reports: bool) -> None:
        if reports:
            self.world.carry_out_effects(fails=fails)
        else:
            # Carried out, and the coordinator is lost before it hears.
            self.world.carry_out_effects(reports=False)
            self.world.reload()
            self.waiting.clear()
        self.hear()

    @rule()
    def reload(self) -> None:
        self.world.reload()
        self.waiting.clear()

    @rule(topic=st.sampled_from(TOPICS), offset=st.integers(0, 9))
    def alter(self, topic: str, offset: int) -> None:
        if topic in self.world.topics:
            start = ShareStart(self.world.topics[topic].topic_id, 0, Offset(offset))
            self.world.ask(AlterShareStarts(group_id=GROUP, starts=(start,)))

    @rule()
    def delete(self) -> None:
        self.world.ask(DeleteShareGroup(group_id=GROUP))

    @invariant()
    def what_is_assigned_has_state(self) -> None:
        group = self.world.shard._shares.groups.get(GROUP)
        if group is None:
            return
        stored = self.world.stored_partitions()
        for topic_id, numbers in group.states.initialized.items():
            assert numbers <= stored[topic_id]

    @invariant()
    def one_effect_at_most_is_under_way(self) -> None:
        assert len(self.world.effects) <= 1

    @invariant()
    def the_log_tells_the_same(self) -> None:
        mine = self.world.shard._shares.groups
        theirs = self.world.folded()._shares.groups
        assert mine.keys() == theirs.keys()
        for name, group in mine.items():
            assert group.members == theirs[name].members
            assert group.states == theirs[name].states
            assert (group.epoch, group.target_epoch) == (
                theirs[name].epoch,
                theirs[name].target_epoch,
            )

    def teardown(self) -> None:
        """When nothing fails any more, every partition has a member and every member a partition."""
        world = self.world
        world.carries_out_at_once = True
        world.carry_out_effects()
        world.advance(2_000)
        group = world.shard._shares.groups.get(GROUP)
        if group is None or not group.members:
            return
        for member in group.members.values():
            reply = world.beaten(member.member_id, 0, *sorted(member.topic_names))
            assert reply.error is None
        for _ in range(2):
            for member in list(world.group().members.values()):
                world.beaten(member.member_id, member.epoch)
        group = world.group()
        subscribed = group.subscribed(world.topics)
        assigned: dict[TopicId, frozenset[int]] = {}
        for member in group.members.values():
            assigned = dict(union(assigned, member.assigned))
            readable = [name for name in member.topic_names if name in world.topics]
            assert bool(member.assigned) == bool(readable)
        assert assigned == subscribed
        assert not group.states.initializing
        assert not group.states.deleting
        active = group.states.initialized
        assert world.stored_partitions() == active


AnyHistory.TestCase.settings = hypothesis_settings(
    max_examples=60, stateful_step_count=30, deadline=None
)
TestAnyHistory = AnyHistory.TestCase
