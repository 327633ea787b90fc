"""A coordinator's shard without a broker: its log is a list, its clock is a number, its timers are a dict.

It does what the broker's runtime does: decide, append, replay at once, then answer.
"""

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from respool.coordination.decision import CoordinatorRecord, Decision, SetTimer, Ticket, TimerKey

START_MS = 1_700_000_000_000

ShardT = TypeVar("ShardT", bound=Any)


class ShardWorld(ABC, Generic[ShardT]):
    def __init__(self) -> None:
        self.now_ms = START_MS
        # How far the wall clock is ahead of it.
        self.ahead_ms = 0
        self.log: list[CoordinatorRecord] = []
        self.timers: dict[TimerKey, int] = {}
        self.replies: dict[Ticket, Any] = {}
        self._tickets = 0
        self.shard = self.new_shard()
        self.carry_out(self.shard.on_loaded(now_ms=self.now_ms, wall_ms=self.wall_ms))

    @abstractmethod
    def new_shard(self) -> ShardT: ...

    @property
    def wall_ms(self) -> int:
        return self.now_ms + self.ahead_ms

    def ask(self, request: Any) -> Ticket:
        """Put a request; the reply, once there is one, is in `replies`."""
        self._tickets += 1
        ticket = Ticket(self._tickets)
        decision = self.shard.decide(
            request, ticket=ticket, now_ms=self.now_ms, wall_ms=self.wall_ms
        )
        self.carry_out(decision)
        return ticket

    def now(self, request: Any) -> Any:
        """Put a request that is answered at once."""
        return self.replies[self.ask(request)]

    def has_reply(self, ticket: Ticket) -> bool:
        return ticket in self.replies

    def advance(self, ms: int) -> None:
        """Let time pass; timers ring when they are due."""
        end_ms = self.now_ms + ms
        while self.timers:
            key = min(self.timers, key=lambda one: self.timers[one])
            if self.timers[key] > end_ms:
                break
            self.now_ms = max(self.now_ms, self.timers.pop(key))
            self.carry_out(self.shard.on_timer(key, now_ms=self.now_ms, wall_ms=self.wall_ms))
        self.now_ms = end_ms

    def reload(self) -> None:
        """The coordinator is lost and starts again from its log. Whoever waited is not answered."""
        self.shard = self.folded()
        self.timers.clear()
        self.carry_out(self.shard.on_loaded(now_ms=self.now_ms, wall_ms=self.wall_ms))

    def folded(self) -> ShardT:
        """What a coordinator knows that has only read the log."""
        shard = self.new_shard()
        for record in self.log:
            shard.replay(record)
        return shard

    def carry_out(self, decision: Decision) -> None:
        for change in decision.timers:
            if isinstance(change, SetTimer):
                self.timers[change.key] = change.due_at_ms
            else:
                self.timers.pop(change.key, None)
        for record in decision.records:
            self.log.append(record)
            self.shard.replay(record)
        for answer in decision.answers:
            assert answer.ticket not in self.replies, "answered twice"
            self.replies[answer.ticket] = answer.reply
