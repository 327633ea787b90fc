"""How long no message has come, for loops that are to end then."""

import time
from collections.abc import Callable

# Without an end nobody counts; it is only so often that a loop looks around.
WAIT_SECONDS = 1.0


class Idleness:
    def __init__(
        self,
        idle_s: float | None,
        *,
        has_joined: Callable[[], bool],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`has_joined`: whether the group has given out shares. It takes seconds, in which nothing can come."""
        self._idle_s = idle_s
        self._has_joined = has_joined
        self._now = now
        self._since = now()
        self.wait_s = WAIT_SECONDS if idle_s is None else min(idle_s, WAIT_SECONDS)

    def on_message(self) -> None:
        self._since = self._now()

    def is_over(self) -> bool:
        """Nothing came, once more: whether that is long enough."""
        if not self._has_joined():
            self._since = self._now()
            return False
        return self._idle_s is not None and self._now() - self._since >= self._idle_s
