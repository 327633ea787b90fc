"""A token bucket: at most `rate_per_s` tokens a second on average. Pure: the caller brings the time.

Tokens are whatever the caller counts: bytes, messages. They may be taken before they are there, for what a fetch brings
is known only afterwards; the bucket is in debt then, and `wait_ms` says until when.
"""

import math

NO_LIMIT = math.inf
# Unused tokens are kept for this long: bytes come in large pieces, each of which takes time to arrive.
BURST_MS = 1000


class TokenBucket:
    """Starts without a limit; a new limit starts with no tokens saved."""

    def __init__(self, *, burst_ms: int = BURST_MS) -> None:
        self._burst_ms = burst_ms
        self._rate_per_s = NO_LIMIT
        # Below 0: in debt.
        self._tokens = 0.0
        self._at_ms = 0.0

    def set_rate(self, rate_per_s: float, *, now_ms: float) -> None:
        """A debt stays when the rate changes."""
        self._refill(now_ms)
        # At 0 a debt would never be paid, and `wait_ms` would be infinite.
        self._rate_per_s = max(1.0, rate_per_s)
        if self._rate_per_s == NO_LIMIT:
            self._tokens = 0.0

    def take(self, count: int, *, now_ms: float) -> None:
        if self._rate_per_s < NO_LIMIT:
            self._refill(now_ms)
            self._tokens -= count

    def wait_ms(self, *, now_ms: float) -> int:
        """Return how long until the debt is paid; 0: tokens may be taken now."""
        self._refill(now_ms)
        return max(0, math.ceil(-self._tokens * 1000 / self._rate_per_s))

    def _refill(self, now_ms: float) -> None:
        if self._rate_per_s < NO_LIMIT:
            earned = (now_ms - self._at_ms) * self._rate_per_s / 1000
            capacity = self._burst_ms * self._rate_per_s / 1000
            self._tokens = min(capacity, self._tokens + earned)
        self._at_ms = now_ms
