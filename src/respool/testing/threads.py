"""The node's threads, counted: whoever waits for the broker to settle waits for them too."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from respool.drivers.thread_offload import ThreadOffload

T = TypeVar("T")


class Tally:
    """How many works are under way, over all threads."""

    def __init__(self) -> None:
        self.under_way = 0

    def is_busy(self) -> bool:
        return self.under_way > 0


class CountedThreads:
    """A `ports.offload.Offload`."""

    def __init__(self, threads: int, tally: Tally) -> None:
        self._threads = ThreadOffload(threads)
        self._tally = tally

    async def run(self, work: Callable[[], T]) -> T:
        self._tally.under_way += 1
        try:
            return await self._threads.run(work)
        finally:
            self._tally.under_way -= 1

    def lock(self) -> AbstractContextManager[object]:
        return self._threads.lock()

    def close(self) -> None:
        self._threads.close()
