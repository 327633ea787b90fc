"""Blocking work without threads: done at once, or held back until the test lets it go."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

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
