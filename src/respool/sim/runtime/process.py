"""A simulated process: whatever it scheduled can be held still, or be gone from one moment to the next.

Which process a callback or task belongs to is known by its context: tasks and timers inherit it from whoever made
them. So code under simulation need not know that it shares its event loop with other machines.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from respool.sim.runtime.handles import Callback, Timer
    from respool.sim.runtime.sim_loop import SimLoop

_current: contextvars.ContextVar["Process"] = contextvars.ContextVar("process")


class Process:
    def __init__(self, loop: "SimLoop", *, name: str, host: str, number: int) -> None:
        self._loop = loop
        self.name = name
        # The machine it runs on: networks are cut between machines, not processes.
        self.host = host
        self.number = number
        self.is_alive = True
        # It did not come to an end by itself.
        self.was_killed = False
        # A stopped process (SIGSTOP): what is ready waits.
        self.is_paused = False
        # Let its ready tasks overtake each other. asyncio would not; code should not mind.
        self.shuffles_tasks = False
        # Callbacks that are due, in the order asyncio promises.
        self.ready: deque[Callback | Timer] = deque()
        # Those under way, and some that are done, in the order of starting: asyncio itself knows them as a set.
        self.tasks: list[asyncio.Task[Any]] = []
        self._tasks_max = 64
        self.context = contextvars.copy_context()
        self.context.run(_current.set, self)

    def spawn(
        self, work: Coroutine[Any, Any, Any], *, name: str | None = None
    ) -> "asyncio.Task[Any]":
        """Start something that belongs to this process, from wherever."""
        return self._loop.create_task(work, name=name, context=self.context.copy())

    def own(self, task: "asyncio.Task[Any]") -> None:
        self.tasks.append(task)
        if len(self.tasks) > self._tasks_max:
            self.tasks = [one for one in self.tasks if not one.done()]
            self._tasks_max = 64 + 2 * len(self.tasks)

    def kill(self) -> None:
        """Nothing of it runs any more, not even clean-up. The call that is on the stack just now may still return."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.was_killed = True
        self.is_paused = False
        self.ready.clear()

    def __repr__(self) -> str:
        return f"<process {self.name} on {self.host}>"


def process_of(context: contextvars.Context) -> Process | None:
    return context.get(_current)


def current_process() -> Process:
    """Whose code runs now."""
    return _current.get()
