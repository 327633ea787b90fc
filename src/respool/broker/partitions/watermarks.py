"""The watermarks of a partition, and the fetches that wait for them to move.

```
log_start       stable        high watermark        log_end
    |--------------|------------------|------------------|
    read_committed ^    read_uncommitted ^      followers ^
```
Waiting fetches count the bytes that become readable, and read again once there are enough.
"""

from collections import deque
from enum import IntEnum

from respool.broker.partitions.commit_waiters import FetchWaiter
from respool.log.partition_log import PartitionLog
from respool.model.ids import Offset

# More bytes than any fetch waits for.
FETCH_BYTES_ENOUGH = 2**31
# If more appends than this wait for followers, the latest ones share one entry.
ENDS_MAX = 10_000


class ReadTo(IntEnum):
    """How far a reader reads."""

    STABLE = 0
    COMMITTED = 1
    # A follower also reads uncommitted records: that is how they become committed.
    END = 2


class Watermarks:
    def __init__(self) -> None:
        self.high_watermark = Offset(0)
        # Never above the high watermark; it moves back only together with it.
        self.stable_offset = Offset(0)
        # Consumers are not shown what is from here on, though it is committed; None: they are. It only holds: what was
        # shown once is below it.
        self.held_end: Offset | None = None
        # The bytes appended since the start, and those of them below the high watermark. Waiting fetches count how much
        # these grow.
        self.bytes_appended = 0
        self._bytes_committed = 0
        # The value of `_bytes_committed` when the stable offset was last at the high watermark.
        self._bytes_stable = 0
        # The end offset of each append and the bytes appended by then, while appends wait for followers.
        self._ends: deque[tuple[Offset, int]] = deque()
        # In the order of arrival, so that simulated runs are deterministic. A tuple indexed by `ReadTo`, since it is
        # used for every batch and hashing an enum would cost a call.
        self._waiting: tuple[dict[FetchWaiter, None], ...] = tuple({} for _ in ReadTo)

    def begin_at(self, log: PartitionLog, high_watermark: Offset) -> None:
        """Start with the log as it is, committed up to `high_watermark`."""
        self.high_watermark = high_watermark
        log.on_high_watermark(high_watermark)
        self.stable_offset = log.last_stable_offset(high_watermark)

    # -- waiters -----------------------------------------------------------------------------------------------------

    def add_waiter(self, waiter: FetchWaiter, read_to: ReadTo) -> None:
        self._waiting[read_to][waiter] = None

    def remove_waiter(self, waiter: FetchWaiter) -> None:
        for waiting in self._waiting:
            waiting.pop(waiter, None)

    def wake_all(self) -> None:
        for waiting in self._waiting:
            for waiter in tuple(waiting):
                waiter.wake()

    # -- held readers ------------------------------------------------------------------------------------------------

    def hold_readers(self, end: Offset | None) -> None:
        """Show consumers only what is below `end`; None: everything that is committed."""
        if end == self.held_end:
            return
        self.held_end = end
        self.wake_all()

    def shown(self, end: Offset) -> Offset:
        """The end that consumers see instead of this one."""
        return end if self.held_end is None else min(end, self.held_end)

    def is_held_at(self, end: Offset) -> bool:
        """True if consumers are shown nothing from this end on."""
        return self.held_end is not None and end >= self.held_end

    # -- offsets -----------------------------------------------------------------------------------------------------

    def on_appended(self, log_end: Offset, size: int, *, awaits_followers: bool) -> None:
        self.bytes_appended += size
        if awaits_followers:
            if len(self._ends) >= ENDS_MAX:
                self._ends.pop()
            self._ends.append((log_end, self.bytes_appended))
        if self._waiting[ReadTo.END]:
            self._wake_waiters(ReadTo.END, size)

    def advance_to(
        self, log: PartitionLog, high_watermark: Offset, bytes_committed: int | None = None
    ) -> None:
        """Raise the high watermark. If `bytes_committed` is not given, it is computed from the ends of appends."""
        assert high_watermark > self.high_watermark
        was_held = self.is_held_at(self.high_watermark)
        self.high_watermark = high_watermark
        log.on_high_watermark(high_watermark)
        stable_offset = log.last_stable_offset(high_watermark)
        if bytes_committed is None:
            bytes_committed = self._bytes_before(high_watermark)
        else:
            self._ends.clear()
        # At least 1: something became readable even if its bytes were not counted, for example after a restart.
        grown = max(1, bytes_committed - self._bytes_committed)
        self._bytes_committed = bytes_committed
        if self._waiting[ReadTo.COMMITTED] and not was_held:
            self._wake_waiters(ReadTo.COMMITTED, grown)
        if stable_offset > self.stable_offset:
            self._advance_stable_to(stable_offset)

    def go_back_to(self, log: PartitionLog, high_watermark: Offset) -> None:
        """The log was truncated: other replicas lost committed records."""
        self._ends.clear()
        self._bytes_committed = self.bytes_appended
        self.begin_at(log, high_watermark)

    def _advance_stable_to(self, stable_offset: Offset) -> None:
        was_held = self.is_held_at(self.stable_offset)
        self.stable_offset = stable_offset
        grown = max(1, self._bytes_committed - self._bytes_stable)
        if stable_offset == self.high_watermark:
            self._bytes_stable = self._bytes_committed
        else:
            # The number of bytes below the offset is unknown, so wake the fetches in any case.
            grown = max(grown, FETCH_BYTES_ENOUGH)
        if self._waiting[ReadTo.STABLE] and not was_held:
            self._wake_waiters(ReadTo.STABLE, grown)

    def _bytes_before(self, high_watermark: Offset) -> int:
        count = self._bytes_committed
        ends = self._ends
        while ends and ends[0][0] <= high_watermark:
            count = ends.popleft()[1]
        return count

    def _wake_waiters(self, read_to: ReadTo, grown: int) -> None:
        for waiter in tuple(self._waiting[read_to]):
            waiter.on_bytes_committed(grown)
