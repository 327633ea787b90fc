"""Decides which of the two consumer protocols a group uses, and how requests of the other protocol are handled.

Share groups are not consumer groups: requests of both protocols do not find them.
A group uses one protocol at a time. A next-generation group may have members of both; `group_upgrade.py` describes the
conversion. A group without members takes the protocol of the first member that joins.
"""

from respool.coordination.decision import Decision, Ticket
from respool.coordination.draft import Draft
from respool.coordination.groups.classic.classic_groups import CLASSIC_TIMER, ClassicGroups
from respool.coordination.groups.consumer.consumer_groups import ConsumerGroups
from respool.coordination.groups.consumer.consumer_requests import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
)
from respool.coordination.groups.group_requests import (
    Heartbeat,
    JoinGroup,
    JoinGroupReply,
    LeaveGroup,
    SyncGroup,
)
from respool.coordination.groups.share.share_groups import ShareGroups
from respool.model.coordinator_errors import GroupIdNotFound


class GroupProtocols:
    def __init__(
        self, *, classic: ClassicGroups, consumers: ConsumerGroups, shares: ShareGroups
    ) -> None:
        self._classic = classic
        # Invariant: no group is in two of them.
        self._consumers = consumers
        self._shares = shares

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeat, ticket: Ticket, draft: Draft
    ) -> Decision:
        if request.group_id in self._shares.groups:
            error = GroupIdNotFound(f"group {request.group_id} is a share group")
            draft.answer(ticket, ConsumerGroupHeartbeatReply(error=error))
            return draft.decision()
        classic = self._classic.groups.get(request.group_id)
        self._consumers.heartbeat(request, ticket, draft, classic=classic)
        return draft.decision()

    def join(self, request: JoinGroup, ticket: Ticket, draft: Draft) -> Decision:
        if request.group_id in self._shares.groups:
            error = GroupIdNotFound(f"group {request.group_id} is a share group")
            draft.answer(ticket, JoinGroupReply(error=error, member_id=request.member_id))
            return draft.decision()
        group = self._consumers.groups.get(request.group_id)
        if group is None:
            return self._classic.join(request, ticket, draft)
        if group.members:
            self._consumers.join(request, ticket, draft)
            return draft.decision()
        end = Draft(draft.now_ms, wall_ms=draft.wall_ms)
        decision = self._classic.join(request, ticket, draft)
        if request.group_id in self._classic.groups:
            # A member joins, or has asked for its member id: the empty group of the other protocol is deleted.
            self._consumers.delete(request.group_id, end)
        return Decision(
            records=end.decision().records + decision.records,
            answers=decision.answers,
            timers=decision.timers,
        )

    def sync(self, request: SyncGroup, ticket: Ticket, draft: Draft) -> Decision:
        if request.group_id not in self._consumers.groups:
            return self._classic.sync(request, ticket, draft)
        if self._consumers.sync(request, ticket, draft):
            _on_downgraded(request.group_id, draft)
        return draft.decision()

    def heartbeat(self, request: Heartbeat, ticket: Ticket, draft: Draft) -> Decision:
        if request.group_id not in self._consumers.groups:
            return self._classic.heartbeat(request, ticket, draft.now_ms)
        if self._consumers.classic_heartbeat(request, ticket, draft):
            _on_downgraded(request.group_id, draft)
        return draft.decision()

    def leave(self, request: LeaveGroup, ticket: Ticket, draft: Draft) -> Decision:
        if request.group_id not in self._consumers.groups:
            return self._classic.leave(request, ticket, draft)
        self._consumers.leave(request, ticket, draft)
        return draft.decision()


def _on_downgraded(group_id: str, draft: Draft) -> None:
    """After the records are replayed, the classic group exists. Start its members' sessions then."""
    draft.set_timer((CLASSIC_TIMER, group_id), draft.now_ms)
