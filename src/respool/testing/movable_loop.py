"""An event loop whose time can be advanced, and that knows when it has nothing left to do.

All waiting in the broker uses its loop: `call_later`, `asyncio.sleep`, `asyncio.timeout`. They all use `loop.time()`.
So a loop that adds a shift to it runs everything that would have become due in that time, at once and in order. uvloop
keeps its timers in C, where they cannot be shifted, so a broker inside tests runs on asyncio's own loop.
"""

import asyncio
import selectors
import time
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import Context
from typing import Any, TypeVar

from respool.drivers.thread_offload import ThreadOffload

T = TypeVar("T")

# Advancing the clock waits no longer than this for the broker to become idle, even if clients keep it busy.
IDLE_S_MAX = 10.0


class MovableLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        # Set before the loop is initialized, which reads the time.
        self.shift_ms = 0
        # Weak, because the creators of timers may have ended, and most timers are never cancelled.
        self._timers: list[weakref.ref[asyncio.TimerHandle]] = []
        self._timers_max = 64
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self.selector = _TellingSelector(self._on_idle)
        super().__init__(self.selector)

    def time(self) -> float:
        return super().time() + self.shift_ms / 1000

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = super().call_at(when, callback, *args, context=context)
        self._timers.append(weakref.ref(timer))
        if len(self._timers) > self._timers_max:
            self._timers = [one for one in self._timers if one() is not None]
            self._timers_max = 64 + 2 * len(self._timers)
        return timer

    def cancel_timers(self) -> None:
        """Cancel all timers, because the broker that set them has crashed."""
        for one in self._timers:
            timer = one()
            if timer is not None:
                timer.cancel()
        self._timers = []

    async def move_on(self, ms: int, *, is_busy: Callable[[], bool]) -> bool:
        """Advance the time, and return when everything that became due is done; False if that took too long.

        `is_busy` says whether work that this loop waits for is in progress: syncs and deletions on other threads.
        """
        assert ms >= 0
        self.shift_ms += ms
        return await self.wait_until_idle(is_busy=is_busy)

    async def wait_until_idle(self, *, is_busy: Callable[[], bool]) -> bool:
        """Return when nothing is ready to run and no work is in progress elsewhere; False if that took too long."""
        idle: asyncio.Future[None] = self.create_future()
        self._waiting.append((is_busy, idle))
        # Not `asyncio.timeout`, which uses the shifted time.
        deadline = time.monotonic() + IDLE_S_MAX
        try:
            while not idle.done() and time.monotonic() < deadline:
                await asyncio.wait([idle], timeout=0.5)
            return idle.done()
        finally:
            self._waiting = [one for one in self._waiting if one[1] is not idle]

    def _on_idle(self) -> bool:
        """Called when nothing is ready and no timer is due. Returns True if that woke a waiter."""
        idle = [future for is_busy, future in self._waiting if not is_busy()]
        for future in idle:
            if not future.done():
                future.set_result(None)
        self._waiting = [one for one in self._waiting if not one[1].done()]
        return bool(idle)


class _TellingSelector(selectors.DefaultSelector):
    """Calls `on_idle` when the loop is about to wait: with callbacks to run, the loop selects with a timeout of 0."""

    def __init__(self, on_idle: Callable[[], bool]) -> None:
        super().__init__()
        self._on_idle = on_idle

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            # Data that clients have already sent comes first: its handling may be part of what is waited for.
            ready = super().select(0)
            if ready:
                return ready
            if self._on_idle():
                timeout = 0
        return super().select(timeout)


class WorkCount:
    """How many blocking operations are in progress, over all threads; the broker is not idle before they end."""

    def __init__(self) -> None:
        self.in_progress = 0

    def is_busy(self) -> bool:
        return self.in_progress > 0


class CountedThreads:
    """A `ports.offload.Offload`."""

    def __init__(self, threads: int, work_count: WorkCount) -> None:
        self._threads = ThreadOffload(threads)
        self._work_count = work_count

    async def run(self, work: Callable[[], T]) -> T:
        self._work_count.in_progress += 1
        try:
            return await self._threads.run(work)
        finally:
            self._work_count.in_progress -= 1

    def lock(self) -> AbstractContextManager[object]:
        return self._threads.lock()

    def close(self) -> None:
        self._threads.close()
