"""Who waits for the high watermark: acks=all producers, and fetches that want more bytes.

Both are told by the partition when its high watermark moved, or that it failed. Nobody polls.
"""

import asyncio
from collections import deque
from typing import Protocol

from respool.model.errors import RequestError
from respool.model.ids import Offset


class CommitListener(Protocol):
    """Told once per `wait_for` call."""

    def on_committed(self) -> None: ...

    def on_failed(self, error: RequestError) -> None: ...


class CommitQueue:
    """Appends waiting until everything below their `next_offset` is committed."""

    def __init__(self) -> None:
        # In append order, so nearly always by offset. A retried duplicate may stand behind a
        # later offset; it then waits for that one too, which costs it time and nothing else.
        self._waiting: deque[tuple[Offset, CommitListener]] = deque()

    def wait_for(self, next_offset: Offset, listener: CommitListener) -> None:
        self._waiting.append((next_offset, listener))

    def forget(self, listener: CommitListener) -> None:
        """It waits no longer; nothing happens if it was told already."""
        for place, (_, one) in enumerate(self._waiting):
            if one is listener:
                del self._waiting[place]
                return

    def on_high_watermark(self, high_watermark: Offset) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1].on_committed()

    def on_failure(self, error: RequestError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, listener in waiting:
            listener.on_failed(error)


class FetchWaiter:
    """One fetch that waits until enough bytes are committed in its partitions, or something fails.

    Bytes are counted as they are committed; nothing is read again until there is enough.
    """

    def __init__(self, *, bytes_wanted: int) -> None:
        self._bytes_wanted = bytes_wanted
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_bytes_committed(self, count: int) -> None:
        self._bytes_wanted -= count
        if self._bytes_wanted <= 0:
            self.wake()

    def wake(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)


class Commits(Protocol):
    """`Partition` is one."""

    def wait_for_commit(self, next_offset: Offset, listener: CommitListener) -> bool: ...


async def when_committed(partition: Commits, next_offset: Offset) -> None:
    """Return when all before that is committed.

    Raises:
        RequestError: it will not be, as far as is known here.
    """
    committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    if partition.wait_for_commit(next_offset, FutureListener(committed)):
        await committed


class FutureListener:
    __slots__ = ("_future",)

    def __init__(self, future: "asyncio.Future[None]") -> None:
        self._future = future

    def on_committed(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def on_failed(self, error: RequestError) -> None:
        if not self._future.done():
            self._future.set_exception(error)
