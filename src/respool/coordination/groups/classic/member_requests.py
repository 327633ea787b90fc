"""Requests of classic members between joins: SyncGroup, Heartbeat, LeaveGroup and commits; and session timeouts."""

from respool.coordination.decision import Ticket
from respool.coordination.draft import Draft
from respool.coordination.groups.classic.classic_group import ClassicGroup
from respool.coordination.groups.classic.classic_member import ClassicMember
from respool.coordination.groups.classic.rebalance import Rebalance
from respool.coordination.groups.group_requests import (
    NO_MEMBER_ID,
    GroupState,
    Heartbeat,
    HeartbeatReply,
    LeaveGroup,
    LeaveGroupReply,
    LeavingMember,
    LeftMember,
    OffsetCommit,
    SyncGroup,
    SyncGroupReply,
    TxnOffsetCommit,
)
from respool.model.coordinator_errors import (
    IllegalGeneration,
    InconsistentGroupProtocol,
    RebalanceInProgress,
    UnknownMemberId,
)
from respool.model.errors import RequestError

# The reply to most heartbeats, created once.
_ALL_WELL = HeartbeatReply()


class MemberRequests:
    def __init__(self, rebalance: Rebalance) -> None:
        self._rebalance = rebalance

    # --- sync

    def sync(self, group: ClassicGroup, request: SyncGroup, ticket: Ticket, draft: Draft) -> None:
        """Reply with the member's assignment, once the leader has sent it and it is written to the log."""
        try:
            member = self._check_sync(group, request)
        except RequestError as error:
            draft.answer(ticket, SyncGroupReply(error=error))
            return
        self._rebalance.on_synced(group, member.member_id)
        if group.state is GroupState.STABLE:
            self._rebalance.restart_session(group, member, draft.now_ms)
            draft.answer(ticket, _assigned(group, member.assignment))
            return
        stale = RebalanceInProgress(f"{member.member_id} has asked again")
        self._rebalance.answer_sync(group, member.member_id, draft, error=stale)
        group.syncs_waiting[member.member_id] = ticket
        if group.leader == member.member_id:
            self._take_assignment(group, request, draft)

    def _check_sync(self, group: ClassicGroup, request: SyncGroup) -> ClassicMember:
        member = group.check_member(request.member_id, request.instance_id)
        _check_generation(group, request.generation)
        for given, ours in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if given is not None and ours is not None and given != ours:
                raise InconsistentGroupProtocol(f"group {group.group_id} uses {ours}, not {given}")
        if group.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgress(f"group {group.group_id} rebalances again")
        return member

    def _take_assignment(self, group: ClassicGroup, request: SyncGroup, draft: Draft) -> None:
        """Store the leader's assignment. Members that it left out are assigned nothing; unknown members are ignored."""
        assignments = {one.member_id: one.assignment for one in request.assignments}
        self._rebalance.write_stable(group, assignments, draft)
        waiting, group.syncs_waiting = group.syncs_waiting, {}
        for member_id, ticket in waiting.items():
            draft.answer(ticket, _assigned(group, assignments.get(member_id, b"")))
            self._rebalance.restart_session(group, group.members[member_id], draft.now_ms)

    # --- heartbeats and commits

    def heartbeat(self, group: ClassicGroup, request: Heartbeat, now_ms: int) -> HeartbeatReply:
        try:
            member = group.check_member(request.member_id, request.instance_id)
            _check_generation(group, request.generation)
        except RequestError as error:
            return HeartbeatReply(error=error)
        member.expires_at_ms = now_ms + member.session_timeout_ms
        if group.state is GroupState.PREPARING_REBALANCE:
            return HeartbeatReply(
                error=RebalanceInProgress(f"group {group.group_id} waits for all to join again")
            )
        return _ALL_WELL

    def check_commit(self, group: ClassicGroup, request: OffsetCommit, now_ms: int) -> None:
        """Check that a commit is from a current member, or that the group has no members.

        Raises:
            UnknownMemberId, FencedInstanceId, IllegalGeneration: the commit is not from a current member.
            RebalanceInProgress: the new generation has no assignment yet.
        """
        if request.generation < 0 and group.state is GroupState.EMPTY:
            return
        member = group.check_member(request.member_id, request.instance_id)
        _check_generation(group, request.generation)
        if group.state is GroupState.COMPLETING_REBALANCE:
            raise RebalanceInProgress(f"group {group.group_id} waits for its assignment")
        member.expires_at_ms = now_ms + member.session_timeout_ms

    def check_txn_commit(self, group: ClassicGroup, request: TxnOffsetCommit) -> None:
        """Check a producer's commit: it may name a current member, also during a rebalance, or no member at all.

        Raises:
            UnknownMemberId, FencedInstanceId, IllegalGeneration: the commit names a member that is not current.
        """
        if request.generation < 0 and (
            group.state is GroupState.EMPTY
            or (request.member_id == NO_MEMBER_ID and request.instance_id is None)
        ):
            return
        group.check_member(request.member_id, request.instance_id)
        _check_generation(group, request.generation)

    # --- leaving

    def leave(self, group: ClassicGroup, request: LeaveGroup, draft: Draft) -> LeaveGroupReply:
        left = []
        members_before = len(group.members)
        for leaving in request.members:
            error: RequestError | None = None
            try:
                self._leave_one(group, leaving, draft)
            except RequestError as refusal:
                error = refusal
            left.append(LeftMember(leaving.member_id, leaving.instance_id, error))
        if len(group.members) < members_before:
            names = ", ".join(one.member_id or str(one.instance_id) for one in left)
            self._rebalance.on_removed(group, draft, reason=f"left: {names}")
        else:
            self._rebalance.maybe_end_join_phase(group, draft)
        return LeaveGroupReply(members=tuple(left))

    def _leave_one(self, group: ClassicGroup, leaving: LeavingMember, draft: Draft) -> None:
        if leaving.member_id != NO_MEMBER_ID:
            if group.pending_joins.pop(leaving.member_id, None) is not None:
                return
            member_id = group.check_member(leaving.member_id, leaving.instance_id).member_id
        else:
            # Only an instance id: an administrator removes a static member.
            if leaving.instance_id not in group.static_members:
                raise UnknownMemberId(f"group {group.group_id} has no {leaving.instance_id}")
            member_id = group.static_members[leaving.instance_id]
        self._rebalance.remove(group, [member_id], draft)

    # --- session timeouts

    def on_timer(self, group: ClassicGroup, draft: Draft) -> None:
        """Handle all expired deadlines and set the timer for the next one."""
        group.wake_at_ms = None
        self._expire(group, draft)
        if group.join_due_ms is not None and group.join_due_ms <= draft.now_ms:
            self._rebalance.on_join_due(group, draft)
        elif group.sync_due_ms is not None and group.sync_due_ms <= draft.now_ms:
            self._rebalance.on_sync_due(group, draft)
        for due_ms in (group.join_due_ms, group.sync_due_ms):
            if due_ms is not None:
                group.wake_by(due_ms)

    def _expire(self, group: ClassicGroup, draft: Draft) -> None:
        now_ms = draft.now_ms
        for member_id, expires_at_ms in list(group.pending_joins.items()):
            if expires_at_ms <= now_ms:
                del group.pending_joins[member_id]
            else:
                group.wake_by(expires_at_ms)
        expired = []
        for member in group.members.values():
            # A member with a waiting request need not send heartbeats; its session restarts with the reply.
            if not member.is_new and group.is_waiting(member):
                continue
            if member.expires_at_ms <= now_ms:
                expired.append(member.member_id)
            else:
                group.wake_by(member.expires_at_ms)
        if expired:
            self._rebalance.remove(group, expired, draft)
            self._rebalance.on_removed(group, draft, reason=f"silent: {', '.join(expired)}")
        else:
            self._rebalance.maybe_end_join_phase(group, draft)


def _assigned(group: ClassicGroup, assignment: bytes) -> SyncGroupReply:
    return SyncGroupReply(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=assignment,
    )


def _check_generation(group: ClassicGroup, generation: int) -> None:
    if generation != group.generation:
        raise IllegalGeneration(
            f"group {group.group_id} is in generation {group.generation}, not {generation}"
        )
