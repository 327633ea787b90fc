"""A group goes from the classic protocol to the next-generation one and back, with members of both in it."""

from collections.abc import Iterable
from typing import Any

import pytest

from coordination.consumer_world import (
    CONSUMER_SESSION_MS,
    HEARTBEAT_MS,
    Consumer,
    ConsumerWorld,
    everything,
    groups_of,
    owned,
)
from coordination.group_world import GROUP, REBALANCE_MS, SESSION_MS, error_of, join_of
from coordination.sim_classic import COOPERATIVE, EAGER, SimClassic, subscription_of
from respool.coordination.groups.classic.classic_group import ClassicGroup
from respool.coordination.groups.consumer_protocol import read_assignment, write_assignment
from respool.coordination.groups.group_coordinator_shard import GroupCoordinatorShard
from respool.coordination.groups.group_requests import (
    DeleteGroups,
    GroupState,
    GroupType,
    LeavingMember,
    ListGroups,
    Protocol,
)
from respool.model.coordinator_errors import (
    FencedInstanceId,
    GroupIdNotFound,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)

both_kinds = pytest.mark.parametrize("protocol", [EAGER, COOPERATIVE])


def classic_groups(shard: GroupCoordinatorShard) -> dict[str, ClassicGroup]:
    return dict(shard._classic.groups)


def live(world: ConsumerWorld, members: Iterable[Any], seconds: int = 60) -> None:
    """Everybody does what clients do, once a second."""
    members = list(members)
    for _ in range(seconds):
        for member in members:
            member.step()
        world.advance(1_000)


def group_type(world: ConsumerWorld) -> GroupType:
    (listed,) = world.now(ListGroups()).groups
    assert isinstance(listed.type, GroupType)
    return listed.type


def classic_world(
    count: int, *, protocol: str = EAGER, partitions: int = 6, **settings: Any
) -> tuple[ConsumerWorld, list[SimClassic]]:
    world = ConsumerWorld(**settings)
    world.make_topic("rides", partitions)
    members = [
        SimClassic(world, f"c{n}", topics=("rides",), protocol=protocol) for n in range(count)
    ]
    live(world, members, 30)
    assert group_type(world) is GroupType.CLASSIC
    assert all(member.is_settled for member in members)
    return world, members


def sizes(*members: Any) -> list[int]:
    return [sum(map(len, member.uses.values())) for member in members]


# --- up


@both_kinds
def test_a_classic_group_becomes_a_consumer_group_when_such_a_member_joins(protocol: str) -> None:
    world, classics = classic_world(2, protocol=protocol)
    generation = classics[0].generation
    ann = Consumer(world, "ann", "rides")
    ann.step()
    assert group_type(world) is GroupType.CONSUMER
    assert GROUP not in classic_groups(world.shard)
    # Everybody still has what it had; the new member waits.
    assert sizes(*classics, ann) == [3, 3, 0]
    assert ann.epoch == generation + 2
    assert [member.is_classic for member in world.describe_consumers().members] == [
        True,
        True,
        False,
    ]
    live(world, [*classics, ann])
    assert sizes(*classics, ann) == [2, 2, 2]
    assert world.group().state is GroupState.STABLE


def test_a_classic_member_is_told_to_join_again_and_is_answered_at_once() -> None:
    world, (one,) = classic_world(1, partitions=2)
    world.beat_join("ann", "rides")
    assert error_of(world.heartbeat(one.member_id, one.generation)) is RebalanceInProgress
    assert error_of(world.synced(world.sync(one.member_id, one.generation))) is RebalanceInProgress
    again = world.joined(world.join(one.member_id))
    assert again.error is None
    assert (again.generation, again.protocol_name, again.leader) == (
        world.group().epoch,
        "range",
        "",
    )
    synced = world.synced(world.sync(one.member_id, again.generation))
    assert read_assignment(synced.assignment).partitions == {"rides": frozenset({0})}
    # It gave everything up before it joined, so the other can have the rest.
    assert world.beat("ann", again.generation).assignment == owned(t1=[1])
    assert world.heartbeat(one.member_id, again.generation).error is None


def test_a_cooperative_member_gives_up_only_what_it_must_and_says_so_by_joining_again() -> None:
    world, (one,) = classic_world(1, partitions=2, protocol=COOPERATIVE)

    def join(*still: int) -> Any:
        owned_now = {"rides": frozenset(still)} if still else {}
        metadata = subscription_of(("rides",), owned_now)
        protocols = (Protocol(COOPERATIVE, metadata),)
        return world.joined(world.join(one.member_id, protocols=protocols))

    world.beat_join("ann", "rides")
    first = join(0, 1)
    assert first.generation == one.generation
    synced = world.synced(world.sync(one.member_id, first.generation))
    assert read_assignment(synced.assignment).partitions == {"rides": frozenset({0})}
    assert world.beat("ann", world.group().epoch).assignment is None
    assert error_of(world.heartbeat(one.member_id, one.generation)) is RebalanceInProgress
    second = join(0)
    assert second.generation == world.group().epoch
    assert world.beat("ann", world.group().epoch).assignment == owned(t1=[1])


def test_a_classic_member_that_waits_for_partitions_is_told_when_they_are_free() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    world.beat_join("ann", "rides")
    generation = world.joined(world.join("one")).generation
    nothing = world.synced(world.sync("one", generation))
    assert read_assignment(nothing.assignment).partitions == {}
    # Ann still has both. There is nothing to join again for.
    assert world.heartbeat("one", generation).error is None
    world.beat("ann", 1)
    assert world.heartbeat("one", generation).error is None
    world.beat("ann", 1, owned=owned(t1=[0]))
    assert error_of(world.heartbeat("one", generation)) is RebalanceInProgress
    assert world.joined(world.join("one")).generation == generation
    synced = world.synced(world.sync("one", generation))
    assert read_assignment(synced.assignment).partitions == {"rides": frozenset({1})}
    assert world.heartbeat("one", generation).error is None


def test_joins_that_wait_in_the_classic_group_are_answered_by_the_new_one() -> None:
    world, (one, two) = classic_world(2)
    ticket = world.join(one.member_id, protocols=(Protocol("range", subscription_of(("rides",))),))
    assert not world.has_reply(ticket)
    world.beat_join("ann", "rides")
    reply = world.joined(ticket)
    assert reply.error is None
    assert reply.generation == world.group().epoch
    assert world.synced(world.sync(one.member_id, reply.generation)).error is None
    assert error_of(world.heartbeat(two.member_id, two.generation)) is RebalanceInProgress


def test_syncs_that_wait_in_the_classic_group_are_told_to_join_again() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    tickets = [
        world.join(client_id=name, requires_known_member_id=False) for name in ("one", "two")
    ]
    world.advance(10_000)
    leader, follower = (world.joined(ticket) for ticket in tickets)
    waiting = world.sync(follower.member_id, follower.generation)
    assert not world.has_reply(waiting)
    world.beat_join("ann", "rides")
    assert error_of(world.synced(waiting)) is RebalanceInProgress
    assert world.joined(world.join(leader.member_id)).error is None


def test_a_group_that_never_had_an_assignment_can_go_over() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    ticket = world.join(client_id="one", requires_known_member_id=False)
    world.beat_join("ann", "rides")
    reply = world.joined(ticket)
    assert reply.error is None
    assert reply.generation >= 1
    assert everything(groups_of(world.folded())[GROUP]) == everything(world.group())
    assert GROUP not in classic_groups(world.shard)


def test_a_member_that_takes_the_only_place_before_the_first_assignment_gets_everything() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    world.join(instance_id="i1")
    reply = world.beat_join("ann", "rides", instance_id="i1")
    assert reply.member_epoch >= 1
    assert reply.assignment == owned(t1=range(4))


def test_a_group_that_goes_over_begins_no_epoch_when_the_coordinator_is_loaded() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    one = SimClassic(world, "one", topics=("rides",), instance_id="i1")
    live(world, [one], 30)
    world.beat_join("ann", "rides", instance_id="i1")
    epoch = world.group().epoch
    world.reload()
    assert world.group().epoch == epoch == one.generation + 1


def test_partitions_that_the_classic_members_did_not_share_out_are_shared_out() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    one = SimClassic(world, "one", topics=("rides",), instance_id="i1")
    live(world, [one], 30)
    world.grow_topic("rides", 4)
    live(world, [one], 30)
    assert sizes(one) == [2]
    reply = world.beat_join("ann", "rides", instance_id="i1")
    assert reply.assignment == owned(t1=range(4))


@pytest.mark.parametrize(
    ("fields", "settings"),
    [
        ({"protocol_type": "connect"}, {}),
        ({"protocols": (Protocol("range", b"\0\0\0\0\0\5"),)}, {}),
        ({}, {"group_consumer_migration_policy": "disabled"}),
        ({}, {"group_consumer_migration_policy": "downgrade"}),
    ],
)
def test_a_group_that_cannot_go_over_stays_as_it_is(
    fields: dict[str, Any], settings: dict[str, Any]
) -> None:
    world = ConsumerWorld(**settings)
    world.make_topic("rides", 4)
    world.new_members(2, **fields)
    records = len(world.log)
    assert error_of(world.beat_join("ann", "rides")) is GroupIdNotFound
    assert len(world.log) == records
    assert world.state is GroupState.STABLE


def test_a_group_of_more_members_than_a_consumer_group_may_have_stays_classic() -> None:
    world, _ = classic_world(2, group_consumer_max_size=1)
    assert error_of(world.beat_join("ann", "rides")) is GroupIdNotFound
    assert group_type(world) is GroupType.CLASSIC


def test_a_group_whose_assignor_adds_its_own_data_stays_classic() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    (one,) = world.new_members(1)
    # An assignment of nothing, with four bytes of the assignor's own.
    share = b"\0\0" + b"\0\0\0\0" + b"\0\0\0\4data"
    generation = world.joined(world.join(one)).generation
    world.sync(one, generation, shares={one: share})
    refused = world.beat_join("ann", "rides")
    assert error_of(refused) is GroupIdNotFound
    assert "adds data" in str(refused.error)


def test_a_refused_join_leaves_the_classic_group_alone() -> None:
    world, (one, _) = classic_world(2)
    ticket = world.join(one.member_id)
    assert world.beat_join("ann", "rides", topic_pattern="(").error is not None
    assert group_type(world) is GroupType.CLASSIC
    assert not world.has_reply(ticket)


def test_members_share_a_partition_both_claim_with_one_owner_only() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    one, two = world.new_members(2)
    tickets = [world.join(one), world.join(two)]
    generation = world.joined(tickets[0]).generation
    both = write_assignment({"rides": frozenset({0, 1})}, version=0)
    world.sync(two, generation)
    world.sync(one, generation, shares={one: both, two: both})
    assert world.beat_join("ann", "rides").error is None
    group = world.group()
    assert group.members[one].assigned == owned(t1=[0, 1])
    assert group.members[two].assigned == {}


def test_what_a_cooperative_member_must_give_up_is_its_own_until_it_says_so() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 2)
    has_both = (Protocol(COOPERATIVE, subscription_of(("rides",), {"rides": frozenset({0, 1})})),)
    ticket = world.join(protocols=has_both, requires_known_member_id=False)
    world.advance(10_000)
    joined = world.joined(ticket)
    one = joined.member_id
    # It shall keep one of two. Perhaps it has not read that yet.
    share = write_assignment({"rides": frozenset({0})}, version=1)
    world.sync(one, joined.generation, shares={one: share})
    ann = world.beat_join("ann", "rides")
    assert ann.assignment == {}
    assert error_of(world.heartbeat(one, joined.generation)) is RebalanceInProgress
    has_one = (Protocol(COOPERATIVE, subscription_of(("rides",), {"rides": frozenset({0})})),)
    assert world.joined(world.join(one, protocols=has_one)).error is None
    assert world.beat("ann", ann.member_epoch).assignment == owned(t1=[1])


# --- life in a group of both


def test_classic_members_commit_with_their_generation() -> None:
    world, (one,) = classic_world(1)
    ann = Consumer(world, "ann", "rides")
    live(world, [one, ann])
    assert world.commit(5, member_id=one.member_id, generation=one.generation) is None
    assert (
        world.commit(
            6, member_id=one.member_id, generation=one.generation, knows_member_epochs=False
        )
        is None
    )
    stale = world.commit(7, member_id=one.member_id, generation=one.generation - 1)
    assert type(stale) is IllegalGeneration
    assert world.committed() == 6


def test_a_new_classic_member_is_given_an_id_first_and_then_its_share() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    ann = Consumer(world, "ann", "rides")
    live(world, [ann], 10)
    first = world.joined(world.join())
    assert error_of(first) is MemberIdRequired
    assert set(world.group().members) == {"ann"}
    second = world.joined(world.join(first.member_id))
    assert second.error is None
    one = SimClassic(world, "one", topics=("rides",))
    one.member_id = first.member_id
    live(world, [ann, one], 30)
    assert sizes(ann, one) == [2, 2]
    # Of old it got its id by joining.
    assert world.joined(world.join(requires_known_member_id=False)).error is None


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"protocol_type": "connect"}, InconsistentGroupProtocol),
        ({"protocols": ()}, InconsistentGroupProtocol),
        (
            {"protocols": (Protocol("sticky", subscription_of(("rides",))),)},
            InconsistentGroupProtocol,
        ),
        ({"protocols": (Protocol("range", b"\0"),)}, InconsistentGroupProtocol),
        ({"session_timeout_ms": 1}, InvalidSessionTimeout),
        ({"instance_id": "nobody"}, UnknownMemberId),
    ],
)
def test_a_classic_member_that_does_not_fit_is_refused_and_nothing_changes(
    fields: dict[str, Any], error: type[Exception]
) -> None:
    world, (one,) = classic_world(1)
    world.beat_join("ann", "rides")
    before = everything(world.group().copy())
    assert error_of(world.joined(world.ask(join_of("new", **fields)))) is error
    assert everything(world.group()) == before
    assert one.member_id in world.group().members


def test_a_cooperative_member_that_was_thrown_out_must_give_everything_up_before_it_joins() -> None:
    world, (one,) = classic_world(1, protocol=COOPERATIVE)
    ann = Consumer(world, "ann", "rides")
    live(world, [ann])
    assert sizes(ann) == [6]
    one.step()
    still = (Protocol(COOPERATIVE, subscription_of(("rides",), {"rides": frozenset({0})})),)
    assert error_of(world.joined(world.join(one.member_id, protocols=still))) is UnknownMemberId
    nothing = (Protocol(COOPERATIVE, subscription_of(("rides",))),)
    assert world.joined(world.join(one.member_id, protocols=nothing)).error is None


def test_a_group_of_both_has_room_for_so_many() -> None:
    world, (one,) = classic_world(1, group_consumer_max_size=2)
    world.beat_join("ann", "rides")
    assert error_of(world.joined(world.join())) is GroupMaxSizeReached
    assert error_of(world.joined(world.join("two"))) is GroupMaxSizeReached
    assert world.joined(world.join(one.member_id)).error is None


def test_each_protocol_s_requests_are_for_its_own_members() -> None:
    world, (one,) = classic_world(1)
    world.beat_join("ann", "rides")
    epoch = world.group().epoch
    assert error_of(world.heartbeat("ann", epoch)) is UnknownMemberId
    assert error_of(world.synced(world.sync("ann", epoch))) is UnknownMemberId
    assert error_of(world.leave("ann").members[0]) is UnknownMemberId
    assert error_of(world.heartbeat("nobody", epoch)) is UnknownMemberId
    assert error_of(world.heartbeat(one.member_id, epoch)) is IllegalGeneration
    wrong = world.sync(one.member_id, one.generation, protocol_name="sticky")
    assert error_of(world.synced(wrong)) is InconsistentGroupProtocol


def test_a_classic_member_that_leaves_or_falls_silent_makes_room() -> None:
    world, (one, two) = classic_world(2)
    ann = Consumer(world, "ann", "rides")
    live(world, [one, two, ann])
    one.leave()
    live(world, [two, ann], 30)
    assert sizes(two, ann) == [3, 3]
    two.kill()
    for _ in range(SESSION_MS // 1_000 - 2):
        ann.step()
        world.advance(1_000)
    assert two.member_id in world.group().members
    live(world, [ann], 10)
    assert sizes(ann) == [6]


def test_a_classic_member_that_is_told_to_join_again_and_does_not_is_out() -> None:
    world, (one,) = classic_world(1)
    ann = Consumer(world, "ann", "rides")
    ann.step()
    for _ in range(REBALANCE_MS // HEARTBEAT_MS):
        assert error_of(world.heartbeat(one.member_id, one.generation)) is RebalanceInProgress
        ann.step()
        world.advance(HEARTBEAT_MS)
    assert error_of(world.heartbeat(one.member_id, one.generation)) is UnknownMemberId
    ann.step()
    assert sizes(ann) == [6]


def test_a_classic_member_that_joins_and_never_syncs_is_out() -> None:
    world, (one,) = classic_world(1)
    ann = Consumer(world, "ann", "rides")
    ann.step()
    generation = world.joined(world.join(one.member_id)).generation
    for _ in range(REBALANCE_MS // HEARTBEAT_MS):
        assert one.member_id in world.group().members
        world.heartbeat(one.member_id, generation)
        ann.step()
        world.advance(HEARTBEAT_MS)
    assert one.member_id not in world.group().members


def test_sessions_of_classic_members_begin_anew_when_the_coordinator_is_loaded() -> None:
    world, (one,) = classic_world(1)
    ann = Consumer(world, "ann", "rides")
    live(world, [one, ann])
    world.advance(SESSION_MS - 1_500)
    world.reload()
    world.advance(SESSION_MS - 1)
    assert set(world.group().members) == {one.member_id, "ann"}
    world.advance(1)
    assert set(world.group().members) == {"ann"}


def test_a_static_member_goes_over_to_the_other_protocol_and_keeps_its_partitions() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    one = SimClassic(world, "one", topics=("rides",), instance_id="i1")
    two = SimClassic(world, "two", topics=("rides",), instance_id="i2")
    live(world, [one, two], 30)
    had = one.uses
    one.kill()
    over = Consumer(world, "over", "rides", instance_id="i1")
    over.step()
    assert over.uses == had
    told = world.heartbeat(two.member_id, two.generation, instance_id="i2")
    assert error_of(told) is RebalanceInProgress
    fenced = world.heartbeat(one.member_id, one.generation, instance_id="i1")
    assert error_of(fenced) is FencedInstanceId
    back = world.joined(world.join(instance_id="i1"))
    assert back.error is None
    assert set(world.group().members) == {back.member_id, two.member_id}


def test_a_static_member_that_goes_back_reads_what_it_says_and_nothing_by_pattern() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 1)
    world.make_topic("bills", 1)
    world.beat_join("bob", "rides")
    world.beat_join("ann", instance_id="i1", topic_pattern=".*s")
    back = world.joined(world.join(instance_id="i1"))
    assert world.group().members[back.member_id].topic_pattern is None
    assert not world.group().resolved
    assert world.group().topic_names() == {"rides"}


@pytest.mark.parametrize("leaves", [True, False])
def test_what_a_classic_member_had_to_do_is_not_asked_of_one_of_the_new_protocol_under_its_id(
    leaves: bool,
) -> None:
    world, (one,) = classic_world(1)
    bob = Consumer(world, "bob", "rides")
    bob.step()
    world.heartbeat(one.member_id, one.generation)
    world.join(one.member_id)
    if leaves:
        world.leave(one.member_id)
    same = Consumer(world, one.member_id, "rides")
    for _ in range(2 * REBALANCE_MS // HEARTBEAT_MS):
        assert same.beat() is None
        same.take_over()
        bob.step()
        world.advance(HEARTBEAT_MS)
    assert sizes(bob, same) == [3, 3]


def test_a_join_that_waits_is_told_that_its_place_is_taken() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    members = [
        SimClassic(world, name, topics=("rides",), instance_id=name) for name in ("i1", "i2")
    ]
    live(world, members, 30)
    changed = (Protocol("range", subscription_of(("rides", "bills"))),)
    ticket = world.join(members[0].member_id, instance_id="i1", protocols=changed)
    assert not world.has_reply(ticket)
    world.beat_join("ann", "rides", instance_id="i1")
    assert error_of(world.joined(ticket)) is FencedInstanceId


def test_an_administrator_removes_a_static_classic_member_by_its_instance_id() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    one = SimClassic(world, "one", topics=("rides",), instance_id="i1")
    live(world, [one], 30)
    world.beat_join("ann", "rides")
    assert error_of(world.leave(LeavingMember("", "i9")).members[0]) is UnknownMemberId
    assert world.leave(LeavingMember("", "i1")).members[0].error is None
    assert set(world.group().members) == {"ann"}


# --- down


@both_kinds
def test_the_group_is_classic_again_when_only_such_members_are_left_and_settled(
    protocol: str,
) -> None:
    world, classics = classic_world(2, protocol=protocol)
    ann = Consumer(world, "ann", "rides")
    live(world, [*classics, ann])
    assert group_type(world) is GroupType.CONSUMER
    ann.leave()
    assert group_type(world) is GroupType.CONSUMER
    live(world, classics, 30)
    assert group_type(world) is GroupType.CLASSIC
    assert GROUP not in groups_of(world.shard)
    assert sizes(*classics) == [3, 3]
    assert all(member.is_settled for member in classics)
    assert (
        world.commit(5, member_id=classics[0].member_id, generation=classics[0].generation) is None
    )
    assert classic_groups(world.folded()).keys() == {GROUP}
    assert not groups_of(world.folded())


def test_going_back_takes_no_rebalance_and_no_generation() -> None:
    world, (one, two) = classic_world(2)
    ann = Consumer(world, "ann", "rides")
    live(world, [one, two, ann])
    ann.leave()
    epoch = world.group().epoch
    live(world, [one, two], 30)
    generation, had = one.generation, (one.uses, two.uses)
    assert generation == epoch
    live(world, [one, two], 60)
    assert one.generation == two.generation == generation
    assert (one.uses, two.uses) == had
    assert world.state is GroupState.STABLE


def test_members_of_a_group_that_went_back_are_timed_out_like_others() -> None:
    world, (one, two) = classic_world(2)
    ann = Consumer(world, "ann", "rides")
    live(world, [one, two, ann])
    ann.leave()
    live(world, [one, two], 30)
    assert group_type(world) is GroupType.CLASSIC
    two.kill()
    live(world, [one], 3 * SESSION_MS // 1_000)
    assert sizes(one) == [6]


def test_a_member_that_is_never_heard_of_again_after_going_back_is_out() -> None:
    world, (one,) = classic_world(1)
    ann = Consumer(world, "ann", "rides")
    live(world, [one, ann])
    ann.leave()
    while GROUP in groups_of(world.shard):
        one.step()
    world.advance(SESSION_MS - 1)
    assert len(world.describe().members) == 1
    world.advance(1)
    assert world.state is GroupState.EMPTY


def test_a_group_that_went_back_goes_over_again() -> None:
    world, classics = classic_world(2)
    for name in ("ann", "bob"):
        new = Consumer(world, name, "rides")
        live(world, [*classics, new])
        assert sizes(*classics, new) == [2, 2, 2]
        new.leave()
        live(world, classics, 30)
        assert group_type(world) is GroupType.CLASSIC


@pytest.mark.parametrize(
    "settings",
    [
        {"group_consumer_migration_policy": "upgrade"},
        {"group_max_size": 2},
    ],
)
def test_a_group_that_may_not_go_back_goes_on_as_it_is(settings: dict[str, Any]) -> None:
    world, classics = classic_world(2, **settings)
    ann = Consumer(world, "ann", "rides")
    extra = SimClassic(world, "c9", topics=("rides",))
    live(world, [*classics, ann])
    live(world, [*classics, ann, extra])
    ann.leave()
    members = [*classics, extra]
    live(world, members)
    assert group_type(world) is GroupType.CONSUMER
    assert sizes(*members) == [2, 2, 2]


# --- groups without members


def test_a_classic_member_joins_a_consumer_group_that_is_empty_and_its_offsets_stay() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 4)
    ann = Consumer(world, "ann", "rides")
    ann.step()
    assert world.commit(5, member_id="ann", generation=ann.epoch) is None
    ann.leave()
    one = SimClassic(world, "one", topics=("rides",))
    live(world, [one], 30)
    assert sizes(one) == [4]
    assert group_type(world) is GroupType.CLASSIC
    assert world.committed() == 5
    assert not groups_of(world.folded())


def test_a_join_that_is_refused_does_not_end_an_empty_consumer_group() -> None:
    world = ConsumerWorld()
    ann = Consumer(world, "ann")
    ann.step()
    ann.leave()
    assert error_of(world.joined(world.join(session_timeout_ms=1))) is InvalidSessionTimeout
    assert group_type(world) is GroupType.CONSUMER


def test_a_consumer_joins_a_classic_group_that_is_empty_and_its_offsets_stay() -> None:
    world, (one,) = classic_world(1)
    assert world.commit(5, member_id=one.member_id, generation=one.generation) is None
    one.leave()
    ann = Consumer(world, "ann", "rides")
    ann.step()
    assert sizes(ann) == [6]
    assert ann.epoch == 1
    assert world.committed() == 5
    assert not classic_groups(world.folded())


def test_a_group_that_only_has_offsets_becomes_a_consumer_group() -> None:
    world = ConsumerWorld()
    world.make_topic("rides", 1)
    assert world.commit(5) is None
    assert world.beat_join("ann", "rides").error is None
    assert group_type(world) is GroupType.CONSUMER
    assert world.committed() == 5
    world.beat("ann", -1)
    assert world.now(DeleteGroups(group_ids=(GROUP,))).groups[0].error is None
    assert world.committed() == -1


def test_a_silent_consumer_leaves_the_classic_members_alone() -> None:
    world, classics = classic_world(2)
    ann = Consumer(world, "ann", "rides")
    live(world, [*classics, ann])
    live(world, classics, CONSUMER_SESSION_MS // 1_000 + 30)
    assert group_type(world) is GroupType.CLASSIC
    assert sizes(*classics) == [3, 3]
