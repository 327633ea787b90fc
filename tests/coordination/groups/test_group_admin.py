from coordination.group_world import DELAY_MS, GROUP, TOPIC, GroupWorld, error_of, subscription
from respool.coordination.groups.group_requests import (
    DeleteGroups,
    DescribedMember,
    FenceGroup,
    FenceGroupReply,
    GroupState,
    GroupType,
    ListedGroup,
    ListGroups,
    OffsetToCommit,
    TopicToCommit,
)
from respool.model.coordinator_errors import (
    GroupIdNotFound,
    InvalidGroupId,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    UnknownMemberId,
)
from respool.model.errors import RequestError
from respool.model.ids import Offset

# --- list and describe


def listed(world: GroupWorld, *, states: str = "", types: str = "") -> list[str]:
    request = ListGroups(states=frozenset(states.split()), types=frozenset(types.split()))
    return sorted(group.group_id for group in world.now(request).groups)


def test_groups_with_members_and_with_offsets_only_are_listed() -> None:
    world = GroupWorld()
    world.new_members(1)
    world.commit(1)
    world.commit(1, group_id="simple")
    assert world.now(ListGroups()).groups == (
        ListedGroup(GROUP, "consumer", GroupState.STABLE, GroupType.CLASSIC),
        ListedGroup("simple", "", GroupState.EMPTY, GroupType.CLASSIC),
    )


def test_groups_are_filtered_by_state_and_type_in_any_case() -> None:
    world = GroupWorld()
    world.new_members(1)
    world.commit(1, group_id="simple")
    assert listed(world, states="stable") == [GROUP]
    assert listed(world, states="STABLE Empty") == [GROUP, "simple"]
    assert listed(world, states="Dead") == []
    assert listed(world, types="CLASSIC") == [GROUP, "simple"]
    assert listed(world, types="consumer") == []
    assert listed(world, types="unheard-of") == []


def test_a_stable_group_is_described_with_who_has_what() -> None:
    world = GroupWorld()
    (one,) = world.new_static_members("i1")
    described = world.describe()
    assert (described.protocol_type, described.protocol_name) == ("consumer", "range")
    assert described.members == (
        DescribedMember(one, "i1", "app", "/127.0.0.1", subscription(TOPIC), one.encode()),
    )


def test_a_group_that_rebalances_is_described_without() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    world.join(one)
    described = world.describe()
    assert (described.state, described.protocol_name) == (GroupState.PREPARING_REBALANCE, "")
    assert {member.member_id for member in described.members} == {one, two}
    assert {member.metadata + member.assignment for member in described.members} == {b""}


def test_a_group_that_is_not_there_is_dead() -> None:
    world = GroupWorld()
    described = world.describe("nobody")
    assert described.state is GroupState.DEAD
    assert error_of(described) is GroupIdNotFound


def test_a_group_with_offsets_only_is_described_as_empty() -> None:
    world = GroupWorld()
    world.commit(1)
    assert (world.state, error_of(world.describe())) == (GroupState.EMPTY, None)


# --- delete


def delete(world: GroupWorld, *group_ids: str) -> list[type[RequestError] | None]:
    return [error_of(one) for one in world.now(DeleteGroups(group_ids=group_ids)).groups]


def test_an_empty_group_goes_with_its_offsets_for_good() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    world.commit(1, member_id=one, generation=1)
    world.leave(one)
    world.commit(1, group_id="simple")
    assert delete(world, GROUP, "simple") == [None, None]
    for _ in range(2):
        assert listed(world) == []
        assert world.committed() == world.committed(group_id="simple") == -1
        world.reload()


def test_a_group_with_members_and_one_that_is_not_there_are_not_deleted() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    world.commit(1, member_id=one, generation=1)
    before = len(world.log)
    assert delete(world, GROUP, "nobody") == [NonEmptyGroup, GroupIdNotFound]
    assert len(world.log) == before
    world.rejoin(one)
    assert delete(world, GROUP) == [NonEmptyGroup]
    assert world.committed() == 1


def test_a_group_named_twice_is_deleted_once() -> None:
    world = GroupWorld()
    world.commit(1)
    assert delete(world, GROUP, GROUP) == [None]


# --- fence


def fence(
    world: GroupWorld, offset: int, *, metadata: str = "", group_id: str = GROUP
) -> FenceGroupReply:
    one = OffsetToCommit(0, Offset(offset), metadata=metadata)
    reply = world.now(FenceGroup(group_id=group_id, topics=(TopicToCommit(TOPIC, (one,)),)))
    assert isinstance(reply, FenceGroupReply)
    return reply


def test_a_forced_reset_throws_members_out_and_sets_offsets_in_one_batch() -> None:
    world = GroupWorld()
    ids = world.new_members(2)
    world.commit(50, member_id=ids[0], generation=1)
    before = len(world.log)
    reply = fence(world, 10)
    assert (reply.error, reply.fenced_member_ids) == (None, tuple(ids))
    assert len(world.log) == before + 2
    assert world.state is GroupState.EMPTY
    assert world.committed() == 10


def test_what_members_had_under_way_cannot_undo_a_forced_reset() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    fence(world, 10)
    assert type(world.commit(60, member_id=one, generation=1)) is UnknownMemberId
    assert error_of(world.heartbeat(one, 1)) is UnknownMemberId
    world.reload()
    assert type(world.commit(60, member_id=one, generation=1)) is UnknownMemberId
    assert world.committed() == 10


def test_members_thrown_out_join_again_and_go_on_from_the_new_place() -> None:
    world = GroupWorld()
    (old,) = world.new_members(1)
    fence(world, 10)
    (again,) = world.new_members(1)
    assert again != old
    assert world.heartbeat(again, 3).error is None
    assert world.committed() == 10


def test_a_forced_reset_answers_whoever_waits() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    joining = world.join(one)
    fence(world, 10)
    assert error_of(world.joined(joining)) is UnknownMemberId
    tickets = [world.join(requires_known_member_id=False) for _ in range(2)]
    world.advance(3 * DELAY_MS)
    replies = [world.joined(ticket) for ticket in tickets]
    syncing = world.sync(replies[1].member_id, replies[1].generation)
    fence(world, 11)
    assert error_of(world.synced(syncing)) is UnknownMemberId
    assert world.committed() == 11
    assert world.state is GroupState.EMPTY
    assert error_of(world.heartbeat(two, 1)) is UnknownMemberId


def test_a_forced_reset_of_a_group_without_members_sets_its_offsets() -> None:
    world = GroupWorld()
    assert fence(world, 10).fenced_member_ids == ()
    assert world.committed() == 10


def test_a_forced_reset_that_cannot_be_done_whole_does_nothing() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    before = len(world.log)
    assert error_of(fence(world, 10, metadata="x" * 5_000)) is OffsetMetadataTooLarge
    assert error_of(fence(world, 10, group_id="")) is InvalidGroupId
    assert len(world.log) == before
    assert world.heartbeat(one, 1).error is None


def test_a_group_thrown_out_of_its_first_rebalance_leaves_no_member_behind() -> None:
    world = GroupWorld()
    waiting = world.join(requires_known_member_id=False)
    fence(world, 10)
    assert error_of(world.joined(waiting)) is UnknownMemberId
    world.advance(DELAY_MS)
    assert (world.state, world.committed()) == (GroupState.EMPTY, 10)
