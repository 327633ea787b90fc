"""A token bucket: at most `rate_per_s` tokens a second on average. Pure: the caller brings the time.

Tokens are whatever the caller counts: bytes, messages. Tokens may be taken in advance, because the size of a fetch is
known only afterwards; the bucket is then in debt, and `wait_ms` says how long.
"""

import math

NO_LIMIT = math.inf
# Unused tokens are kept for this long: bytes come in large pieces, each of which takes time to arrive.
BURST_MS = 1000


class TokenBucket:
    """A limit given at the start begins with a full bucket, a later one with no tokens saved."""

    def __init__(
        self, *, rate_per_s: float = NO_LIMIT, burst_ms: int = BURST_MS, capacity_min: float = 0.0
    ) -> None:
        """The capacity is what `burst_ms` bring, and at least `capacity_min`."""
        self._rate_per_s = rate_per_s
        self._burst_ms = burst_ms
        self._capacity_min = capacity_min
        self._capacity = self._capacity_now()
        # Below 0: in debt.
        self._tokens = 0.0 if rate_per_s == NO_LIMIT else self._capacity
        self._at_ms = 0.0

    def set_rate(self, rate_per_s: float, *, now_ms: float) -> None:
        """A debt stays when the rate changes."""
        self._refill(now_ms)
        # At 0 a debt would never be paid, and `wait_ms` would be infinite.
        self._rate_per_s = max(1.0, rate_per_s)
        self._capacity = self._capacity_now()
        if self._rate_per_s == NO_LIMIT:
            self._tokens = 0.0

    def take(self, count: float, *, now_ms: float) -> None:
        if self._rate_per_s < NO_LIMIT:
            self._refill(now_ms)
            self._tokens -= count

    def take_and_wait_ms(self, count: float, *, now_ms: float) -> int:
        """`take`, and then `wait_ms`, in one step and without further calls: each request of a client with a quota
        does this."""
        rate = self._rate_per_s
        if rate == NO_LIMIT:
            self._at_ms = now_ms
            return 0
        tokens = self._tokens + (now_ms - self._at_ms) * rate / 1000
        capacity = self._capacity
        tokens = (min(tokens, capacity)) - count
        self._tokens, self._at_ms = tokens, now_ms
        return 0 if tokens >= 0 else math.ceil(-tokens * 1000 / rate)

    def wait_ms(self, *, now_ms: float) -> int:
        """Return how long until the debt is paid; 0: tokens may be taken now."""
        self._refill(now_ms)
        return max(0, math.ceil(-self._tokens * 1000 / self._rate_per_s))

    def available(self, *, now_ms: float) -> float:
        """The tokens that may be taken now without a debt."""
        self._refill(now_ms)
        return NO_LIMIT if self._rate_per_s == NO_LIMIT else self._tokens

    def seconds_until(self, count: float, *, now_ms: float) -> float:
        """How long until this number of tokens is available."""
        self._refill(now_ms)
        return max(0.0, (count - self._tokens) / self._rate_per_s)

    def _capacity_now(self) -> float:
        return max(self._capacity_min, self._burst_ms * self._rate_per_s / 1000)

    def _refill(self, now_ms: float) -> None:
        if self._rate_per_s < NO_LIMIT:
            earned = (now_ms - self._at_ms) * self._rate_per_s / 1000
            self._tokens = min(self._capacity, self._tokens + earned)
        self._at_ms = now_ms
