"""Blocking work without threads: run after a simulated delay."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from respool.sim.disk.disk_faults import ProcessGone

T = TypeVar("T")


@dataclass(slots=True)
class DiskPace:
    """How slow the disk is at present, in milliseconds for each half of a call. It may change during a run."""

    ms_min: float = 0.05
    ms_max: float = 1.5
    # The odds of a stall: a call that takes far longer.
    stall_odds: float = 0.0
    stall_ms_max: float = 500.0


class DelayedOffload:
    """A `ports.offload.Offload` on a simulated loop, with delays.

    A call waits for a free thread, then for the disk; then it runs in one step, and after another delay its caller gets
    the result. Requests may arrive in between, and the process may end.
    """

    def __init__(self, rng: Random, *, threads: int, pace: DiskPace) -> None:
        self._rng = rng
        self._free = threads
        self._pace = pace
        self._queue: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()

    async def run(self, work: Callable[[], T]) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append((work, done))
        self._start()
        return await done

    def lock(self) -> AbstractContextManager[object]:
        # A call runs in one step, so no lock is needed.
        return nullcontext()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while self._free and self._queue:
            self._free -= 1
            loop.call_later(self._delay_s(), self._do, loop, *self._queue.popleft())

    def _do(
        self, loop: asyncio.AbstractEventLoop, work: Callable[[], T], done: "asyncio.Future[T]"
    ) -> None:
        try:
            result = work()
        except ProcessGone:
            # The process died, and its waiters with it.
            return
        except Exception as error:  # noqa: BLE001 - the waiter gets every error
            loop.call_later(self._delay_s(), self._finish, done, done.set_exception, error)
        else:
            loop.call_later(self._delay_s(), self._finish, done, done.set_result, result)

    def _finish(
        self, done: "asyncio.Future[T]", set_outcome: Callable[[Any], None], how: Any
    ) -> None:
        self._free += 1
        if not done.done():
            set_outcome(how)
        self._start()

    def _delay_s(self) -> float:
        pace = self._pace
        ms = pace.ms_min + (pace.ms_max - pace.ms_min) * self._rng.random()
        if pace.stall_odds and self._rng.random() < pace.stall_odds:
            ms += pace.stall_ms_max * self._rng.random()
        return ms / 1000
