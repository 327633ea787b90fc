"""Many deadlines that rarely expire, checked periodically.

An acks=all request typically waits a millisecond for its sync and has a timeout of thirty seconds. A timer per request
would cost more than the rest of the wait; a dict entry costs almost nothing, and expiring 0.1 s late is acceptable.
"""

import asyncio
from typing import Protocol

INTERVAL_S = 0.1


class Deadline(Protocol):
    def on_timeout(self) -> None: ...


class Deadlines:
    def __init__(self) -> None:
        self._due_at_s: dict[Deadline, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, deadline: Deadline, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._due_at_s[deadline] = loop.time() + delay_s
        if self._timer is None:
            self._timer = loop.call_later(INTERVAL_S, self._look, loop)

    def remove(self, deadline: Deadline) -> None:
        self._due_at_s.pop(deadline, None)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_at_s.clear()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now_s = loop.time()
        for deadline in [one for one, due_at_s in self._due_at_s.items() if due_at_s <= now_s]:
            del self._due_at_s[deadline]
            deadline.on_timeout()
        if self._due_at_s:
            self._timer = loop.call_later(INTERVAL_S, self._look, loop)
