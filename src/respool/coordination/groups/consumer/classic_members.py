"""Classic-protocol members of a next-generation group: their JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

The coordinator assigns their partitions, too, so none of them is a leader or waits for the others: a join is answered
at once, with the member epoch as generation, and a sync with the member's assignment. As in the classic protocol,
REBALANCE_IN_PROGRESS makes a member rejoin, to revoke partitions or to receive some.
"""

from dataclasses import replace

from respool.coordination.groups.consumer.consumer_draft import ConsumerDraft
from respool.coordination.groups.consumer.consumer_group import ConsumerGroup
from respool.coordination.groups.consumer.consumer_member import (
    JOIN_EPOCH,
    ClassicDetails,
    ConsumerMember,
    MemberState,
)
from respool.coordination.groups.consumer.consumer_rebalance import ConsumerRebalance
from respool.coordination.groups.consumer.consumer_timers import ConsumerTimers
from respool.coordination.groups.consumer.partition_sets import NO_PARTITIONS, difference
from respool.coordination.groups.consumer.topics_view import with_ids, with_names
from respool.coordination.groups.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    read_subscription,
    write_assignment,
)
from respool.coordination.groups.group_requests import (
    NO_MEMBER_ID,
    Heartbeat,
    JoinGroup,
    JoinGroupReply,
    LeaveGroup,
    LeaveGroupReply,
    LeavingMember,
    LeftMember,
    SyncGroup,
    SyncGroupReply,
)
from respool.model.coordinator_errors import (
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    RebalanceInProgress,
    UnknownMemberId,
)
from respool.model.coordinator_settings import GroupSettings
from respool.model.errors import RequestError


class ClassicMembers:
    def __init__(
        self, settings: GroupSettings, *, rebalance: ConsumerRebalance, time: ConsumerTimers
    ) -> None:
        self._settings = settings
        self._rebalance = rebalance
        self._time = time

    def join(
        self, change: ConsumerDraft, request: JoinGroup, *, member_id: str, wall_ms: int
    ) -> JoinGroupReply:
        """Add a member or let it rejoin. `member_id` is the one in the request, or a new one.

        Raises:
            InconsistentGroupProtocol, UnknownMemberId, FencedInstanceId: discard the changes in `change` so far.
        """
        subscription = read_subscription(request.protocols[0].metadata)
        before = self._member_before(change, request, member_id)
        if before is None and subscription.owned:
            # The member was removed and does not know. Another member may own its partitions by now.
            raise UnknownMemberId(f"group {request.group_id} has no member {member_id}")
        member = replace(
            before or ConsumerMember(member_id=member_id),
            instance_id=request.instance_id,
            rack_id=subscription.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=subscription.topic_names,
            topic_pattern=None,
            rebalance_timeout_ms=max(0, request.rebalance_timeout_ms),
            assignor=None,
            classic=ClassicDetails(request.session_timeout_ms, request.protocols),
        )
        self._rebalance.subscribe(change, before, member, wall_ms)
        return self.joined(change, member_id)

    def joined(self, change: ConsumerDraft, member_id: str) -> JoinGroupReply:
        """The reply to a joining member, which has revoked all partitions that it does not report as owned."""
        classic = _classic(change.group.members[member_id])
        subscription = read_subscription(classic.protocols[0].metadata)
        self._rebalance.assign(change)
        owned = with_ids(subscription.owned, self._rebalance.topics)
        member = self._rebalance.reconcile(change, member_id, owned=owned)
        return JoinGroupReply(
            member_id=member_id,
            generation=member.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=classic.protocols[0].name,
        )

    def check_join(self, group: ConsumerGroup, request: JoinGroup) -> None:
        """Check that a classic member may join the group.

        Raises:
            InvalidSessionTimeout, GroupMaxSizeReached, InconsistentGroupProtocol: it may not join.
        """
        low = self._settings.group_min_session_timeout_ms
        high = self._settings.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            raise InvalidSessionTimeout(
                f"session timeout {request.session_timeout_ms} ms is not within {low} and {high}"
            )
        is_known = request.member_id in group.members or request.instance_id in group.static_members
        if not is_known and len(group.members) >= self._settings.group_consumer_max_size:
            raise GroupMaxSizeReached(
                f"group {group.group_id} has {len(group.members)} members, "
                f"limit {self._settings.group_consumer_max_size}"
            )
        if not _supports(group, request):
            raise InconsistentGroupProtocol(
                f"group {group.group_id} has no protocol in common with type {request.protocol_type!r}"
            )

    def sync(self, group: ConsumerGroup, request: SyncGroup, now_ms: int) -> SyncGroupReply:
        """The reply with a member's assignment.

        Raises:
            UnknownMemberId, FencedInstanceId, IllegalGeneration, InconsistentGroupProtocol: the member is not current.
            RebalanceInProgress: the member must rejoin first.
        """
        member = _check_member(group, request.member_id, request.instance_id, request.generation)
        protocol = _classic(member).protocols[0]
        for given, ours in (
            (request.protocol_type, CONSUMER_PROTOCOL_TYPE),
            (request.protocol_name, protocol.name),
        ):
            if given is not None and given != ours:
                raise InconsistentGroupProtocol(f"group {group.group_id} uses {ours}, not {given}")
        # A member that must revoke partitions first receives those that it keeps.
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            self._time.on_asked_to_rejoin(group.group_id, member, now_ms)
            raise RebalanceInProgress(f"group {group.group_id} is at epoch {group.epoch}")
        self._time.on_synced(group.group_id, member, now_ms)
        return SyncGroupReply(
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=protocol.name,
            assignment=write_assignment(
                with_names(member.assigned, self._rebalance.topics),
                version=read_subscription(protocol.metadata).version,
            ),
        )

    def heartbeat(self, group: ConsumerGroup, request: Heartbeat, now_ms: int) -> None:
        """Handle a member's heartbeat.

        Raises:
            UnknownMemberId, FencedInstanceId, IllegalGeneration: the member is not current.
            RebalanceInProgress: the member must rejoin, to revoke partitions or to receive some.
        """
        member = _check_member(group, request.member_id, request.instance_id, request.generation)
        self._time.keep_session(group.group_id, member, now_ms)
        # The epoch of a member that must revoke partitions is behind, too.
        if member.epoch < group.epoch or (
            member.state is MemberState.UNRELEASED and not _waits_for_others(group, member)
        ):
            self._time.on_asked_to_rejoin(group.group_id, member, now_ms)
            raise RebalanceInProgress(f"member {member.member_id} must join again")

    def leave(self, change: ConsumerDraft, request: LeaveGroup, wall_ms: int) -> LeaveGroupReply:
        left = []
        gone = []
        for leaving in request.members:
            error: RequestError | None = None
            try:
                gone.append(_check_leaving(change.group, leaving).member_id)
            except RequestError as refusal:
                error = refusal
            left.append(LeftMember(leaving.member_id, leaving.instance_id, error))
        if gone:
            self._rebalance.remove(change, dict.fromkeys(gone), wall_ms)
        return LeaveGroupReply(members=tuple(left))

    def _member_before(
        self, change: ConsumerDraft, request: JoinGroup, member_id: str
    ) -> ConsumerMember | None:
        group = change.group
        if request.instance_id is None:
            return group.members.get(member_id)
        if request.member_id != NO_MEMBER_ID:
            return group.find(member_id, request.instance_id)
        old_id = group.static_members.get(request.instance_id)
        if old_id is None:
            return None
        old = group.members[old_id]
        new = replace(old, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        self._rebalance.replace_static(change, old, new)
        return new


def _classic(member: ConsumerMember) -> ClassicDetails:
    assert member.classic is not None, member.member_id
    return member.classic


def _supports(group: ConsumerGroup, request: JoinGroup) -> bool:
    """True if the group's classic members and this one have a protocol in common."""
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not request.protocols:
        return False
    replaced = group.static_members.get(request.instance_id or NO_MEMBER_ID)
    common = {protocol.name for protocol in request.protocols}
    for member in group.classic_members:
        if member.member_id not in (request.member_id, replaced):
            common &= {protocol.name for protocol in _classic(member).protocols}
    return bool(common)


def _check_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ConsumerMember:
    member = group.find(member_id, instance_id)
    if member.classic is None:
        raise UnknownMemberId(f"member {member_id} does not use the classic protocol")
    if generation != member.epoch:
        raise IllegalGeneration(f"member {member_id} is at epoch {member.epoch}, not {generation}")
    return member


def _check_leaving(group: ConsumerGroup, leaving: LeavingMember) -> ConsumerMember:
    member_id = leaving.member_id
    if member_id == NO_MEMBER_ID:
        # Only an instance id: an administrator removes a static member.
        member_id = group.static_members.get(leaving.instance_id or NO_MEMBER_ID, NO_MEMBER_ID)
        member = group.find(member_id, None)
    else:
        member = group.find(member_id, leaving.instance_id)
    if member.classic is None:
        raise UnknownMemberId(f"member {member_id} does not use the classic protocol")
    return member


def _waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    target = group.targets.get(member.member_id, NO_PARTITIONS)
    missing = difference(target, member.assigned)
    return bool(group.held_by_others(member.member_id, missing))
