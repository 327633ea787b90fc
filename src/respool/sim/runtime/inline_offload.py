"""Blocking work without threads: done at once, held back until the test lets it go, or done while time passes."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from respool.sim.disk.disk_faults import ProcessGone

T = TypeVar("T")


class InlineOffload:
    """A `ports.offload.Offload`. While it holds, works pile up, so that a test can put things in order around them."""

    def __init__(self, *, hold: bool = False) -> None:
        self._holding = hold
        self._held: deque[Callable[[], None]] = deque()

    @property
    def held(self) -> int:
        """How many works wait."""
        return len(self._held)

    async def run(self, work: Callable[[], T]) -> T:
        if not self._holding:
            return work()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._held.append(lambda: _run_into(done, work))
        return await done

    def lock(self) -> AbstractContextManager[object]:
        # One work at a time, so there is nothing to keep apart.
        return nullcontext()

    def hold(self) -> None:
        self._holding = True

    def release(self, works: int | None = None) -> None:
        """Do the next so many held works, oldest first; without a number do all, and hold no more."""
        if works is None:
            self._holding = False
        for _ in range(len(self._held) if works is None else works):
            self._held.popleft()()


@dataclass(slots=True)
class DiskPace:
    """How slow the disk is now, in milliseconds for each half of a work. Changed while it runs."""

    ms_min: float = 0.05
    ms_max: float = 1.5
    # Now and then one takes far longer.
    stall_odds: float = 0.0
    stall_ms_max: float = 500.0


class DelayedOffload:
    """A `ports.offload.Offload` on a simulated loop: a work waits for a thread, then for the disk; then it is done, in
    one step, and a while later its caller hears of it. So requests come in between, and so may the end of the process.
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
        # A work is one step, so there is nothing to keep apart.
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
            # Whoever waits died with the process.
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the one who waits
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


def _run_into(done: asyncio.Future[T], work: Callable[[], T]) -> None:
    # Work that was handed over is done even when nobody waits for it any more, as a thread would do it.
    try:
        result = work()
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the one who waits
        if not done.done():
            done.set_exception(error)
    else:
        if not done.done():
            done.set_result(result)
