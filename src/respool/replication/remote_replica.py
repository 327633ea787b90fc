"""The leader's state of one follower, derived from the follower's fetches alone."""

from typing import NamedTuple

from respool.model.ids import BrokerId, Offset

UNKNOWN_OFFSET = Offset(-1)
# Earlier than any real time.
NEVER_MS = -(2**62)


class ReplicaLag(NamedTuple):
    broker: BrokerId
    messages: int
    # Time since it was last caught up with the leader; None if never since this leader began.
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
        # The follower has all records below this offset, durably if respool.flush=always. Unknown until it fetches.
        self.log_end = UNKNOWN_OFFSET
        self.log_start = UNKNOWN_OFFSET
        # From the follower's last fetch.
        self.broker_epoch: int | None = None
        # The latest time at which it was caught up with the leader. A replica in the ISR gets the full lag time to find
        # the new leader.
        self.caught_up_at_ms = now_ms if is_in_sync else NEVER_MS
        self._fetched_at_ms = NEVER_MS
        # The leader's log end at an earlier fetch, and the time of that fetch. When the follower reaches that end, it
        # was caught up at that time.
        self._mark = UNKNOWN_OFFSET
        self._marked_at_ms = NEVER_MS
        # True once it has fetched since it left the ISR, or since this leader began.
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
        """`log_end` is the follower's durable end; `leader_end` is the leader's current log end."""
        if log_end >= leader_end:
            self.caught_up_at_ms = max(self.caught_up_at_ms, now_ms)
        if log_end >= self._mark:
            # Without this, a follower of a busy leader would never be caught up: there are always new records by the
            # time it fetches.
            self.caught_up_at_ms = max(self.caught_up_at_ms, self._marked_at_ms)
            self._mark, self._marked_at_ms = leader_end, now_ms
        self.broker_epoch = broker_epoch
        # May be lower than before: the broker crashed and lost records that were not synced.
        self.log_end = log_end
        self.log_start = log_start
        self._fetched_at_ms = now_ms
        self._has_fetched = True

    def on_joined(self, now_ms: int) -> None:
        """The replica joined the ISR, so it has all committed records. For the rest it gets the lag time."""
        self.caught_up_at_ms = max(self.caught_up_at_ms, now_ms)

    def on_left(self) -> None:
        """The replica left the ISR. Its earlier fetches do not prove that it still fetches."""
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
        """By time, not by records: a burst removes no replica from the ISR, and a dead one does not stay long."""
        return self.log_end == leader_end or now_ms - self.caught_up_at_ms <= lag_ms_max
