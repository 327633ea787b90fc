"""`AsyncQueue`: a `Queue` for asyncio. One thread per queue talks to the brokers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from respool.client.kafka.bootstrap import Bootstrap
from respool.client.kafka.errors import ClientClosed
from respool.client.kafka.security import IN_THE_CLEAR, Security
from respool.client.queues.queue import Queue
from respool.client.queues.queue_message import QueueMessage

# A task that is cancelled waits for at most this long.
_STEP_S = 0.5


class AsyncQueue:
    """The same arguments as `Queue`. Messages are acknowledged without `await`: that does not wait for the broker."""

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        bootstrap: str | Bootstrap | None = None,
        max_records: int = 100,
        security: Security = IN_THE_CLEAR,
    ) -> None:
        self._queue = Queue(
            topics, group=group, bootstrap=bootstrap, max_records=max_records, security=security
        )
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="respool-queue")
        # A message that arrived for a task that was cancelled.
        self._returned: list[QueueMessage] = []
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[QueueMessage]:
        while not self._is_closed:
            message = await self.receive(timeout=1.0)
            if message is not None:
                yield message

    async def receive(self, timeout: float | None = None) -> QueueMessage | None:  # noqa: ASYNC109 as Queue.receive
        """Return the next message, or None if there is none within `timeout` seconds."""
        loop = asyncio.get_running_loop()
        ends_at = None if timeout is None else loop.time() + timeout
        while True:
            if self._returned:
                return self._returned.pop(0)
            if self._is_closed:
                raise ClientClosed("the queue is closed")
            left = _STEP_S if ends_at is None else min(_STEP_S, ends_at - loop.time())
            if left < 0:
                return None
            step = self._worker.submit(self._queue.receive, left)
            try:
                message = await asyncio.shield(asyncio.wrap_future(step))
            except asyncio.CancelledError:
                step.add_done_callback(self._keep)
                raise
            if message is not None:
                return message

    async def flush(self) -> None:
        """Send the acknowledgements so far, and wait for their results."""
        await asyncio.get_running_loop().run_in_executor(self._worker, self._queue.flush)

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._queue.close)
        self._worker.shutdown(wait=False)

    def _keep(self, step: "object") -> None:
        error = step.exception()  # type: ignore[attr-defined]
        if error is None and (message := step.result()) is not None:  # type: ignore[attr-defined]
            self._returned.append(message)
