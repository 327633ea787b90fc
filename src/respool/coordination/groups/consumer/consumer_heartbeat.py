"""ConsumerGroupHeartbeat: with this request a member joins, stays in the group, gets its assignment, and leaves."""

from dataclasses import replace

from respool.coordination.groups.consumer.assignors import ASSIGNORS
from respool.coordination.groups.consumer.consumer_draft import ConsumerDraft
from respool.coordination.groups.consumer.consumer_group import ConsumerGroup
from respool.coordination.groups.consumer.consumer_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
)
from respool.coordination.groups.consumer.consumer_rebalance import ConsumerRebalance
from respool.coordination.groups.consumer.consumer_requests import (
    UNCHANGED_TIMEOUT,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
)
from respool.coordination.groups.consumer.consumer_timers import TimesOf
from respool.coordination.groups.consumer.partition_sets import NO_PARTITIONS, is_within
from respool.coordination.record_bytes import fits_a_string
from respool.model.coordinator_errors import (
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from respool.model.coordinator_settings import GroupSettings
from respool.model.errors import InvalidRequest


class ConsumerHeartbeats:
    def __init__(
        self, settings: GroupSettings, *, rebalance: ConsumerRebalance, times_of: TimesOf
    ) -> None:
        self._settings = settings
        self._times_of = times_of
        self._rebalance = rebalance

    def heartbeat(
        self,
        change: ConsumerDraft,
        request: ConsumerGroupHeartbeat,
        *,
        member_id: str,
        wall_ms: int,
    ) -> ConsumerGroupHeartbeatReply:
        """Handle a member's join or heartbeat. `member_id` is the one in the request, or a new one.

        Raises:
            GroupMaxSizeReached, UnknownMemberId, FencedInstanceId, UnreleasedInstanceId, FencedMemberEpoch,
            InvalidRegularExpression: discard the changes in `change` so far.
        """
        before = self._member_before(change, request, member_id)
        is_joining = request.member_epoch == JOIN_EPOCH
        member = _with_news(before or ConsumerMember(member_id=member_id), request)
        if before is not member:
            self._rebalance.subscribe(change, before, member, wall_ms)
        group = change.group
        if before is not member or not _is_reconciled(group, member):
            self._rebalance.assign(change)
            member = self._rebalance.reconcile(change, member_id, owned=request.owned)
        has_assignment = is_joining or _says_all(request) or before is None
        if not has_assignment and before is not None:
            has_assignment = before.assigned != member.assigned
        return ConsumerGroupHeartbeatReply(
            member_id=member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._times_of(group.group_id).heartbeat_interval_ms,
            assignment=member.assigned if has_assignment else None,
        )

    def leave(
        self, change: ConsumerDraft, request: ConsumerGroupHeartbeat, *, wall_ms: int
    ) -> ConsumerGroupHeartbeatReply:
        """Remove a member; if a static one leaves temporarily, its partitions are kept for it.

        Raises:
            UnknownMemberId, FencedInstanceId: there is no such member.
        """
        member = change.group.find(request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_EPOCH:
            self._rebalance.remove(change, [member.member_id], wall_ms)
        else:
            away = replace(
                member,
                epoch=LEAVE_STATIC_EPOCH,
                state=MemberState.STABLE,
                revoking=NO_PARTITIONS,
            )
            change.put_current(away)
        return ConsumerGroupHeartbeatReply(
            member_id=request.member_id, member_epoch=request.member_epoch
        )

    def _member_before(
        self, change: ConsumerDraft, request: ConsumerGroupHeartbeat, member_id: str
    ) -> ConsumerMember | None:
        """The existing member; None for a new one."""
        group = change.group
        if request.member_epoch != JOIN_EPOCH:
            member = group.find(member_id, request.instance_id)
            _check_epoch(member, request)
            return member
        static_id = group.static_members.get(request.instance_id or "")
        if static_id is not None and static_id != member_id:
            return self._take_place_of(change, group.members[static_id], member_id)
        member_before = group.members.get(member_id)
        if member_before is None and len(group.members) >= self._settings.group_consumer_max_size:
            raise GroupMaxSizeReached(
                f"group {group.group_id} has {len(group.members)} members, "
                f"limit {self._settings.group_consumer_max_size}"
            )
        return member_before

    def _take_place_of(
        self, change: ConsumerDraft, old: ConsumerMember, member_id: str
    ) -> ConsumerMember:
        # A classic member cannot leave temporarily: its successor replaces it when it joins.
        if old.epoch != LEAVE_STATIC_EPOCH and old.classic is None:
            raise UnreleasedInstanceId(
                f"{old.instance_id} of group {change.group.group_id} is member {old.member_id}, "
                f"at epoch {old.epoch}"
            )
        new = replace(old, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
        self._rebalance.replace_static(change, old, new)
        return new


def check_request(request: ConsumerGroupHeartbeat) -> None:
    """Check a request on its own, without the group.

    Raises:
        InvalidRequest: its fields contradict each other.
        UnsupportedAssignor: there is no such assignor.
        InvalidRegularExpression: the pattern is too long.
    """
    if not request.group_id:
        raise InvalidRequest("the group id is empty")
    if not request.member_id and (request.chooses_member_id or request.member_epoch != JOIN_EPOCH):
        raise InvalidRequest("the member id is empty")
    for name in ("instance_id", "rack_id"):
        if getattr(request, name) == "":
            raise InvalidRequest(f"the {name.replace('_', ' ')} is empty")
    for text in (request.group_id, request.member_id, request.instance_id or ""):
        if not fits_a_string(text):
            raise InvalidRequest(f"an id of {len(text)} characters")
    if request.member_epoch == JOIN_EPOCH:
        _check_joining(request)
    elif request.member_epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise InvalidRequest("only a member with an instance id can leave for a while")
    elif request.member_epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequest(f"there is no member epoch {request.member_epoch}")
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        raise UnsupportedAssignor(
            f"there is no assignor {request.assignor!r}, only {', '.join(ASSIGNORS)}"
        )
    if request.topic_pattern is not None and not fits_a_string(request.topic_pattern):
        raise InvalidRegularExpression(f"a pattern of {len(request.topic_pattern)} characters")


def _check_joining(request: ConsumerGroupHeartbeat) -> None:
    if request.rebalance_timeout_ms == UNCHANGED_TIMEOUT:
        raise InvalidRequest("a joining member must give its rebalance timeout")
    if request.owned is None or request.owned:
        raise InvalidRequest("a joining member must own no partitions and say so")
    if request.topic_names is None and request.topic_pattern is None:
        raise InvalidRequest("a joining member must give topic names or a pattern")


def _check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeat) -> None:
    epoch = request.member_epoch
    # The reply with the newer epoch may have been lost: accept the previous epoch if the member owns nothing else.
    lost_reply = (
        epoch == member.previous_epoch
        and request.owned is not None
        and is_within(request.owned, member.assigned)
    )
    if epoch != member.epoch and not lost_reply:
        raise FencedMemberEpoch(
            f"member {member.member_id} is at epoch {member.epoch}, the request at {epoch}; "
            "it must revoke all its partitions and join again"
        )


def _with_news(member: ConsumerMember, request: ConsumerGroupHeartbeat) -> ConsumerMember:
    """The member with the fields that the request changes; the same object if nothing changes.

    A member that joins sends everything: missing fields become empty, whatever it or its predecessor had before.
    """
    is_joining = request.member_epoch == JOIN_EPOCH
    news: dict[str, object] = {
        "client_id": request.client_id,
        "client_host": request.client_host,
        "classic": None,
    }
    if is_joining or request.instance_id is not None:
        news["instance_id"] = request.instance_id
    if is_joining or request.rack_id is not None:
        news["rack_id"] = request.rack_id
    if is_joining or request.assignor is not None:
        news["assignor"] = request.assignor
    if request.rebalance_timeout_ms != UNCHANGED_TIMEOUT:
        news["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if is_joining or request.topic_names is not None:
        news["topic_names"] = frozenset(request.topic_names or ())
    if is_joining or request.topic_pattern is not None:
        news["topic_pattern"] = request.topic_pattern or None
    if all(getattr(member, name) == value for name, value in news.items()):
        return member
    return replace(member, **news)  # type: ignore[arg-type]


def _is_reconciled(group: ConsumerGroup, member: ConsumerMember) -> bool:
    return group.epoch == group.target_epoch and member.is_reconciled_to(group.target_epoch)


def _says_all(request: ConsumerGroupHeartbeat) -> bool:
    """True for a full request: after a lost reply, a member sends all fields and expects its whole assignment."""
    return (
        request.rebalance_timeout_ms != UNCHANGED_TIMEOUT
        and (request.topic_names is not None or request.topic_pattern is not None)
        and request.owned is not None
    )
