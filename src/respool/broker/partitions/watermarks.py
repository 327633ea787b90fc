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

# More than any fetch waits for.
FETCH_BYTES_ENOUGH = 2**31
# With more appends than that which wait for followers, their sizes are only known together.
ENDS_MAX = 10_000


class ReadTo(IntEnum):
    """How far a fetch reads."""

    STABLE = 0
    COMMITTED = 1
    # A follower takes what is not committed too: that is how it becomes so.
    END = 2


class Watermarks:
    def __init__(self) -> None:
        self.high_watermark = Offset(0)
        # Not above the high watermark, and back only with it.
        self.stable_offset = Offset(0)
        # How many bytes were ever appended since the start, and how many of them are below the high watermark. Their
        # growth is what waiting fetches count.
        self.bytes_appended = 0
        self._bytes_committed = 0
        # And how many were, when last all of them could be read by read_committed readers.
        self._bytes_stable = 0
        # Where appends ended and how many bytes there were then, while they wait for followers: perhaps for long.
        self._ends: deque[tuple[Offset, int]] = deque()
        # In the order they came, so that a simulated run is the same each time. By `ReadTo`, looked up for every batch:
        # an enum's hash would be a call each.
        self._waiting: tuple[dict[FetchWaiter, None], ...] = tuple({} for _ in ReadTo)

    def begin_at(self, log: PartitionLog, high_watermark: Offset) -> None:
        """The log is as it is, and known to be committed up to there."""
        self.high_watermark = high_watermark
        log.on_high_watermark(high_watermark)
        self.stable_offset = log.last_stable_offset(high_watermark)

    # -- who waits ---------------------------------------------------------------------------------------------------

    def add_waiter(self, waiter: FetchWaiter, read_to: ReadTo) -> None:
        self._waiting[read_to][waiter] = None

    def remove_waiter(self, waiter: FetchWaiter) -> None:
        for waiting in self._waiting:
            waiting.pop(waiter, None)

    def wake_all(self) -> None:
        for waiting in self._waiting:
            for waiter in tuple(waiting):
                waiter.wake()

    # -- how far -----------------------------------------------------------------------------------------------------

    def on_appended(self, log_end: Offset, size: int, *, awaits_followers: bool) -> None:
        self.bytes_appended += size
        if awaits_followers:
            if len(self._ends) >= ENDS_MAX:
                self._ends.pop()
            self._ends.append((log_end, self.bytes_appended))
        if self._waiting[ReadTo.END]:
            self._tell(ReadTo.END, size)

    def advance_to(
        self, log: PartitionLog, high_watermark: Offset, bytes_committed: int | None = None
    ) -> None:
        """All before is committed. Where it is not known how many bytes these are, the ends of appends tell."""
        assert high_watermark > self.high_watermark
        self.high_watermark = high_watermark
        log.on_high_watermark(high_watermark)
        stable_offset = log.last_stable_offset(high_watermark)
        if bytes_committed is None:
            bytes_committed = self._bytes_before(high_watermark)
        else:
            self._ends.clear()
        # Something has become readable, also where nobody counted it: what is from before a restart, for one.
        grown = max(1, bytes_committed - self._bytes_committed)
        self._bytes_committed = bytes_committed
        if self._waiting[ReadTo.COMMITTED]:
            self._tell(ReadTo.COMMITTED, grown)
        if stable_offset > self.stable_offset:
            self._advance_stable_to(stable_offset)

    def go_back_to(self, log: PartitionLog, high_watermark: Offset) -> None:
        """The log was truncated there: other replicas lost committed records."""
        self._ends.clear()
        self._bytes_committed = self.bytes_appended
        self.begin_at(log, high_watermark)

    def _advance_stable_to(self, stable_offset: Offset) -> None:
        self.stable_offset = stable_offset
        grown = max(1, self._bytes_committed - self._bytes_stable)
        if stable_offset == self.high_watermark:
            self._bytes_stable = self._bytes_committed
        else:
            # How many bytes lie below it is not known. What they are is worth a look in any case.
            grown = max(grown, FETCH_BYTES_ENOUGH)
        if self._waiting[ReadTo.STABLE]:
            self._tell(ReadTo.STABLE, grown)

    def _bytes_before(self, high_watermark: Offset) -> int:
        count = self._bytes_committed
        ends = self._ends
        while ends and ends[0][0] <= high_watermark:
            count = ends.popleft()[1]
        return count

    def _tell(self, read_to: ReadTo, grown: int) -> None:
        for waiter in tuple(self._waiting[read_to]):
            waiter.on_bytes_committed(grown)
