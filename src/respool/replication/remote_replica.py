"""What a leader knows of one follower. All of it comes from the follower's fetches."""

from typing import NamedTuple

from respool.model.ids import BrokerId, Offset

UNKNOWN_OFFSET = Offset(-1)
# Before any time that can come.
NEVER_MS = -(2**62)


class ReplicaLag(NamedTuple):
    broker: BrokerId
    messages: int
    # Since it was last known to have all that the leader had; None: not in this leader's time.
    behind_ms: int | None


class RemoteReplica:
    __slots__ = (
        "_fetched_at_ms",
        "_has_fetched",
        "_mark",
        "_marked_at_ms",
        "broker_epoch",
        "caught_up_at_ms",
        "log_end",
        "log_start",
    )

    def __init__(self, *, is_in_sync: bool, now_ms: int) -> None:
        # It has everything before this offset; durably, where the topic's promise says so. Unknown until it fetches.
        self.log_end = UNKNOWN_OFFSET
        self.log_start = UNKNOWN_OFFSET
        # Of its registration, as its last fetch said.
        self.broker_epoch: int | None = None
        # The latest time at which it is known to have had all that the leader had. One that was in sync gets its time
        # to find the new leader.
        self.caught_up_at_ms = now_ms if is_in_sync else NEVER_MS
        self._fetched_at_ms = NEVER_MS
        # Where the leader's log ended at some fetch, and when. Once it has come that far, it was caught up then.
        self._mark = UNKNOWN_OFFSET
        self._marked_at_ms = NEVER_MS
        # Since it left the ISR, or since this leader began.
        self._has_fetched = False

    def on_fetch(
        self,
        *,
        broker_epoch: int,
        log_end: Offset,
        log_start: Offset,
        leader_end: Offset,
        now_ms: int,
    ) -> None:
        """`log_end` is what it has for good, `leader_end` what the leader has by now."""
        if log_end >= leader_end:
            self.caught_up_at_ms = max(self.caught_up_at_ms, now_ms)
        if log_end >= self._mark:
            # Without this, a follower of a busy leader would never be caught up: there is always something new by the
            # time it asks.
            self.caught_up_at_ms = max(self.caught_up_at_ms, self._marked_at_ms)
            self._mark, self._marked_at_ms = leader_end, now_ms
        self.broker_epoch = broker_epoch
        # It may be less than before: the broker crashed and lost what it had not synced.
        self.log_end = log_end
        self.log_start = log_start
        self._fetched_at_ms = now_ms
        self._has_fetched = True

    def on_joined(self, now_ms: int) -> None:
        """It is in the ISR now: it has what is committed. For the rest it gets its time."""
        self.caught_up_at_ms = max(self.caught_up_at_ms, now_ms)

    def on_left(self) -> None:
        """It is out of the ISR. What it had before says nothing about whether it is still there."""
        self._has_fetched = False

    def is_fetching(self, *, now_ms: int, lag_ms_max: int) -> bool:
        return self._has_fetched and now_ms - self._fetched_at_ms <= lag_ms_max

    def lag(
        self, broker: BrokerId, *, leader_end: Offset, log_start: Offset, now_ms: int
    ) -> ReplicaLag:
        messages = max(0, leader_end - max(self.log_end, log_start))
        if not messages:
            return ReplicaLag(broker, 0, 0)
        is_known = self.caught_up_at_ms != NEVER_MS
        return ReplicaLag(
            broker, messages, max(0, now_ms - self.caught_up_at_ms) if is_known else None
        )

    def is_caught_up(self, *, leader_end: Offset, now_ms: int, lag_ms_max: int) -> bool:
        """By time, not by messages: a burst makes nobody leave the ISR, and a dead follower does not stay for long."""
        return self.log_end == leader_end or now_ms - self.caught_up_at_ms <= lag_ms_max
