"""What a consumer group learns from its records, in whatever order compaction leaves them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.consumer_world import (
    ConsumerWorld,
    everything,
    groups_of,
    owned,
    settle,
    topic_id,
)
from coordination.group_world import GROUP
from respool.coordination.decision import CoordinatorRecord
from respool.coordination.draft import Draft
from respool.coordination.groups.consumer.consumer_draft import (
    ConsumerDraft,
    end_of_group,
    member_value,
)
from respool.coordination.groups.consumer.consumer_group import ConsumerGroup
from respool.coordination.groups.consumer.consumer_member import ConsumerMember, MemberState
from respool.coordination.groups.consumer.consumer_records import (
    ConsumerRecordKey,
    ConsumerRecordKind,
    CurrentValue,
    GroupValue,
    TargetEpochValue,
    TargetValue,
    TopicsValue,
)
from respool.coordination.groups.consumer.topics_view import ConsumerTopic
from respool.coordination.groups.group_coordinator_shard import GroupCoordinatorShard
from respool.coordination.groups.group_requests import GroupState

Kind = ConsumerRecordKind


def key(kind: Kind, name: str = "") -> ConsumerRecordKey:
    return ConsumerRecordKey(kind, GROUP, name)


def put_member(group: ConsumerGroup, member_id: str, **fields: Any) -> None:
    group.replay(
        key(Kind.MEMBER, member_id), member_value(ConsumerMember(member_id=member_id, **fields))
    )


def put_current(group: ConsumerGroup, member_id: str, **partitions: list[int]) -> None:
    value = CurrentValue(1, 0, MemberState.STABLE, owned(**partitions), {})
    group.replay(key(Kind.CURRENT, member_id), value)


def test_what_a_member_says_and_what_it_has_come_in_any_order() -> None:
    one, two = ConsumerGroup(GROUP), ConsumerGroup(GROUP)
    put_member(one, "ann", client_id="app")
    put_current(one, "ann", t1=[0])
    put_current(two, "ann", t1=[0])
    put_member(two, "ann", client_id="app")
    assert everything(one) == everything(two)
    assert one.members["ann"].client_id == "app"
    assert one.members["ann"].assigned == owned(t1=[0])


def test_a_partition_has_the_owner_that_was_written_last() -> None:
    group = ConsumerGroup(GROUP)
    put_current(group, "ann", t1=[0])
    put_current(group, "bob", t1=[0])
    # What Ann wrote before, or writes no more, does not take it from Bob.
    put_current(group, "ann", t1=[1])
    assert group.held_by_others("ann", owned(t1=[0, 1])) == owned(t1=[0])
    group.replay(key(Kind.CURRENT, "ann"), None)
    assert group.held_by_others("cid", owned(t1=[0, 1])) == owned(t1=[0])
    group.replay(key(Kind.MEMBER, "bob"), None)
    assert group.held_by_others("cid", owned(t1=[0, 1])) == {}


def test_an_instance_id_is_of_the_member_that_took_it_last() -> None:
    group = ConsumerGroup(GROUP)
    put_member(group, "ann", instance_id="one")
    put_member(group, "bob", instance_id="one")
    group.replay(key(Kind.MEMBER, "ann"), None)
    assert group.static_members == {"one": "bob"}
    put_member(group, "bob", instance_id=None)
    assert group.static_members == {}


def test_the_end_of_what_is_not_there_is_nothing() -> None:
    group = ConsumerGroup(GROUP)
    before = everything(group.copy())
    for kind in (Kind.MEMBER, Kind.CURRENT, Kind.TARGET, Kind.PATTERN):
        group.replay(key(kind, "ann"), None)
    for kind in (Kind.TOPICS, Kind.TARGET_EPOCH):
        group.replay(key(kind), None)
    assert everything(group) == before


def test_a_copy_goes_its_own_way() -> None:
    group = ConsumerGroup(GROUP)
    put_member(group, "ann", instance_id="one")
    put_current(group, "ann", t1=[0])
    before = everything(group.copy())
    copied = group.copy()
    put_member(copied, "bob", instance_id="two")
    put_current(copied, "ann", t1=[1])
    copied.replay(key(Kind.TARGET, "ann"), TargetValue(owned(t1=[1])))
    copied.replay(key(Kind.GROUP), GroupValue(5, 6, 7))
    copied.replay(key(Kind.TARGET_EPOCH), TargetEpochValue(4))
    assert everything(group) == before
    assert everything(copied) != before


def test_a_record_that_kafka_wrote_of_old_goes_when_the_group_goes() -> None:
    group = ConsumerGroup(GROUP)
    group.replay(key(Kind.TOPICS), TopicsValue())
    assert key(Kind.TOPICS) in set(end_of_group(group))
    group.replay(key(Kind.TOPICS), None)
    assert key(Kind.TOPICS) not in set(end_of_group(group))


def test_a_draft_copies_nothing_until_something_is_written() -> None:
    group = ConsumerGroup(GROUP)
    change = ConsumerDraft(group)
    assert change.group is group
    assert change.is_empty
    change.put(Kind.GROUP, GroupValue(1))
    assert change.group is not group
    assert (group.epoch, change.group.epoch) == (0, 1)
    draft = Draft(0)
    change.flush(draft)
    assert len(draft.decision().records) == 1
    assert change.is_empty


@pytest.mark.parametrize(
    "topics",
    [
        {},
        {"rides": ConsumerTopic(topic_id(1), 3)},
        {"rides": ConsumerTopic(topic_id(2), 2)},
    ],
)
def test_the_hash_tells_topics_apart_that_must_be_shared_out_anew(
    topics: dict[str, ConsumerTopic],
) -> None:
    group = ConsumerGroup(GROUP)
    put_member(group, "ann", topic_names=frozenset({"rides"}))
    now = {"rides": ConsumerTopic(topic_id(1), 2)}
    assert group.hash_of_topics(topics) != group.hash_of_topics(now)
    assert group.hash_of_topics(now) == group.hash_of_topics(
        now | {"other": ConsumerTopic(topic_id(3), 9)}
    )


def test_the_state_follows_from_the_epochs() -> None:
    group = ConsumerGroup(GROUP)
    states = [group.state]
    put_current(group, "ann", t1=[0])
    for record_key, value in (
        (key(Kind.GROUP), GroupValue(2)),
        (key(Kind.TARGET_EPOCH), TargetEpochValue(2)),
        (key(Kind.CURRENT, "ann"), CurrentValue(2, 1, MemberState.UNRELEASED, {}, {})),
        (key(Kind.CURRENT, "ann"), CurrentValue(2, 1, MemberState.STABLE, {}, {})),
    ):
        group.replay(record_key, value)
        states.append(group.state)
    assert states == [
        GroupState.EMPTY,
        GroupState.ASSIGNING,
        GroupState.RECONCILING,
        GroupState.RECONCILING,
        GroupState.STABLE,
    ]


@given(st.data())
def test_a_compacted_log_tells_the_same(data: st.DataObject) -> None:
    """Any older record of a key may be missing, up to a point chosen by the cleaner."""
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    members = world.consumers(2, "rides", topic_pattern="b.*")
    world.make_topic("bills", 2)
    settle(members)
    members[0].leave()
    world.beat_join("new", "rides", instance_id="one")
    members[1].step()
    end = data.draw(st.integers(0, len(world.log)))
    newest = {record.key: at for at, record in enumerate(world.log[:end])}
    compacted: list[CoordinatorRecord] = [
        record for at, record in enumerate(world.log) if at >= end or newest[record.key] == at
    ]
    shard = GroupCoordinatorShard(world.settings, rng=world.rng)
    for record in compacted:
        shard.replay(record)
    assert everything(groups_of(shard)[GROUP]) == everything(world.group())
