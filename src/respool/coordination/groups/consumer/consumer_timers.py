"""Deadlines of the members of consumer groups. They are kept in memory only: a new coordinator restarts them.

All deadlines of a group share one timer. It may fire early and is then set again, so a heartbeat, which only extends a
deadline, does not have to move it.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, TypeAlias

from respool.coordination.decision import TimerKey
from respool.coordination.draft import Draft
from respool.coordination.groups.consumer.consumer_group import ConsumerGroup
from respool.coordination.groups.consumer.consumer_member import ConsumerMember, MemberState
from respool.coordination.groups.consumer.partition_sets import is_within
from respool.model.group_config import GroupTimes

# By group id: an operator may change them at any time.
TimesOf: TypeAlias = Callable[[str], GroupTimes]

# Every group has one timer; the second part of its key is the group id.
CONSUMER_TIMER = "consumer group"


class Due(Enum):
    """What a member's deadline is for."""

    # To send a heartbeat.
    SESSION = "session"
    # To revoke partitions.
    REVOCATION = "revocation"
    # For a classic member in a rebalance: to join again; then to sync.
    REJOIN = "rejoin"
    SYNC = "sync"
    # Of share groups: to answer a heartbeat that waits for state, and to ask the share coordinator again.
    REPLY = "reply"
    RETRY = "retry"


class Overdue(NamedTuple):
    due: Due
    member_id: str


_NEVER_MS = 2**63 - 1


class MemberDeadlines:
    __slots__ = ("_at_ms", "_rings_at_ms", "_soonest_ms")

    def __init__(self) -> None:
        self._at_ms: dict[Overdue, int] = {}
        # Invariant: not later than any deadline. May be earlier, because deadlines are extended.
        self._soonest_ms = _NEVER_MS
        # The time for which the timer is set.
        self._rings_at_ms = _NEVER_MS

    def put(self, due: Due, member_id: str, at_ms: int) -> None:
        self._at_ms[Overdue(due, member_id)] = at_ms
        self._soonest_ms = min(self._soonest_ms, at_ms)

    def put_if_none(self, due: Due, member_id: str, at_ms: int) -> None:
        if Overdue(due, member_id) not in self._at_ms:
            self.put(due, member_id, at_ms)

    def put_off(self, until_ms: int) -> None:
        for which, at_ms in self._at_ms.items():
            self._at_ms[which] = max(at_ms, until_ms)

    def drop(self, due: Due, member_id: str) -> None:
        self._at_ms.pop(Overdue(due, member_id), None)

    def drop_member(self, member_id: str) -> None:
        for due in Due:
            self.drop(due, member_id)

    def take_overdue(self, now_ms: int) -> list[Overdue]:
        """Remove and return the deadlines that have passed, when the timer fires."""
        overdue = [which for which, at_ms in self._at_ms.items() if at_ms <= now_ms]
        for which in overdue:
            del self._at_ms[which]
        self._rings_at_ms = _NEVER_MS
        self._soonest_ms = min(self._at_ms.values(), default=_NEVER_MS)
        return overdue

    def timer_to_set(self) -> int | None:
        """The time to set the timer to; None if it already fires early enough or is not needed."""
        if self._soonest_ms >= self._rings_at_ms:
            return None
        self._rings_at_ms = self._soonest_ms
        return self._rings_at_ms


class ConsumerTimers:
    def __init__(self, *, times_of: TimesOf) -> None:
        self._times_of = times_of
        self._groups: dict[str, MemberDeadlines] = {}

    def of(self, group_id: str) -> MemberDeadlines:
        deadlines = self._groups.get(group_id)
        if deadlines is None:
            deadlines = self._groups[group_id] = MemberDeadlines()
        return deadlines

    def forget(self, group_id: str) -> None:
        self._groups.pop(group_id, None)

    def start(self, group: ConsumerGroup, now_ms: int) -> None:
        """Start full deadlines for all members, after the coordinator was loaded."""
        deadlines = self.of(group.group_id)
        for member in group.members.values():
            self.keep_session(group.group_id, member, now_ms)
            if member.state is MemberState.UNREVOKED and member.classic is None:
                at_ms = now_ms + member.rebalance_timeout_ms
                deadlines.put(Due.REVOCATION, member.member_id, at_ms)

    def put_off(self, until_ms: int) -> None:
        """Extend all deadlines to this time. Timers that fire earlier are set again."""
        for deadlines in self._groups.values():
            deadlines.put_off(until_ms)

    def on_joined(
        self, group_id: str, before: ConsumerMember | None, member: ConsumerMember, now_ms: int
    ) -> None:
        """Extend the session of a member that sent a heartbeat or joined, and update its other deadlines."""
        self.keep_session(group_id, member, now_ms)
        deadlines = self.of(group_id)
        rebalance_by_ms = now_ms + member.rebalance_timeout_ms
        if member.classic is not None:
            deadlines.drop(Due.REJOIN, member.member_id)
            deadlines.put(Due.SYNC, member.member_id, rebalance_by_ms)
            return
        if before is not None and before.classic is not None:
            deadlines.drop(Due.REJOIN, member.member_id)
            deadlines.drop(Due.SYNC, member.member_id)
        if member.state is not MemberState.UNREVOKED:
            deadlines.drop(Due.REVOCATION, member.member_id)
        elif before is None or not _only_revokes_more(before, member):
            deadlines.put(Due.REVOCATION, member.member_id, rebalance_by_ms)

    def on_synced(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        self.of(group_id).drop(Due.SYNC, member.member_id)
        self.keep_session(group_id, member, now_ms)

    def on_asked_to_rejoin(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        at_ms = now_ms + member.rebalance_timeout_ms
        self.of(group_id).put_if_none(Due.REJOIN, member.member_id, at_ms)

    def keep_session(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        timeout_ms = (
            self._times_of(group_id).session_timeout_ms
            if member.classic is None
            else member.classic.session_timeout_ms
        )
        self.of(group_id).put(Due.SESSION, member.member_id, now_ms + timeout_ms)

    def take_silent(self, group: ConsumerGroup, now_ms: int) -> dict[str, Due]:
        """The members whose deadlines have passed when the timer fires, and which deadline it was."""
        return {
            member_id: due
            for due, member_id in self.of(group.group_id).take_overdue(now_ms)
            if member_id in group.members
        }

    def arm(self, group_id: str, draft: Draft) -> None:
        """Set the group's timer for its next deadline, if needed."""
        at_ms = self.of(group_id).timer_to_set()
        if at_ms is not None:
            draft.set_timer(timer_key(group_id), at_ms)


def _only_revokes_more(before: ConsumerMember, member: ConsumerMember) -> bool:
    """True if the revocation deadline already runs: restarting it at every change could extend it for ever."""
    return bool(before.revoking) and is_within(before.revoking, member.revoking)


def timer_key(group_id: str) -> TimerKey:
    return (CONSUMER_TIMER, group_id)
