"""The classic groups of a shard: dispatches requests to them, and runs their timers."""

from collections.abc import Mapping

from respool.coordination.decision import Answer, Decision, Ticket, TimerKey
from respool.coordination.draft import NOTHING, Draft
from respool.coordination.groups.classic.classic_group import ClassicGroup
from respool.coordination.groups.classic.classic_member import NEVER_MS
from respool.coordination.groups.classic.joining import Joining
from respool.coordination.groups.classic.member_requests import MemberRequests
from respool.coordination.groups.classic.rebalance import Rebalance
from respool.coordination.groups.group_records import read_group_value
from respool.coordination.groups.group_requests import (
    GroupState,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinGroupReply,
    LeaveGroup,
    LeaveGroupReply,
    OffsetCommit,
    SyncGroup,
    SyncGroupReply,
    TxnOffsetCommit,
)
from respool.coordination.record_bytes import fits_a_string
from respool.model.coordinator_errors import InvalidGroupId, UnknownMemberId
from respool.model.coordinator_settings import GroupSettings
from respool.model.errors import RequestError
from respool.ports.random_source import RandomSource

# Every group has one timer; the second part of its key is the group id.
CLASSIC_TIMER = "classic group"


class ClassicGroups:
    def __init__(self, settings: GroupSettings, *, rng: RandomSource) -> None:
        self._size_max = settings.group_max_size
        # Groups that have or had members, and groups with a pending join.
        self._groups: dict[str, ClassicGroup] = {}
        self._rebalance = Rebalance(settings)
        self._joining = Joining(settings, rebalance=self._rebalance, rng=rng)
        self._membership = MemberRequests(self._rebalance)

    @property
    def groups(self) -> Mapping[str, ClassicGroup]:
        return self._groups

    def join(self, request: JoinGroup, ticket: Ticket, draft: Draft) -> Decision:
        try:
            check_group_id(request.group_id)
        except RequestError as error:
            return _answer(ticket, JoinGroupReply(error=error, member_id=request.member_id))
        group = self._groups.get(request.group_id)
        if group is None:
            group = self._groups[request.group_id] = ClassicGroup(request.group_id)
        timer_at_ms = group.wake_at_ms
        self._joining.join(group, request, ticket, draft)
        self._resolve(group, draft, timer_at_ms=timer_at_ms)
        return draft.decision()

    def sync(self, request: SyncGroup, ticket: Ticket, draft: Draft) -> Decision:
        group = self._groups.get(request.group_id)
        if group is None:
            return _answer(ticket, SyncGroupReply(error=_nobody_there(request.group_id)))
        timer_at_ms = group.wake_at_ms
        self._membership.sync(group, request, ticket, draft)
        self._resolve(group, draft, timer_at_ms=timer_at_ms)
        return draft.decision()

    def heartbeat(self, request: Heartbeat, ticket: Ticket, now_ms: int) -> Decision:
        group = self._groups.get(request.group_id)
        if group is None:
            return _answer(ticket, HeartbeatReply(error=_nobody_there(request.group_id)))
        return _answer(ticket, self._membership.heartbeat(group, request, now_ms))

    def leave(self, request: LeaveGroup, ticket: Ticket, draft: Draft) -> Decision:
        group = self._groups.get(request.group_id)
        if group is None:
            return _answer(ticket, LeaveGroupReply(error=_nobody_there(request.group_id)))
        timer_at_ms = group.wake_at_ms
        draft.answer(ticket, self._membership.leave(group, request, draft))
        self._resolve(group, draft, timer_at_ms=timer_at_ms)
        return draft.decision()

    def check_commit(self, group: ClassicGroup, request: OffsetCommit, now_ms: int) -> None:
        """Raises:
        RequestError: this client may not commit offsets of the group.
        """
        self._membership.check_commit(group, request, now_ms)

    def check_txn_commit(self, group: ClassicGroup, request: TxnOffsetCommit) -> None:
        """Raises:
        RequestError: this producer may not commit offsets of the group.
        """
        self._membership.check_txn_commit(group, request)

    def remove_all(self, group_id: str, draft: Draft) -> tuple[str, ...]:
        """Remove all members of a group; return their ids."""
        group = self._groups.get(group_id)
        if group is None or group.state is GroupState.EMPTY:
            return ()
        removed = tuple(group.members)
        self._rebalance.remove(group, removed, draft)
        self._rebalance.empty(group, draft)
        self._forget_if_nothing(group)
        return removed

    def on_timer(self, key: TimerKey, draft: Draft) -> Decision:
        group = self._groups.get(str(key[1]))
        if group is None:
            return NOTHING
        for member in group.members.values():
            # Until now the group was a next-generation group; its members' sessions start here.
            if member.expires_at_ms == NEVER_MS:
                self._rebalance.restart_session(group, member, draft.now_ms)
        self._membership.on_timer(group, draft)
        self._resolve(group, draft, timer_at_ms=None)
        return draft.decision()

    def on_loaded(self, draft: Draft) -> None:
        """Start the sessions of all members."""
        for group in self._groups.values():
            for member in group.members.values():
                self._rebalance.restart_session(group, member, draft.now_ms)
            if len(group.members) > self._size_max:
                # The first members that join again may stay.
                self._rebalance.begin(group, draft, reason="more members than group.max.size")
            self._set_timer(group, draft, timer_at_ms=None)

    def on_heard_again(self, *, until_ms: int) -> None:
        """Extend sessions to this time, after a while without replies. Timers that fire earlier are set again."""
        for group in self._groups.values():
            for member in group.members.values():
                member.expires_at_ms = max(member.expires_at_ms, until_ms)
            for member_id, expires_at_ms in group.pending_joins.items():
                group.pending_joins[member_id] = max(expires_at_ms, until_ms)
            if group.join_due_ms is not None:
                group.join_due_ms = max(group.join_due_ms, until_ms)
            if group.sync_due_ms is not None:
                group.sync_due_ms = max(group.sync_due_ms, until_ms)

    def replay(self, group_id: str, value: bytes | None) -> None:
        """Raises:
        CoordinatorRecordDamaged: the record cannot be read.
        """
        if value is None:
            self._groups.pop(group_id, None)
            return
        stored = read_group_value(value)
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = ClassicGroup(group_id)
        group.replay(stored)

    def _resolve(self, group: ClassicGroup, draft: Draft, *, timer_at_ms: int | None) -> None:
        self._set_timer(group, draft, timer_at_ms=timer_at_ms)
        self._forget_if_nothing(group)

    def _set_timer(self, group: ClassicGroup, draft: Draft, *, timer_at_ms: int | None) -> None:
        if group.wake_at_ms is not None and group.wake_at_ms != timer_at_ms:
            draft.set_timer((CLASSIC_TIMER, group.group_id), group.wake_at_ms)

    def _forget_if_nothing(self, group: ClassicGroup) -> None:
        # Otherwise every invented group id in a join would stay in memory.
        if group.is_forgettable:
            del self._groups[group.group_id]


def check_group_id(group_id: str) -> None:
    """Raises:
    InvalidGroupId: the id does not fit into a record.
    """
    if not group_id:
        raise InvalidGroupId("the group id is empty")
    if not fits_a_string(group_id):
        raise InvalidGroupId(f"a group id of {len(group_id)} characters")


def _answer(ticket: Ticket, reply: object) -> Decision:
    return Decision(answers=(Answer(ticket=ticket, reply=reply),))


def _nobody_there(group_id: str) -> RequestError:
    if not group_id:
        return InvalidGroupId("the group id is empty")
    return UnknownMemberId(f"group {group_id} has no members")
