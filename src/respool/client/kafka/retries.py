"""Trying again, for a while: waits that grow, until the time given is over."""

import random
import time
from collections.abc import Callable

FIRST_WAIT_MS = 20
LONGEST_WAIT_MS = 1_000


class Patience:
    """How long one thing has failed by now. `calm` it when the thing has worked."""

    def __init__(
        self,
        limit_ms: int,
        *,
        sleep: Callable[[float], object] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`sleep` gets seconds; it may return earlier, as that of a client that is closed does."""
        self.limit_ms = limit_ms
        self._sleep = sleep
        self._monotonic = monotonic
        self.calm()

    @property
    def is_over(self) -> bool:
        return self._failing_since is not None and self._failed_ms() >= self.limit_ms

    def calm(self) -> None:
        self._failing_since: float | None = None
        self._wait_ms = FIRST_WAIT_MS

    def after(self, error: Exception) -> None:
        """Wait before the next attempt.

        Raises:
            the error: it has failed for too long.
        """
        wait_ms = self.next_wait_ms()
        if wait_ms is None:
            raise error
        self._sleep(wait_ms / 1000)

    def next_wait_ms(self) -> int | None:
        """It failed: how long to wait before the next attempt; None when there is to be none."""
        if self._failing_since is None:
            self._failing_since = self._monotonic()
        left = self.limit_ms - self._failed_ms()
        if left <= 0:
            return None
        # Not all at the same moment: a broker that comes back meets many clients.
        wait_ms = round(self._wait_ms * random.uniform(0.8, 1.2))  # noqa: S311
        self._wait_ms = min(self._wait_ms * 2, LONGEST_WAIT_MS)
        return max(1, min(wait_ms, left))

    def _failed_ms(self) -> int:
        assert self._failing_since is not None
        return round((self._monotonic() - self._failing_since) * 1000)
