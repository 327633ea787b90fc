"""So many bytes a second, and no more."""

import math

NO_LIMIT = math.inf
# What was not used in so much time may be used later: what is taken comes in pieces, and takes a while to come.
SAVED_MS_MAX = 1000


class Pace:
    """Who has taken more than the time allows waits until it has made up for it."""

    def __init__(self) -> None:
        self._bytes_per_s = NO_LIMIT
        # Taken ahead of time, as it was then; below 0: not used yet.
        self._ahead_bytes = 0.0
        self._at_ms = 0

    def change(self, bytes_per_s: float, *, now_ms: int) -> None:
        """What was taken already stays taken."""
        self._let_pass(now_ms)
        # With 0 nobody would ever be told when to look again.
        self._bytes_per_s = max(1.0, bytes_per_s)
        if self._bytes_per_s == NO_LIMIT:
            self._ahead_bytes = 0.0

    def take(self, byte_count: int, *, now_ms: int) -> None:
        if self._bytes_per_s < NO_LIMIT:
            self._let_pass(now_ms)
            self._ahead_bytes += byte_count

    def wait_ms(self, *, now_ms: int) -> int:
        """How long until the next may be taken."""
        self._let_pass(now_ms)
        return max(0, math.ceil(self._ahead_bytes * 1000 / self._bytes_per_s))

    def _let_pass(self, now_ms: int) -> None:
        if self._bytes_per_s < NO_LIMIT:
            passed = (now_ms - self._at_ms) * self._bytes_per_s / 1000
            saved_max = SAVED_MS_MAX * self._bytes_per_s / 1000
            self._ahead_bytes = max(-saved_max, self._ahead_bytes - passed)
        self._at_ms = now_ms
