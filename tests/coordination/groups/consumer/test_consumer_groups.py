"""Stories of next-generation consumer groups, from request to reply."""

import pytest

from coordination.consumer_world import (
    CONSUMER_REBALANCE_MS,
    CONSUMER_SESSION_MS,
    HEARTBEAT_MS,
    Consumer,
    ConsumerWorld,
    everything,
    groups_of,
    joining,
    owned,
    settle,
    topic_id,
)
from coordination.group_world import GROUP, error_of
from respool.coordination.decision import CoordinatorRecord, Decision
from respool.coordination.groups.consumer.consumer_member import MemberState
from respool.coordination.groups.consumer.consumer_record_bytes import (
    write_consumer_key,
    write_consumer_value,
)
from respool.coordination.groups.consumer.consumer_records import (
    ConsumerRecordKey,
    ConsumerRecordKind,
    CurrentValue,
)
from respool.coordination.groups.consumer.consumer_requests import ConsumerGroupDescribe
from respool.coordination.groups.group_coordinator_shard import HEARD_AGAIN_MS
from respool.coordination.groups.group_requests import (
    DeleteGroups,
    FenceGroup,
    GroupState,
    GroupToFetch,
    GroupType,
    ListGroups,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    TopicToCommit,
    TopicToFetch,
)
from respool.model.coordinator_errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    GroupSubscribedToTopic,
    InvalidRegularExpression,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from respool.model.errors import InvalidRequest, UnsupportedVersion
from respool.model.group_config import GroupConfig
from respool.model.ids import Offset

# --- joining and sharing out


def test_the_first_member_gets_everything_with_its_first_heartbeat() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 3)
    reply = world.beat_join("ann", "rides")
    assert reply.error is None
    assert (reply.member_id, reply.member_epoch) == ("ann", 1)
    assert reply.heartbeat_interval_ms == HEARTBEAT_MS
    assert reply.assignment == owned(t1=range(3))
    assert world.group().state is GroupState.STABLE


def test_six_partitions_and_three_members_make_two_each() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 6)
    members = world.consumers(3, "rides")
    assert [len(member.partitions("rides")) for member in members] == [2, 2, 2]
    assert set().union(*(member.partitions("rides") for member in members)) == set(range(6))
    assert world.group().state is GroupState.STABLE


def test_a_partition_is_given_to_another_only_after_its_owner_says_that_it_gave_it_up() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.beat_join("ann", "rides")
    bob = world.beat_join("bob", "rides")
    assert bob.assignment == {}
    assert bob.member_epoch == 2
    # Ann is told to keep one, at her old epoch, until she has given the other up.
    ann = world.beat("ann", 1)
    assert (ann.member_epoch, ann.assignment) == (1, owned(t1=[0]))
    assert world.beat("bob", 2).assignment is None
    # She still has both: nothing moves.
    assert world.beat("ann", 1, owned=owned(t1=[0, 1])).member_epoch == 1
    assert world.beat("bob", 2).assignment is None
    ann = world.beat("ann", 1, owned=owned(t1=[0]))
    assert (ann.member_epoch, ann.assignment) == (2, None)
    assert world.beat("bob", 2).assignment == owned(t1=[1])
    assert world.group().state is GroupState.STABLE


def test_a_quiet_heartbeat_writes_nothing_and_tells_nothing_new() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.beat_join("ann", "rides")
    records = len(world.log)
    reply = world.beat("ann", 1)
    assert (reply.error, reply.member_epoch, reply.assignment) == (None, 1, None)
    assert len(world.log) == records


def test_a_member_that_says_everything_is_told_everything() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.beat_join("ann", "rides")
    reply = world.beat("ann", 1, **(joining("rides") | {"owned": owned(t1=[0])}))
    assert reply.assignment == owned(t1=[0, 1])


def test_a_member_may_subscribe_to_nothing_and_to_topics_that_do_not_exist_yet() -> None:
    world = ConsumerWorld()
    for member_id, topics in (("ann", ()), ("bob", ("rides",))):
        reply = world.beat_join(member_id, *topics)
        assert reply.assignment == {}
        assert reply.member_epoch > 0


def test_the_coordinator_names_a_member_that_may_leave_that_to_it() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 1)
    reply = world.beat_join("", "rides", chooses_member_id=False)
    assert reply.member_id
    assert world.beat(reply.member_id, 1).error is None


# --- epochs


def test_a_member_whose_reply_was_lost_comes_again_with_the_epoch_before() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.beat_join("ann", "rides")
    world.beat_join("bob", "rides")
    world.beat("ann", 1)
    assert world.beat("ann", 1, owned=owned(t1=[0])).member_epoch == 2
    # Ann did not hear of epoch 2.
    again = world.beat("ann", 1, owned=owned(t1=[0]))
    assert (again.error, again.member_epoch) == (None, 2)


def test_a_member_may_lose_several_replies_while_it_waits_for_partitions() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    ann = Consumer(world, "ann", "bills")
    bob = Consumer(world, "bob", "rides")
    settle([ann, bob])
    epoch = ann.epoch
    ann.subscribe("rides")
    for _ in range(3):
        ann.beat(is_reply_lost=True)
    records = len(world.log)
    assert ann.beat() is None
    assert ann.epoch > epoch
    # Waiting writes nothing.
    assert len(world.log) == records
    settle([ann, bob])
    assert [len(member.partitions("rides")) for member in (ann, bob)] == [1, 1]


@pytest.mark.parametrize("words", [{}, {"owned": owned(t1=[0, 1])}])
def test_the_epoch_before_with_more_than_its_own_or_without_a_word_of_it_is_fenced(
    words: dict[str, object],
) -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.beat_join("ann", "rides")
    world.beat_join("bob", "rides")
    world.beat("ann", 1)
    world.beat("ann", 1, owned=owned(t1=[0]))
    assert error_of(world.beat("ann", 1, **words)) is FencedMemberEpoch


@pytest.mark.parametrize("epoch", [2, 7])
def test_an_epoch_the_member_was_never_told_is_fenced_and_changes_nothing(epoch: int) -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.beat_join("ann", "rides")
    before = everything(world.group().copy())
    assert error_of(world.beat("ann", epoch)) is FencedMemberEpoch
    assert everything(world.group()) == before


def test_a_fenced_member_joins_again_under_its_id_and_gets_its_partitions_back() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.beat_join("ann", "rides")
    reply = world.beat_join("ann", "rides")
    assert (reply.member_epoch, reply.assignment) == (1, owned(t1=[0, 1]))


def test_strangers_are_unknown_and_a_group_nobody_joined_is_not_there() -> None:
    world = ConsumerWorld()
    assert error_of(world.beat("ann", 1)) is GroupIdNotFound
    assert error_of(world.beat("ann", -1)) is GroupIdNotFound
    world.beat_join("ann")
    assert error_of(world.beat("bob", 1)) is UnknownMemberId
    assert error_of(world.beat("bob", -1)) is UnknownMemberId


def test_a_member_in_a_state_of_a_newer_release_must_start_anew() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.beat_join("ann", "rides")
    key = ConsumerRecordKey(ConsumerRecordKind.CURRENT, GROUP, "ann")
    value = CurrentValue(1, 0, MemberState.UNKNOWN, owned(t1=[0, 1]), {})
    record = CoordinatorRecord(key=write_consumer_key(key), value=write_consumer_value(value))
    world.carry_out(Decision(records=(record,)))
    assert error_of(world.beat("ann", 1)) is FencedMemberEpoch
    reply = world.beat_join("ann", "rides")
    assert (reply.error, reply.assignment) == (None, owned(t1=[0, 1]))
    assert world.group().state is GroupState.STABLE


# --- what cannot be meant


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"group_id": ""}, InvalidRequest),
        ({"member_id": ""}, InvalidRequest),
        ({"instance_id": ""}, InvalidRequest),
        ({"rack_id": ""}, InvalidRequest),
        ({"rebalance_timeout_ms": -1}, InvalidRequest),
        ({"owned": None}, InvalidRequest),
        ({"owned": owned(t1=[0])}, InvalidRequest),
        ({"topic_names": None}, InvalidRequest),
        ({"member_epoch": -2}, InvalidRequest),
        ({"member_epoch": -3}, InvalidRequest),
        ({"assignor": "sticky"}, UnsupportedAssignor),
        ({"topic_pattern": "("}, InvalidRegularExpression),
        ({"topic_pattern": "x" * 40_000}, InvalidRegularExpression),
        ({"member_id": "x" * 40_000}, InvalidRequest),
    ],
)
def test_a_contradictory_request_is_refused_and_makes_no_group(
    words: dict[str, object], error: type[Exception]
) -> None:
    world = ConsumerWorld()
    words = {"member_id": "ann", "epoch": 0} | joining("rides") | words
    epoch = words.pop("member_epoch", words.pop("epoch"))
    assert error_of(world.beat(epoch=epoch, **words)) is error  # type: ignore[arg-type]
    assert not world.log
    assert not groups_of(world.shard)


def test_a_group_takes_no_more_members_than_allowed_but_keeps_those_it_has() -> None:
    world = ConsumerWorld(group_consumer_max_size=2)
    world.make_topic("rides", 4)
    ann = Consumer(world, "ann", "rides", instance_id="one")
    bob = Consumer(world, "bob", "rides")
    settle([ann, bob])
    assert error_of(world.beat_join("cid", "rides")) is GroupMaxSizeReached
    assert world.beat_join("bob", "rides").error is None
    ann.go_away()
    assert world.beat_join("ann2", "rides", instance_id="one").error is None


# --- leaving and falling silent


def test_partitions_of_a_member_that_leaves_move_to_the_others() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 6)
    ann, bob = world.consumers(2, "rides")
    bob.leave()
    ann.step()
    assert ann.partitions("rides") == set(range(6))


def test_a_silent_member_is_out_when_its_session_ends_and_not_before() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    ann, bob = world.consumers(2, "rides")
    for _ in range(CONSUMER_SESSION_MS // HEARTBEAT_MS - 1):
        world.advance(HEARTBEAT_MS)
        ann.step()
    world.advance(HEARTBEAT_MS - 1)
    assert set(world.group().members) == {"m0", "m1"}
    world.advance(1)
    assert set(world.group().members) == {"m0"}
    assert type(bob.beat()) is UnknownMemberId
    ann.step()
    assert ann.partitions("rides") == {0, 1}


def test_a_groups_own_times_apply_from_the_next_heartbeat_on() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    ann, bob = world.consumers(2, "rides")
    world.configs[GROUP] = GroupConfig(
        consumer_session_timeout_ms=60_000, consumer_heartbeat_interval_ms=15_000
    )
    assert world.beat(ann.member_id, ann.epoch).heartbeat_interval_ms == 15_000
    world.advance(CONSUMER_SESSION_MS)
    # He has not heard of it.
    assert set(world.group().members) == {"m0"}
    assert type(bob.beat()) is UnknownMemberId
    world.advance(60_000 - CONSUMER_SESSION_MS - 1)
    assert set(world.group().members) == {"m0"}
    world.advance(1)
    assert not world.group().members


def test_a_member_that_does_not_give_up_what_it_must_is_out_after_its_rebalance_timeout() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.beat_join("ann", "rides")
    world.beat_join("bob", "rides")
    world.beat("ann", 1)
    for _ in range(CONSUMER_REBALANCE_MS // HEARTBEAT_MS):
        assert world.beat("ann", 1).error is None
        assert world.beat("bob", 2).error is None
        world.advance(HEARTBEAT_MS)
    assert error_of(world.beat("ann", 1)) is UnknownMemberId
    assert world.beat("bob", 2).assignment == owned(t1=[0, 1])


def test_a_member_that_gave_up_what_it_had_to_has_new_time_for_what_it_must_give_up_next() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 6)
    world.beat_join("ann", "rides")
    world.beat_join("bob", "rides")
    told = world.beat("ann", 1).assignment
    assert told is not None
    for _ in range(CONSUMER_REBALANCE_MS // HEARTBEAT_MS - 1):
        world.advance(HEARTBEAT_MS)
        assert world.beat("ann", 1).error is None
        assert world.beat("bob", 2).error is None
    world.beat_join("cid", "rides")
    # It gave up three, and hears that it must give up a fourth.
    told = world.beat("ann", 1, owned=told).assignment
    assert told is not None
    assert len(told[topic_id(1)]) == 2
    world.advance(2 * HEARTBEAT_MS)
    assert world.beat("ann", 1).error is None
    assert world.beat("ann", 1, owned=told).error is None


def test_a_member_that_gave_up_in_time_stays() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.beat_join("ann", "rides")
    world.beat_join("bob", "rides")
    world.beat("ann", 1)
    world.beat("ann", 1, owned=owned(t1=[0]))
    for _ in range(20):
        world.advance(HEARTBEAT_MS)
        assert world.beat("ann", 2).error is None
        assert world.beat("bob", 2).error is None


def test_sessions_and_revocations_begin_anew_when_the_coordinator_is_loaded() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.beat_join("ann", "rides")
    world.beat_join("bob", "rides")
    world.beat("ann", 1)
    world.advance(CONSUMER_SESSION_MS - 1)
    world.reload()
    world.advance(CONSUMER_SESSION_MS - 1)
    assert set(world.group().members) == {"ann", "bob"}
    world.beat("ann", 1)
    world.beat("bob", 2)
    world.advance(CONSUMER_REBALANCE_MS - CONSUMER_SESSION_MS)
    world.beat("bob", 2)
    world.advance(1)
    assert set(world.group().members) == {"bob"}


# --- static members


def test_a_static_member_that_is_back_in_time_takes_its_partitions_over_and_nobody_notices() -> (
    None
):
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    ann = Consumer(world, "ann", "rides", instance_id="one")
    bob = Consumer(world, "bob", "rides")
    settle([ann, bob])
    had, epoch = ann.uses, world.group().epoch
    ann.go_away()
    world.advance(CONSUMER_SESSION_MS - 1)
    bob.step()
    assert world.beat("bob", bob.epoch).assignment is None
    again = Consumer(world, "ann2", "rides", instance_id="one")
    again.step()
    assert again.uses == had
    assert world.group().epoch == epoch
    assert world.group().state is GroupState.STABLE
    assert error_of(world.beat("ann", 2, instance_id="one")) is FencedInstanceId


def test_a_static_member_that_comes_back_reads_what_it_says_and_nothing_it_read_before() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 1)
    world.make_topic("bills", 1)
    fields = {"topic_pattern": "b.*", "rack_id": "r1", "assignor": "range"}
    ann = Consumer(world, "ann", "rides", instance_id="one", **fields)
    settle([ann])
    ann.go_away()
    again = Consumer(world, "ann2", "rides", instance_id="one")
    settle([again])
    assert again.uses == owned(t1=[0])
    assert world.group().members["ann2"].rack_id is None
    assert world.describe_consumers().assignor == "uniform"


def test_a_static_member_that_stays_away_is_out_when_its_session_ends() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    ann = Consumer(world, "ann", "rides", instance_id="one")
    bob = Consumer(world, "bob", "rides")
    settle([ann, bob])
    ann.go_away()
    world.advance(HEARTBEAT_MS)
    bob.step()
    assert len(bob.partitions("rides")) == 2
    world.advance(CONSUMER_SESSION_MS - HEARTBEAT_MS)
    bob.step()
    assert len(bob.partitions("rides")) == 4


def test_a_static_member_s_place_cannot_be_taken_while_it_is_there() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    world.beat_join("ann", "rides", instance_id="one")
    before = everything(world.group().copy())
    assert error_of(world.beat_join("bob", "rides", instance_id="one")) is UnreleasedInstanceId
    assert error_of(world.beat("bob", 1, instance_id="one")) is FencedInstanceId
    assert error_of(world.beat("bob", -2, instance_id="one")) is FencedInstanceId
    assert error_of(world.beat("ann", 1, instance_id="two")) is UnknownMemberId
    assert everything(world.group()) == before


def test_a_static_member_can_leave_for_good() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    ann = Consumer(world, "ann", "rides", instance_id="one")
    settle([ann])
    ann.leave()
    assert world.group().state is GroupState.EMPTY
    assert world.beat_join("bob", "rides", instance_id="one").error is None


def test_a_static_member_that_left_while_it_gave_up_partitions_has_given_them_up() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.beat_join("ann", "rides", instance_id="one", rebalance_timeout_ms=10_000)
    world.beat_join("bob", "rides")
    world.beat("ann", 1)
    world.beat("ann", -2, instance_id="one")
    assert world.beat("bob", 2).assignment == owned(t1=[1])
    # So nobody waits for that any more.
    world.advance(20_000)
    again = world.beat_join("ann2", "rides", instance_id="one")
    assert (again.member_epoch, again.assignment) == (2, owned(t1=[0]))


# --- subscriptions and topics


def test_a_member_that_unsubscribes_gives_those_topics_up_first() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 1)
    world.make_topic("bills", 1)
    world.beat_join("ann", "rides", "bills")
    world.beat_join("bob", "rides")
    ann = world.beat("ann", 1, topic_names=("bills",))
    assert (ann.member_epoch, ann.assignment) == (1, owned(t2=[0]))
    bob = world.beat("bob", 2)
    assert (bob.member_epoch, bob.assignment) == (3, None)
    ann = world.beat("ann", 1, owned=owned(t2=[0]))
    assert ann.member_epoch == 3
    assert world.beat("bob", 3).assignment == owned(t1=[0])


def test_a_member_that_must_give_up_already_can_unsubscribe_from_more() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.make_topic("bills", 1)
    world.beat_join("ann", "rides", "bills")
    world.beat_join("bob", "rides")
    told = world.beat("ann", 1).assignment
    assert told is not None
    assert set(told) == set(owned(t1=[0], t2=[0]))
    ann = world.beat("ann", 1, topic_names=("rides",))
    assert ann.assignment == owned(t1=[0])
    # Both what it had to give up before and what it gives up of its own will are still its own.
    assert world.beat("bob", 2, topic_names=("rides", "bills")).assignment in (None, {})
    for _ in range(3):
        ann = world.beat("ann", ann.member_epoch, owned=owned(t1=[0]))
        world.beat("bob", world.group().members["bob"].epoch, owned={})
    assert world.group().members["bob"].assigned == owned(t1=[1], t2=[0])


def test_new_partitions_and_topics_are_shared_out_and_deleted_ones_given_up() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    members = world.consumers(2, "rides", "bills")
    epoch = world.group().epoch
    world.grow_topic("rides", 4)
    assert world.group().epoch == epoch + 1
    assert world.group().state is GroupState.ASSIGNING
    settle(members)
    assert [len(member.partitions("rides")) for member in members] == [2, 2]
    world.make_topic("bills", 2)
    settle(members)
    assert [len(member.partitions("bills")) for member in members] == [1, 1]
    world.delete_topic("rides")
    settle(members)
    assert [list(member.uses) for member in members] == [[world.topics["bills"].topic_id]] * 2


def test_a_topic_made_again_under_its_name_is_another_topic() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    (ann,) = world.consumers(1, "rides")
    old = world.topics["rides"].topic_id
    world.delete_topic("rides")
    world.make_topic("rides", 2)
    settle([ann])
    assert old not in ann.uses
    assert ann.partitions("rides") == {0, 1}


def test_topics_nobody_reads_and_a_restart_begin_no_epoch() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.consumers(2, "rides", topic_pattern="ri.*")
    records = len(world.log)
    world.make_topic("bills", 2)
    world.reload()
    assert len(world.log) == records


def test_topics_that_changed_while_nobody_coordinated_are_noticed_after_loading() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    (ann,) = world.consumers(1, "rides")
    world.topics["rides"] = world.topics["rides"]._replace(partition_count=3)
    world.reload()
    ann.step()
    assert ann.partitions("rides") == {0, 1, 2}


def test_the_assignor_most_members_ask_for_is_used() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    members = [
        Consumer(world, "m0", "rides", assignor="range"),
        Consumer(world, "m1", "rides", assignor="range"),
        Consumer(world, "m2", "rides", assignor="uniform"),
    ]
    settle(members)
    assert world.describe_consumers().assignor == "range"
    assert members[0].partitions("rides") == {0, 1}
    world.beat("m0", members[0].epoch, assignor="uniform")
    assert world.describe_consumers().assignor == "uniform"


# --- patterns


def test_a_pattern_stands_for_the_topics_there_are_and_for_those_that_come() -> None:
    world = ConsumerWorld()
    world.make_topic("rides.eu", 1)
    world.make_topic("bills", 1)
    (ann,) = world.consumers(1, topic_pattern=r"rides\..*")
    assert set(ann.uses) == set(owned(t1=[0]))
    world.make_topic("rides.us", 2)
    settle([ann])
    assert set(ann.uses) == set(owned(t1=[0], t3=[0]))
    world.delete_topic("rides.eu")
    settle([ann])
    assert set(ann.uses) == set(owned(t3=[0]))


def test_a_pattern_and_names_add_up_and_an_empty_pattern_is_none() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 1)
    world.make_topic("bills", 1)
    (ann,) = world.consumers(1, "bills", topic_pattern="ri.*")
    assert ann.uses == owned(t1=[0], t2=[0])
    ann.subscribe("bills", topic_pattern="")
    settle([ann])
    assert ann.uses == owned(t2=[0])
    assert not world.group().resolved


def test_a_pattern_does_not_stand_for_the_broker_s_own_topics_but_a_name_does() -> None:
    world = ConsumerWorld()
    world.make_topic("__consumer_offsets", 1, is_internal=True)
    (ann,) = world.consumers(1, topic_pattern=".*")
    assert ann.uses == {}
    ann.subscribe("__consumer_offsets")
    settle([ann])
    assert ann.uses == owned(t1=[0])


def test_a_pattern_that_cannot_be_used_any_more_keeps_the_topics_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ConsumerWorld()
    world.make_topic("rides1", 1)
    world.make_topic("rides2", 1)
    (ann,) = world.consumers(1, topic_pattern="(ri|r)ides.")

    def too_much(text: str) -> None:
        raise InvalidRegularExpression(text)

    monkeypatch.setattr(
        "respool.coordination.groups.consumer.consumer_rebalance.topic_pattern", too_much
    )
    world.delete_topic("rides1")
    world.make_topic("rides3", 1)
    settle([ann])
    assert ann.uses == owned(t2=[0])


def test_a_pattern_s_record_goes_with_its_last_subscriber() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 1)
    ann, bob = world.consumers(2, topic_pattern="ri.*")
    assert set(world.group().resolved) == {"ri.*"}
    ann.leave()
    assert set(world.group().resolved) == {"ri.*"}
    bob.leave()
    assert not world.group().resolved


# --- offsets


def test_only_a_member_at_its_epoch_commits_and_fetches() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 1)
    world.beat_join("ann", "rides")
    assert world.commit(5, member_id="ann", generation=1) is None
    assert type(world.commit(6, member_id="ann", generation=0)) is StaleMemberEpoch
    assert type(world.commit(6, member_id="bob", generation=1)) is UnknownMemberId
    assert type(world.commit(6)) is UnknownMemberId
    assert (
        type(world.commit(6, member_id="ann", generation=1, knows_member_epochs=False))
        is UnsupportedVersion
    )
    assert world.committed() == 5

    def fetched(member_id: str | None, epoch: int) -> type[Exception] | None:
        asked = GroupToFetch(GROUP, (TopicToFetch("rides", (0,)),), member_id, epoch)
        reply = world.now(OffsetFetch(groups=(asked,))).groups[0]
        if reply.error is None:
            assert reply.topics[0].partitions[0].offset == 5
        return error_of(reply)

    assert fetched("ann", 1) is None
    assert fetched(None, -1) is None
    assert fetched("ann", 0) is StaleMemberEpoch
    assert fetched("bob", 1) is UnknownMemberId


def test_anyone_commits_while_the_group_has_no_members() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 1)
    (ann,) = world.consumers(1, "rides")
    ann.leave()
    assert world.commit(5) is None
    assert type(world.commit(6, member_id="ann", generation=1)) is UnknownMemberId


def test_offsets_of_topics_that_members_read_are_not_deleted() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 1)
    world.make_topic("bills", 1)
    (ann,) = world.consumers(1, "rides")
    for topic in ("rides", "bills"):
        assert world.commit(5, topic=topic, member_id="m0", generation=ann.epoch) is None
    topics = (TopicToFetch("rides", (0,)), TopicToFetch("bills", (0,)))
    reply = world.now(OffsetDelete(group_id=GROUP, topics=topics))
    errors = [topic.partitions[0].error for topic in reply.topics]
    assert type(errors[0]) is GroupSubscribedToTopic
    assert errors[1] is None


def test_offsets_expire_from_when_the_last_member_left_and_the_group_goes_with_them() -> None:
    day_ms = 24 * 60 * 60_000
    world = ConsumerWorld(offsets_retention_minutes=24 * 60)
    world.make_topic("rides", 1)
    (ann,) = world.consumers(1, "rides")
    assert world.commit(5, member_id="m0", generation=ann.epoch) is None
    for _ in range(3 * day_ms // 30_000):
        world.advance(30_000)
        ann.step()
    assert world.committed() == 5
    ann.leave()
    world.advance(day_ms // 2)
    world.reload()
    world.advance(day_ms // 2 - 60_000)
    assert world.committed() == 5
    world.advance(3_600_000)
    assert world.committed() == -1
    assert GROUP not in groups_of(world.shard)
    assert GROUP not in groups_of(world.folded())


def test_a_forced_reset_throws_members_out_and_lets_them_go_on_from_the_new_offsets() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    members = world.consumers(2, "rides")
    epoch = members[0].epoch
    topics = (TopicToCommit("rides", (OffsetToCommit(0, Offset(3)),)),)
    reply = world.now(FenceGroup(group_id=GROUP, topics=topics))
    assert set(reply.fenced_member_ids) == {"m0", "m1"}
    assert type(world.commit(99, member_id="m0", generation=epoch)) is UnknownMemberId
    assert world.committed() == 3
    assert [type(member.beat()) for member in members] == [UnknownMemberId] * 2
    settle(members)
    assert [len(member.partitions("rides")) for member in members] == [1, 1]
    assert world.committed() == 3


# --- looking after groups


def test_every_group_asked_for_is_described_also_those_that_are_not_there() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.beat_join("ann", "rides", rack_id="r1", instance_id="one", topic_pattern="b.*")
    world.beat_join("bob", "rides")
    there, missing = world.now(ConsumerGroupDescribe(group_ids=(GROUP, "other"))).groups
    assert (missing.group_id, error_of(missing)) == ("other", GroupIdNotFound)
    assert there.error is None
    assert (there.state, there.epoch, there.assignment_epoch) == (GroupState.RECONCILING, 2, 2)
    assert there.assignor == "uniform"
    ann, bob = there.members
    assert (ann.member_id, ann.instance_id, ann.rack_id, ann.member_epoch) == (
        "ann",
        "one",
        "r1",
        1,
    )
    assert (ann.topic_names, ann.topic_pattern) == (("rides",), "b.*")
    assert [(part.topic_name, part.partitions) for part in ann.assignment] == [("rides", (0, 1))]
    assert [(part.topic_name, part.partitions) for part in ann.target_assignment] == [
        ("rides", (0,))
    ]
    assert bob.assignment == ()
    assert not bob.is_classic


def test_consumer_groups_are_listed_as_such_and_are_no_classic_groups() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.consumers(1, "rides")
    (listed,) = world.now(ListGroups()).groups
    assert listed == (GROUP, "consumer", GroupState.STABLE, GroupType.CONSUMER)
    assert world.now(ListGroups(types=frozenset({"Classic"}))).groups == ()
    assert world.now(ListGroups(types=frozenset({"Consumer"}))).groups == (listed,)
    assert error_of(world.describe()) is GroupIdNotFound


def test_a_group_with_members_is_not_deleted_and_one_without_leaves_nothing_behind() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    ann, bob = world.consumers(2, topic_pattern="ri.*")
    world.commit(5, member_id="m0", generation=ann.epoch)
    (result,) = world.now(DeleteGroups(group_ids=(GROUP,))).groups
    assert error_of(result) is NonEmptyGroup
    ann.leave()
    bob.leave()
    (result,) = world.now(DeleteGroups(group_ids=(GROUP,))).groups
    assert result.error is None
    assert GROUP not in groups_of(world.shard)
    # After compaction nothing is left of it.
    newest = {record.key: record.value for record in world.log}
    assert all(value is None for value in newest.values())
    assert world.now(ListGroups()).groups == ()


def test_what_the_log_tells_is_what_the_coordinator_knows() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 5)
    members = world.consumers(3, "rides", topic_pattern="b.*")
    members[1].leave()
    world.make_topic("bills", 3)
    members[0].beat()
    assert everything(groups_of(world.folded())[GROUP]) == everything(world.group())


def test_members_have_some_time_when_the_coordinator_is_heard_again() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    ann, bob = world.consumers(2, "rides")
    world.now_ms += 5 * CONSUMER_SESSION_MS
    world.shard.on_heard_again(now_ms=world.now_ms)
    world.advance(HEARD_AGAIN_MS - 1)
    assert ann.beat() is None
    world.advance(1)
    assert type(bob.beat()) is UnknownMemberId
    assert set(world.group().members) == {"m0"}
