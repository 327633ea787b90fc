"""Many deadlines that nearly never come, looked at now and then.

An acks=all request waits a millisecond for its sync and has thirty seconds for it. A timer of its own would cost more
than the rest of its waiting; a place in a dict costs next to nothing, and being told a tenth of a second late is fine.
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
