"""Blocking work on a few threads: `ports.offload` for syncs, cold reads and deletions.

A plain queue and `call_soon_threadsafe`, no executor: measured on uvloop with jobs of 300 us, the event loop's thread
spends 5 us per job with eight concurrent ones, against 34 us with `run_in_executor` (29 against 58 us with one). Only
the event loop's time matters.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class ThreadOffload:
    """A fixed number of threads, started at once. Jobs start in call order."""

    def __init__(self, threads: int) -> None:
        assert threads >= 1
        # None ends one thread.
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed = False
        # Daemons, so that a crashing broker does not hang at exit; `close` is the orderly way.
        self._threads = [
            threading.Thread(target=self._work, name=f"respool-io-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise RuntimeError("the threads have ended")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._jobs.put((work, done, loop))
        return await done

    def lock(self) -> AbstractContextManager[object]:
        return threading.Lock()

    def close(self) -> None:
        """Complete all queued jobs, even those that nobody waits for, and end the threads. Blocks."""
        self._closed = True
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            _do(*job)
            # Finished work must not keep its files open until the next work arrives.
            del job


def _do(work: Callable[[], T], done: "asyncio.Future[T]", loop: asyncio.AbstractEventLoop) -> None:
    try:
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - any exception belongs to the caller
            loop.call_soon_threadsafe(_fail, done, error)
        else:
            loop.call_soon_threadsafe(_succeed, done, result)
    except RuntimeError:
        # The event loop is closed: nobody waits.
        return


# The caller may have been cancelled meanwhile.


def _succeed(done: "asyncio.Future[T]", result: T) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: "asyncio.Future[T]", error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
