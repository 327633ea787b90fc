"""Time since the last message, for loops that end when idle."""

import time
from collections.abc import Callable

# The polling interval if there is no idle limit.
WAIT_SECONDS = 1.0


class Idleness:
    def __init__(
        self,
        idle_s: float | None,
        *,
        has_joined: Callable[[], bool],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`has_joined`: the group has assigned partitions. Before that, which takes seconds, no message can arrive."""
        self._idle_s = idle_s
        self._has_joined = has_joined
        self._now = now
        self._since = now()
        self.wait_s = WAIT_SECONDS if idle_s is None else min(idle_s, WAIT_SECONDS)

    def on_message(self) -> None:
        self._since = self._now()

    def is_over(self) -> bool:
        """Record an empty poll; return True if the idle limit is reached."""
        if not self._has_joined():
            self._since = self._now()
            return False
        return self._idle_s is not None and self._now() - self._since >= self._idle_s
