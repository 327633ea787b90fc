"""Blocking work without threads: run at once, or held until the test releases it."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

T = TypeVar("T")


class InlineOffload:
    """A `ports.offload.Offload` that runs work inline. While it holds work, a test can order other events around it."""

    def __init__(self, *, hold: bool = False) -> None:
        self._holding = hold
        self._held: deque[Callable[[], None]] = deque()

    @property
    def held(self) -> int:
        """The number of calls that wait."""
        return len(self._held)

    async def run(self, work: Callable[[], T]) -> T:
        if not self._holding:
            return work()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._held.append(lambda: _run_into(done, work))
        return await done

    def lock(self) -> AbstractContextManager[object]:
        # Only one call runs at a time, so no lock is needed.
        return nullcontext()

    def hold(self) -> None:
        self._holding = True

    def release(self, works: int | None = None) -> None:
        """Run the next `works` held calls, oldest first; without a number, run all of them and stop holding."""
        if works is None:
            self._holding = False
        for _ in range(len(self._held) if works is None else works):
            self._held.popleft()()


def _run_into(done: asyncio.Future[T], work: Callable[[], T]) -> None:
    # Work that was handed over is done even if its caller was cancelled, as a thread would do it.
    try:
        result = work()
    except Exception as error:
        if not done.done():
            done.set_exception(error)
    else:
        if not done.done():
            done.set_result(result)
