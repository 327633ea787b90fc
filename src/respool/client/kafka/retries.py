"""Delays between attempts: exponential backoff with jitter, up to a time limit."""

import random
import time
from collections.abc import Callable

from respool.client.kafka.errors import NoBroker
from respool.pacing.backoff import Backoff

# In milliseconds. With jitter, because many clients retry when a broker comes back.
BACKOFF = Backoff(first=20, longest=1_000, jitter=0.2)


def now_ms() -> int:
    """A monotonic clock, unrelated to the time of day."""
    return int(time.monotonic() * 1000)


def retry_at_ms(attempts: int) -> int:
    """The time of the next attempt, on the clock of `now_ms`, after that many failed attempts."""
    return now_ms() + round(BACKOFF.delay(max(attempts, 1), random=random.random))


class RetryTimer:
    """Measures how long an operation has been failing. Call `reset` when it succeeds.

    The time begins with the first failure. Only while no broker has ever answered it begins with the timer: an attempt
    at an address that drops packets takes long itself, and one that used the limit up is not repeated.
    """

    def __init__(
        self,
        limit_ms: int,
        *,
        sleep: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`sleep` takes seconds; it may return early, as that of a closed client does."""
        self.limit_ms = limit_ms
        self._sleep = sleep
        self._monotonic = monotonic
        self._made_at = monotonic()
        self.reset()

    def reset(self) -> None:
        self._failing_since: float | None = None
        self._failures = 0

    def exclude(self, seconds: float) -> None:
        """Do not count this time, in which nothing was attempted."""
        if self._failing_since is not None:
            self._failing_since += seconds

    def wait_or_raise(self, error: Exception) -> None:
        """Wait before the next attempt.

        Raises:
            the error: the time limit is reached.
        """
        if self._failing_since is None and isinstance(error, NoBroker):
            self._failing_since = self._made_at
        wait_ms = self.next_wait_ms()
        if wait_ms is None:
            raise error
        self._sleep(wait_ms / 1000)

    def next_wait_ms(self) -> int | None:
        """Count a failure; return the wait before the next attempt, or None if the limit is reached."""
        if self._failing_since is None:
            self._failing_since = self._monotonic()
        left = self.limit_ms - self._failed_ms()
        if left <= 0:
            return None
        self._failures += 1
        wait_ms = round(BACKOFF.delay(self._failures, random=random.random))
        return max(1, min(wait_ms, left))

    def _failed_ms(self) -> int:
        assert self._failing_since is not None
        return round((self._monotonic() - self._failing_since) * 1000)
