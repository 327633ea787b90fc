"""So many bytes a second, and no more."""

import math

NO_LIMIT = math.inf


class Pace:
    """Who has taken more than the time allows waits until it has made up for it. What was not used is not saved up."""

    def __init__(self) -> None:
        self._bytes_per_s = NO_LIMIT
        # Taken ahead of time, as it was then.
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
        if not self._ahead_bytes:
            return 0
        self._let_pass(now_ms)
        return round(self._ahead_bytes * 1000 / self._bytes_per_s)

    def _let_pass(self, now_ms: int) -> None:
        if self._ahead_bytes:
            passed = (now_ms - self._at_ms) * self._bytes_per_s / 1000
            self._ahead_bytes = max(0.0, self._ahead_bytes - passed)
        self._at_ms = now_ms
