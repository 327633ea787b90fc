"""JoinGroup: decides whether a member may join, assigns its member id, and starts a rebalance if needed."""

import logging

from respool.coordination.decision import Ticket
from respool.coordination.draft import Draft
from respool.coordination.groups.classic.classic_group import ClassicGroup
from respool.coordination.groups.classic.classic_member import ClassicMember
from respool.coordination.groups.classic.rebalance import Rebalance, members_for_leader
from respool.coordination.groups.group_requests import (
    NO_MEMBER_ID,
    GroupState,
    JoinGroup,
    JoinGroupReply,
)
from respool.coordination.record_bytes import fits_a_string
from respool.model.coordinator_errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
)
from respool.model.coordinator_settings import GroupSettings
from respool.model.errors import InvalidRequest, RequestError
from respool.ports.random_source import RandomSource

logger = logging.getLogger(__name__)

# A new member may have disconnected during its first join and joined again under another id. Kafka's value.
NEW_MEMBER_JOIN_MS = 5 * 60_000
# The maximum length of client-supplied text in a member id, because many records contain the id.
_NAME_IN_ID_LENGTH_MAX = 255


class Joining:
    def __init__(self, settings: GroupSettings, *, rebalance: Rebalance, rng: RandomSource) -> None:
        self._settings = settings
        self._rebalance = rebalance
        self._rng = rng

    def join(self, group: ClassicGroup, request: JoinGroup, ticket: Ticket, draft: Draft) -> None:
        """Reply to the join at once, or keep its ticket until the generation is complete."""
        try:
            self._check(group, request)
            if request.member_id != NO_MEMBER_ID:
                self._join_known(group, request, ticket, draft)
            elif request.instance_id is not None:
                self._join_static(group, request, ticket, draft)
            else:
                self._join_new(group, request, ticket, draft)
        except GroupMaxSizeReached as error:
            self._turn_away(group, request, draft)
            draft.answer(ticket, JoinGroupReply(error=error))
        except RequestError as error:
            draft.answer(ticket, JoinGroupReply(error=error, member_id=request.member_id))

    def _check(self, group: ClassicGroup, request: JoinGroup) -> None:
        low = self._settings.group_min_session_timeout_ms
        high = self._settings.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            raise InvalidSessionTimeout(
                f"session timeout {request.session_timeout_ms} ms is not within {low} and {high}"
            )
        if not self._has_room(group, request.member_id):
            raise GroupMaxSizeReached(
                f"group {group.group_id} has {len(group.members)} members, "
                f"limit {self._settings.group_max_size}"
            )
        names = (request.protocol_type, *(protocol.name for protocol in request.protocols))
        if not group.supports(request.protocol_type, request.protocols) or not all(
            map(fits_a_string, names)
        ):
            raise InconsistentGroupProtocol(
                f"group {group.group_id} of type {group.protocol_type!r} has no protocol in common with "
                f"type {request.protocol_type!r}"
            )
        if request.instance_id is not None and not fits_a_string(request.instance_id):
            raise InvalidRequest(f"an instance id of {len(request.instance_id)} characters")

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        limit = self._settings.group_max_size
        if group.state is GroupState.PREPARING_REBALANCE:
            # If the limit was lowered, the first members to join again stay.
            return member_id in group.joins_waiting or len(group.joins_waiting) < limit
        return member_id in group.members or len(group.members) < limit

    def _turn_away(self, group: ClassicGroup, request: JoinGroup, draft: Draft) -> None:
        group.pending_joins.pop(request.member_id, None)
        if request.member_id in group.members:
            self._rebalance.remove(group, [request.member_id], draft)
        self._rebalance.maybe_end_join_phase(group, draft)

    # --- new members

    def _join_new(
        self, group: ClassicGroup, request: JoinGroup, ticket: Ticket, draft: Draft
    ) -> None:
        member_id = self._new_member_id(request.client_id)
        if not request.requires_known_member_id:
            self._add(group, request, member_id, ticket, draft)
            return
        expires_at_ms = draft.now_ms + request.session_timeout_ms
        group.pending_joins[member_id] = expires_at_ms
        group.wake_by(expires_at_ms)
        error = MemberIdRequired(f"join group {group.group_id} again as {member_id}")
        draft.answer(ticket, JoinGroupReply(error=error, member_id=member_id))

    def _join_static(
        self, group: ClassicGroup, request: JoinGroup, ticket: Ticket, draft: Draft
    ) -> None:
        assert request.instance_id is not None
        member_id = self._new_member_id(request.instance_id)
        old_id = group.static_members.get(request.instance_id)
        if old_id is None:
            self._add(group, request, member_id, ticket, draft)
        else:
            new = ClassicMember.joining(request, member_id=member_id)
            self._replace(group, group.members[old_id], new, request, ticket=ticket, draft=draft)

    def _add(
        self,
        group: ClassicGroup,
        request: JoinGroup,
        member_id: str,
        ticket: Ticket,
        draft: Draft,
    ) -> None:
        member = ClassicMember.joining(request, member_id=member_id)
        if not group.members:
            group.protocol_type = request.protocol_type
        group.add(member)
        group.new_member_added = True
        group.joins_waiting[member_id] = ticket
        member.expires_at_ms = draft.now_ms + NEW_MEMBER_JOIN_MS
        group.wake_by(member.expires_at_ms)
        self._rebalance.begin_or_advance(
            group, draft, reason=f"{member_id} joins ({request.reason or 'no reason given'})"
        )

    def _new_member_id(self, name: str) -> str:
        return f"{name[:_NAME_IN_ID_LENGTH_MAX]}-{self._rng.uuid()}"

    # --- a static member joins again

    def _replace(
        self,
        group: ClassicGroup,
        old: ClassicMember,
        new: ClassicMember,
        request: JoinGroup,
        *,
        ticket: Ticket,
        draft: Draft,
    ) -> None:
        logger.info(
            "group %r: %r is %r now, was %r",
            group.group_id,
            old.instance_id,
            new.member_id,
            old.member_id,
        )
        self._fence(group, old, draft)
        leader_before = group.leader
        group.replace_static(old, new)
        self._rebalance.restart_session(group, new, draft.now_ms)
        if group.state is GroupState.STABLE and group.choose_protocol() == group.protocol_name:
            # The member takes over its predecessor's partitions without a rebalance.
            assignments = {one.member_id: one.assignment for one in group.members.values()}
            self._rebalance.write_stable(group, assignments, draft)
            self._rebalance.expect_syncs(group, [new.member_id], draft)
            draft.answer(ticket, self._taken_over(group, new, request, leader_before))
            return
        group.joins_waiting[new.member_id] = ticket
        self._rebalance.begin_or_advance(
            group, draft, reason=f"{new.member_id} takes the place of {old.member_id}"
        )

    def _fence(self, group: ClassicGroup, old: ClassicMember, draft: Draft) -> None:
        error = FencedInstanceId(f"another member has joined as {old.instance_id}")
        reply = JoinGroupReply(error=error, member_id=old.member_id)
        self._rebalance.answer_join(group, old, draft, reply=reply)
        self._rebalance.answer_sync(group, old.member_id, draft, error=error)

    def _taken_over(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        request: JoinGroup,
        leader_before: str | None,
    ) -> JoinGroupReply:
        """Reply to a static member that rejoined without a rebalance.

        A rejoined leader must not assign partitions while the other members continue: the reply tells it to skip the
        assignment or, for older clients, names the replaced member as leader.
        """
        assert group.leader is not None
        assert leader_before is not None
        is_leader = group.leader == member.member_id
        knows_skipping = request.supports_skipping_assignment
        return JoinGroupReply(
            member_id=member.member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=group.leader if knows_skipping else leader_before,
            skip_assignment=is_leader and knows_skipping,
            members=members_for_leader(group) if is_leader and knows_skipping else (),
        )

    # --- known members join again

    def _join_known(
        self, group: ClassicGroup, request: JoinGroup, ticket: Ticket, draft: Draft
    ) -> None:
        if request.member_id in group.pending_joins and request.instance_id is None:
            self._add(group, request, request.member_id, ticket, draft)
            return
        member = group.check_member(request.member_id, request.instance_id)
        changed = member.protocols != request.protocols
        is_leader = group.leader == member.member_id
        if group.state is GroupState.PREPARING_REBALANCE:
            needs_rebalance = True
        elif group.state is GroupState.COMPLETING_REBALANCE:
            # Nothing has changed: the member only missed the reply to its join.
            needs_rebalance = changed
        else:
            # A leader rejoins to trigger a new assignment, for reasons that its metadata does not show.
            needs_rebalance = changed or is_leader
        if needs_rebalance:
            self._join_again(group, member, request, ticket, draft)
        else:
            self._rebalance.restart_session(group, member, draft.now_ms)
            draft.answer(ticket, self._rebalance.joined(group, member))

    def _join_again(
        self,
        group: ClassicGroup,
        member: ClassicMember,
        request: JoinGroup,
        ticket: Ticket,
        draft: Draft,
    ) -> None:
        # A member that lost its connection joins again; nobody would read the reply to its first request.
        stale = RebalanceInProgress(f"{member.member_id} has asked again")
        self._rebalance.answer_join(
            group,
            member,
            draft,
            reply=JoinGroupReply(error=stale, member_id=member.member_id),
        )
        group.update_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = max(0, request.rebalance_timeout_ms)
        member.client_id = request.client_id
        member.client_host = request.client_host
        group.joins_waiting[member.member_id] = ticket
        self._rebalance.begin_or_advance(
            group,
            draft,
            reason=f"{member.member_id} joins again ({request.reason or 'no reason given'})",
        )
