"""Deletes obsolete files later, off the event loop.

The files were renamed when they became obsolete, so after a crash the next start finds and deletes them. The delay lets
current readers finish; a file that is already open stays readable even after that.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice

from respool.model.errors import StorageError
from respool.ports.disk import Disk
from respool.ports.offload import Offload

logger = logging.getLogger(__name__)

DELAY_MS_MAX = 24 * 3_600_000
# Folders that are deleted in one call to another thread.
DELETED_TOGETHER = 20


class DeferredDeletion:
    def __init__(self, *, disk: Disk, offload: Offload) -> None:
        self._disk = disk
        self._offload = offload
        # Keyed by number, so that a timer can remove itself.
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._numbers = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()

    def delete_later(self, paths: Iterable[str], *, delay_ms: int) -> None:
        waiting = iter(paths)
        while some := list(islice(waiting, DELETED_TOGETHER)):
            self._run_later([partial(self._disk.delete, path) for path in some], delay_ms=delay_ms)

    def run_later(self, delete: Callable[[], None], *, delay_ms: int) -> None:
        self._run_later([delete], delay_ms=delay_ms)

    def _run_later(self, deletions: list[Callable[[], None]], *, delay_ms: int) -> None:
        number = next(self._numbers)
        # The setting may exceed the range of a timer, so the delay is limited.
        delay_s = min(delay_ms, DELAY_MS_MAX) / 1000
        loop = asyncio.get_running_loop()
        self._timers[number] = loop.call_later(delay_s, self._start, number, deletions)

    def _start(self, number: int, deletions: list[Callable[[], None]]) -> None:
        del self._timers[number]
        task = asyncio.get_running_loop().create_task(self._delete(deletions))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _delete(self, deletions: list[Callable[[], None]]) -> None:
        for error in await self._offload.run(lambda: _run_each(deletions)):
            logger.warning("could not delete what is out of use: %s", error)

    async def stop(self) -> None:
        """Let running deletions finish; the others are left for the next start."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._tasks:
            await asyncio.gather(*self._tasks)


def _run_each(deletions: Iterable[Callable[[], None]]) -> list[StorageError]:
    errors = []
    for delete in deletions:
        try:
            delete()
        except StorageError as error:
            errors.append(error)
    return errors
