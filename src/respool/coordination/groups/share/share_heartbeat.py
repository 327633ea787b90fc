"""ShareGroupHeartbeat: with this request a member joins a share group, stays in it, gets its assignment, and leaves.

A heartbeat changes the member and computes the assignment. If the member's partitions have no state yet at the share
coordinator, `ShareGroups` holds the reply until they have, so a new group has its partitions with its first reply.
"""

from dataclasses import replace

from respool.coordination.groups.consumer.consumer_member import JOIN_EPOCH, LEAVE_EPOCH
from respool.coordination.groups.consumer.partition_sets import NO_PARTITIONS, PartitionSet
from respool.coordination.groups.consumer.topics_view import TopicsView
from respool.coordination.groups.share.share_group import (
    ShareGroup,
    ShareGroupDraft,
    ShareMember,
)
from respool.coordination.groups.share.share_group_records import (
    ShareRecordKind,
    ShareTargetEpochValue,
    ShareTargetValue,
)
from respool.coordination.groups.share.share_group_requests import (
    MEMBER_ID_LENGTH_MAX,
    ShareGroupHeartbeat,
)
from respool.coordination.groups.share.simple_assignor import ShareSubscriber, assign_simple
from respool.coordination.record_bytes import fits_a_string
from respool.model.coordinator_errors import (
    FencedMemberEpoch,
    GroupMaxSizeReached,
    UnknownMemberId,
)
from respool.model.errors import InvalidRequest
from respool.model.ids import TopicId


def check_heartbeat(request: ShareGroupHeartbeat) -> None:
    """Check a request on its own, without the group.

    Raises:
        InvalidRequest: its fields contradict each other.
    """
    if not request.group_id:
        raise InvalidRequest("the group id is empty")
    if not request.member_id:
        raise InvalidRequest("the member id is empty")
    if len(request.member_id) > MEMBER_ID_LENGTH_MAX:
        raise InvalidRequest(
            f"a member id of {len(request.member_id)} characters, at most {MEMBER_ID_LENGTH_MAX} are allowed"
        )
    if request.rack_id == "":
        raise InvalidRequest("the rack id is empty")
    for text in (request.group_id, request.rack_id or "", *(request.topic_names or ())):
        if not fits_a_string(text):
            raise InvalidRequest(f"a name of {len(text)} characters")
    if request.member_epoch < LEAVE_EPOCH:
        raise InvalidRequest(f"there is no member epoch {request.member_epoch}")
    if request.member_epoch == JOIN_EPOCH and not request.topic_names:
        raise InvalidRequest("a joining member must give topic names")


def join_or_stay(
    change: ShareGroupDraft, request: ShareGroupHeartbeat, *, topics: TopicsView, size_max: int
) -> bool:
    """Write the member if it joins or has changed; return True if it must hear of its assignment.

    Raises:
        UnknownMemberId, FencedMemberEpoch, GroupMaxSizeReached: discard the changes in `change` so far.
    """
    before = _member_before(change.group, request, size_max)
    member = _with_changes(before or ShareMember(member_id=request.member_id), request)
    if before is None or before.value != member.value:
        change.put(ShareRecordKind.MEMBER, member.value, member.member_id)
    if before is None or before.topic_names != member.topic_names:
        change.begin_epoch(topics)
    return (
        request.member_epoch == JOIN_EPOCH
        or request.topic_names is not None
        or (before is not None and request.member_epoch != before.epoch)
    )


def leave(change: ShareGroupDraft, request: ShareGroupHeartbeat, *, topics: TopicsView) -> None:
    """Remove a member. What it holds comes back through its share sessions.

    Raises:
        UnknownMemberId: there is no such member.
    """
    _find(change.group, request.member_id)
    change.end_member(request.member_id)
    change.begin_epoch(topics)


def assign(change: ShareGroupDraft, *, topics: TopicsView, wall_ms: int) -> None:
    """Compute the target assignment for the group's epoch, unless it is up to date."""
    group = change.group
    if group.is_assigned:
        return
    subscribers = {
        member_id: ShareSubscriber(
            topic_ids_of(member, topics), group.targets.get(member_id, NO_PARTITIONS)
        )
        for member_id, member in group.members.items()
    }
    for member_id, partitions in assign_simple(subscribers, assignable(group, topics)).items():
        if group.targets.get(member_id) != partitions:
            change.put(ShareRecordKind.TARGET, ShareTargetValue(partitions), member_id)
    change.put(ShareRecordKind.TARGET_EPOCH, ShareTargetEpochValue(group.epoch, wall_ms))


def reconcile(change: ShareGroupDraft, member_id: str) -> ShareMember:
    """Give the member its target."""
    group = change.group
    member = group.members[member_id]
    target = group.targets.get(member_id, NO_PARTITIONS)
    if member.epoch == group.target_epoch and member.assigned == target:
        return member
    previous = member.previous_epoch if member.epoch == group.target_epoch else member.epoch
    after = replace(member, epoch=group.target_epoch, previous_epoch=previous, assigned=target)
    change.put_current(after)
    return after


def assignable(group: ShareGroup, topics: TopicsView) -> PartitionSet:
    """The subscribed partitions that have state."""
    subscribed = group.subscribed(topics)
    return {
        topic_id: numbers & subscribed[topic_id]
        for topic_id, numbers in group.states.initialized.items()
        if topic_id in subscribed and numbers & subscribed[topic_id]
    }


def topic_ids_of(member: ShareMember, topics: TopicsView) -> frozenset[TopicId]:
    return frozenset(topics[name].topic_id for name in member.topic_names if name in topics)


def _member_before(
    group: ShareGroup, request: ShareGroupHeartbeat, size_max: int
) -> ShareMember | None:
    """The existing member; None for a new one."""
    if request.member_epoch == JOIN_EPOCH:
        before = group.members.get(request.member_id)
        if before is None and len(group.members) >= size_max:
            raise GroupMaxSizeReached(
                f"group {group.group_id} has {len(group.members)} members, limit {size_max}: "
                "see group.share.max.size of the broker"
            )
        return before
    member = _find(group, request.member_id)
    # The reply with the newer epoch may have been lost.
    if request.member_epoch not in {member.epoch, member.previous_epoch}:
        raise FencedMemberEpoch(
            f"member {member.member_id} is at epoch {member.epoch}, the request at "
            f"{request.member_epoch}; it must join again"
        )
    return member


def _find(group: ShareGroup, member_id: str) -> ShareMember:
    member = group.members.get(member_id)
    if member is None:
        raise UnknownMemberId(f"group {group.group_id} has no member {member_id}")
    return member


def _with_changes(member: ShareMember, request: ShareGroupHeartbeat) -> ShareMember:
    is_joining = request.member_epoch == JOIN_EPOCH
    rack_id = request.rack_id if is_joining or request.rack_id is not None else member.rack_id
    topic_names = (
        member.topic_names if request.topic_names is None else frozenset(request.topic_names)
    )
    return replace(
        member,
        rack_id=rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=topic_names,
    )
