"""One account of memory for requests and replies under way, over all connections.

Whoever needs memory asks first. When there is none left, askers wait in order: a flood of producers or a crowd of
slow consumers slows down, it does not grow the process.
"""

from collections import deque
from collections.abc import Callable

# One part in so many is kept free of replies, for requests to be received in.
RECEIVING_SHARE = 4


class MemoryBudget:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def available(self) -> int:
        return self.limit - self.used

    @property
    def available_for_replies(self) -> int:
        """Less than `available`: consumers that do not take their replies must not stop producers from sending."""
        return self.limit - self.limit // RECEIVING_SHARE - self.used

    def try_take(self, amount: int) -> bool:
        """Take all of it or nothing. An amount above the limit itself is granted once nobody holds any."""
        if self.used and self.used + amount > self.limit:
            return False
        self.used += amount
        return True

    def take(self, amount: int) -> None:
        """Take it even beyond the limit: for what is already in memory and could not be foreseen."""
        self.used += amount

    def give(self, amount: int) -> None:
        assert amount <= self.used, f"{amount} bytes given back, {self.used} were taken"
        self.used -= amount
        if amount and self._waiting:
            # All of them: what the first leaves may suffice for the second. They ask in order.
            waiting, self._waiting = self._waiting, deque()
            for wake in waiting:
                wake()

    def when_room(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, when memory has been given back. It must ask again: others may be faster."""
        self._waiting.append(wake)
