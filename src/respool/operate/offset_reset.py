"""Reset a group's offsets: plan the moves, then commit them, also while the group has members."""

from collections.abc import Mapping
from dataclasses import dataclass

from respool.client.kafka.groups import GroupDescription, OffsetAndMetadata
from respool.client.kafka.metadata import Place
from respool.model.operator_errors import NotFound, OperatorError
from respool.model.quantities import counted
from respool.model.seek_target import AtTime
from respool.operate.cluster_admin import ClusterAdmin
from respool.operate.group_fence import GroupFence
from respool.operate.group_operations import GroupOperations, format_places
from respool.operate.offset_moves import OffsetMove, ShiftBy, Target, choose_places, plan_moves

FORCE_SECONDS = 30.0


class GroupIsLive(OperatorError):
    """The group has members, which would overwrite reset offsets."""

    def __init__(self, group: GroupDescription) -> None:
        members = "; ".join(
            f"{member.client_id} at {member.host}"
            + (f" reads {format_places(member.partitions)}" if member.partitions else "")
            for member in group.members
        )
        super().__init__(
            f"{member_count(group)} now ({members}). They commit how far they are, so a reset under them is refused "
            "by the broker, and their next commit would undo it",
            hint="either stop them and run this again, or add --force: the members are removed from the group and the "
            "offsets are set; at their next heartbeat they rejoin by themselves and resume at the new offsets. "
            "Messages that they have read but not committed by then are read again, according to the new offsets",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetPlan:
    moves: list[OffsetMove]
    # Partitions that cannot be moved, each with the reason.
    left_out: Mapping[Place, str]


def plan_reset(
    admin: ClusterAdmin,
    target: Target,
    *,
    wanted: dict[str, list[int] | None],
    committed: dict[Place, OffsetAndMetadata],
    name: str,
) -> ResetPlan:
    """
    Raises:
        NotFound: the group has committed nothing, and no topic is named.
    """
    known = admin.topics(named={*wanted, *(topic for topic, _ in committed)})
    places = choose_places(wanted, committed=committed, topics=known)
    if not places:
        raise NotFound(
            f"group {name} has committed nothing that still exists", hint="name topics with --topic"
        )
    touched = [known[topic] for topic in sorted({topic for topic, _ in places})]
    # Up to the log end, not the last stable offset: read_uncommitted consumers may have read beyond that.
    ranges = admin.ranges(touched, isolation="read_uncommitted")
    at_time: dict[Place, int | None] = {}
    if isinstance(target, AtTime):
        for topic in touched:
            numbers = [number for name, number in places if name == topic.name]
            found = admin.offsets_at(topic, numbers, target.ms, isolation="read_uncommitted")
            at_time |= {(topic.name, number): offset for number, offset in found.items()}
    moves = plan_moves(target, places, committed=committed, ranges=ranges, at_time=at_time)
    planned = {move.place for move in moves}
    left_out = {
        place: "the group has committed nothing there to shift from"
        if isinstance(target, ShiftBy) and place in ranges
        else "it has no leader"
        for place in places
        if place not in planned
    }
    return ResetPlan(moves=moves, left_out=left_out)


def set_offsets(
    admin: ClusterAdmin,
    name: str,
    places: Mapping[Place, OffsetAndMetadata],
    *,
    force: bool,
    who: str,
) -> int:
    """Set a group's offsets; return the number of members that were removed for it.

    Raises:
        GroupIsLive: the group has members, and `force` is not given.
        OperatorError: the offsets could not be set, or are others now.
    """
    groups = GroupOperations(admin.cluster)
    group = groups.find(name)
    if group is not None and group.members:
        if not force:
            raise GroupIsLive(group)
        fence = GroupFence(admin.cluster, name, reason=f"respool group reset --force by {who}")
        return fence.set_offsets(dict(places), seconds=FORCE_SECONDS)
    groups.commit(name, places)
    _verify(groups, name, places)
    return 0


def member_count(group: GroupDescription) -> str:
    """`group billing has 2 members`."""
    return f"group {group.name} has {counted(len(group.members), 'member')}"


def _verify(groups: GroupOperations, name: str, places: Mapping[Place, OffsetAndMetadata]) -> None:
    have = groups.committed(name)
    for (topic, number), wanted in places.items():
        got = have.get((topic, number))
        if got is None or got.offset != wanted.offset:
            raise OperatorError(
                f"{topic}/{number} was set to {wanted.offset}, but the group now has "
                f"{'nothing' if got is None else got.offset} there",
                hint="a consumer may have joined meanwhile; see: respool group describe " + name,
            )
