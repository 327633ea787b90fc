"""A simulated process: everything it scheduled can be paused, or removed in an instant.

The context of a callback or task tells which process it belongs to: tasks and timers inherit the context of their
creator. So the code under simulation need not know that it shares its event loop with other machines.
"""

import asyncio
import contextvars
from collections import deque
from collections.abc import Coroutine
from typing import Any

_current: contextvars.ContextVar["Process"] = contextvars.ContextVar("process")


class Process:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, name: str, host: str, number: int
    ) -> None:
        self._loop = loop
        self.name = name
        # The machine it runs on: network partitions separate machines, not processes.
        self.host = host
        self.number = number
        self.is_alive = True
        # Whether it was killed instead of ending by itself.
        self.was_killed = False
        # A stopped process (SIGSTOP): its ready callbacks wait.
        self.is_paused = False
        # Whether its ready tasks overtake each other. asyncio keeps their order, but correct code does not rely on it.
        self.shuffles_tasks = False
        # Callbacks that are due, in the order that asyncio guarantees.
        self.ready: deque[asyncio.Handle] = deque()
        # Unfinished tasks and some finished ones, in the order they started; asyncio keeps them in an unordered set.
        self.tasks: list[asyncio.Task[Any]] = []
        self._tasks_max = 64
        self.context = contextvars.copy_context()
        self.context.run(_current.set, self)

    def spawn(
        self, work: Coroutine[Any, Any, Any], *, name: str | None = None
    ) -> "asyncio.Task[Any]":
        """Start a task that belongs to this process; the caller may belong to another."""
        return self._loop.create_task(work, name=name, context=self.context.copy())

    def own(self, task: "asyncio.Task[Any]") -> None:
        self.tasks.append(task)
        if len(self.tasks) > self._tasks_max:
            self.tasks = [one for one in self.tasks if not one.done()]
            self._tasks_max = 64 + 2 * len(self.tasks)

    def kill(self) -> None:
        """From now on, none of its code runs, not even clean-up. The call on the stack may still return."""
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
    """Return the process whose code runs now."""
    return _current.get()
