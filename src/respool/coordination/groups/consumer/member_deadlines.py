"""By when members of a consumer group must have done something. Nothing here survives the coordinator.

All of a group's deadlines share one timer. It may ring early and is then set again, so a heartbeat, which only puts a
deadline off, need not touch it.
"""

from enum import Enum
from typing import NamedTuple


class Due(Enum):
    """What a member is given time for."""

    # To send a heartbeat.
    SESSION = "session"
    # To give up the partitions it must.
    REVOCATION = "revocation"
    # Of a classic member that was told to: to join again; having joined, to ask for its assignment.
    REJOIN = "rejoin"
    SYNC = "sync"


class Overdue(NamedTuple):
    due: Due
    member_id: str


_NEVER_MS = 2**63 - 1


class MemberDeadlines:
    __slots__ = ("_at_ms", "_rings_at_ms", "_soonest_ms")

    def __init__(self) -> None:
        self._at_ms: dict[Overdue, int] = {}
        # Invariant: not later than any deadline. May be earlier, for deadlines are put off.
        self._soonest_ms = _NEVER_MS
        # What the timer is set to.
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
        """The timer rang: what was not done in time. Each is told once."""
        overdue = [which for which, at_ms in self._at_ms.items() if at_ms <= now_ms]
        for which in overdue:
            del self._at_ms[which]
        self._rings_at_ms = _NEVER_MS
        self._soonest_ms = min(self._at_ms.values(), default=_NEVER_MS)
        return overdue

    def timer_to_set(self) -> int | None:
        """When the timer must ring; None when it is set so that it rings by then, or need not."""
        if self._soonest_ms >= self._rings_at_ms:
            return None
        self._rings_at_ms = self._soonest_ms
        return self._rings_at_ms
