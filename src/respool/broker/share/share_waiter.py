"""Fetches that wait for records of share groups, and what tells share partitions that more is readable."""

import asyncio
from collections.abc import Callable

from respool.broker.partitions.commit_waiters import FetchWaiter


class ShareWaiter:
    """A fetch that waits for records in several share partitions, until there are enough."""

    def __init__(self, is_enough: Callable[[], bool] = lambda: True) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_enough = is_enough

    def wake(self) -> bool:
        """False: it is awake already, so somebody else may be woken."""
        if self.ready.done():
            return False
        self.ready.set_result(None)
        return True


class CommitWatch(FetchWaiter):
    """Tells a share partition that more is readable, as long as fetches wait in it."""

    def __init__(self, on_progress: Callable[[], None]) -> None:
        self._on_progress = on_progress

    def on_bytes_committed(self, count: int) -> None:
        del count
        self._on_progress()

    def wake(self) -> None:
        self._on_progress()
