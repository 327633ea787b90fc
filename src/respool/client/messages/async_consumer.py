"""Receive messages in asyncio: `AsyncConsumer`.

One thread per consumer talks to librdkafka. It fetches a batch of messages when the previous batch is used up: no
thread and no context switch per message, and a bounded number in memory. A task that is cancelled while it waits loses
nothing: messages that arrived are returned to the next call.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal, Self, TypeVar

from respool.client.kafka.errors import BufferFull
from respool.client.messages.async_producer import AsyncProducer
from respool.client.messages.batching import Pace, pace_settings
from respool.client.messages.closing import noted_on
from respool.client.messages.consumed_transaction import (
    Attempts,
    ConsumedTransaction,
    check_pair,
)
from respool.client.messages.consumer import WAIT_SECONDS, Idleness, make_reader
from respool.client.messages.errors import ClientClosed, NoTransaction
from respool.client.messages.group_reader import GroupReader
from respool.client.messages.guarantee import Delivery
from respool.client.messages.handled_message import HandledMessage
from respool.client.messages.message import Message, Place
from respool.client.messages.retry.retry_options import Retry
from respool.client.messages.rewind import Missing, To, parse

Result = TypeVar("Result")


class AsyncConsumer:
    """A `Consumer` for asyncio, with the same arguments. Use it as `async with`, or `start` and `close` it."""

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        bootstrap: str | None = None,
        delivery: Delivery = "at-least-once",
        start: Literal["earliest", "latest"] = "earliest",
        commit: Literal["auto", "manual"] = "auto",
        commit_every_ms: int = 1_000,
        pace: Pace = "balanced",
        instance: str | None = None,
        retry: Retry | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        def make() -> GroupReader:
            return make_reader(
                topics,
                group=group,
                bootstrap=bootstrap,
                delivery=delivery,
                start=start,
                commit=commit,
                commit_every_ms=commit_every_ms,
                pace=pace,
                instance=instance,
                retry=retry,
                settings=settings or {},
            )

        self.delivery = delivery
        self._pace = pace_settings(pace)
        self._make: Callable[[], GroupReader] = make
        self._reader_or_none: GroupReader | None = None
        self._is_closed = False
        self._transaction: ConsumedTransaction | None = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="respool-consumer")
        # Held while the reader is used: by its thread or, if it has messages buffered, by the event loop.
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leaving without an exception marks all returned messages as done; with one, all but the last."""
        with noted_on(error, "consumer"):
            await self._close(is_done=error is None)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self.messages()

    async def start(self) -> None:
        """Join the group. Raises what `Consumer` does."""
        if self._reader_or_none is None and not self._is_closed:
            self._reader_or_none = await self._in_thread(self._make)

    @property
    def assignment(self) -> frozenset[Place]:
        """The assigned partitions; empty until a `poll` has joined the group."""
        return self.reader.assigned

    async def poll(self, timeout_s: float = WAIT_SECONDS) -> Message | None:
        """Return the next message, or None after the timeout. Marks the previous messages as done."""
        found = await self.poll_batch(1, timeout_s)
        return found[0] if found else None

    async def poll_batch(
        self, messages_max: int | None = None, timeout_s: float = WAIT_SECONDS
    ) -> list[Message]:
        """Return available messages, up to a maximum; waits only for the first."""
        if self.delivery == "exactly-once":
            raise NoTransaction(
                "an exactly-once consumer hands messages over in transactions: `async for transaction in"
                " consumer.transactions(producer):`"
            )
        return await self._take(messages_max or self._pace.messages_at_once, timeout_s)

    async def messages(self, *, idle_s: float | None = None) -> AsyncIterator[Message]:
        """Yield messages forever, or until none has arrived for `idle_s` seconds."""
        idleness = Idleness(idle_s, is_idle=lambda: self.reader.is_idle)
        while True:
            message = await self.poll(idleness.wait_s)
            if message is not None:
                yield message
                idleness.on_message()
            elif idleness.is_over():
                return

    async def transactions(
        self,
        producer: AsyncProducer,
        *,
        messages_max: int | None = None,
        idle_s: float | None = None,
    ) -> AsyncIterator["AsyncConsumedTransaction"]:
        """Like `Consumer.transactions`: handle each batch of messages in `async with transaction:`."""
        if not isinstance(producer, AsyncProducer):
            raise NoTransaction(f"this needs an AsyncProducer, not {type(producer).__name__}")
        check_pair(producer.producer, self.delivery)
        count = messages_max or self._pace.transaction_messages
        attempts = Attempts()
        idleness = Idleness(idle_s, is_idle=lambda: self.reader.is_idle)
        while True:
            messages = await self._take(count, idleness.wait_s)
            if messages:
                inner = ConsumedTransaction(self.reader, producer.producer, messages)
                self._transaction = inner
                yield AsyncConsumedTransaction(self, inner)
                attempts.on_over(inner)
                idleness.on_message()
            elif idleness.is_over():
                return

    @asynccontextmanager
    async def handling(self, message: Message) -> AsyncIterator[Message]:
        """`async with consumer.handling(message):`, like `Consumer.handling`."""
        handled = self._handled(message)
        try:
            yield message
        except Exception as error:
            if not await self._send_on(handled, error, is_own_work=True):
                raise

    async def retry(self, message: Message, error: BaseException) -> None:
        """Like `Consumer.retry`."""
        if not await self._send_on(self._handled(message), error, is_own_work=False):
            raise error

    @property
    def retried(self) -> int:
        """How many messages this consumer has sent to the retry topic."""
        reader = self._reader_or_none
        return 0 if reader is None or reader.retries is None else reader.retries.counts.retried

    @property
    def buried(self) -> int:
        """How many messages this consumer has sent to the dead letters."""
        reader = self._reader_or_none
        return 0 if reader is None or reader.retries is None else reader.retries.counts.buried

    async def commit(self, message: Message | None = None) -> None:
        """Commit all returned messages, or those of this message's partition up to it."""
        if self.delivery == "exactly-once":
            raise NoTransaction("exactly once commits in the producer's transactions only")
        if self.delivery == "at-least-once":
            reader = self.reader
            await self.alone(lambda: reader.commit(message))

    async def rewind(self, to: To, *, missing: Missing = "error") -> None:
        """Like `Consumer.rewind`."""
        request = parse(to, now=datetime.now(UTC), missing=missing)
        reader = self.reader
        await self.alone(lambda: reader.rewind(request))

    async def close(self) -> None:
        """Leave the group. Commits messages that are done: not the last one, unless `commit` was called."""
        await self._close(is_done=False)

    # -- for this package

    @property
    def reader(self) -> GroupReader:
        if self._is_closed:
            raise ClientClosed("the consumer was closed: make a new one of the same group")
        if self._reader_or_none is None:
            raise ClientClosed(
                "the consumer was not started: say `async with AsyncConsumer(...) as consumer:`"
            )
        return self._reader_or_none

    async def alone(self, act: Callable[[], Result]) -> Result:
        """Run `act` exclusively in the consumer's thread, and to completion even if the caller is cancelled."""
        async with self._lock:
            running = asyncio.ensure_future(self._in_thread(act))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # Hold the lock until the thread has finished, even if the caller is cancelled again.
                if self._reader_or_none is not None:
                    self._reader_or_none.is_abandoned = True
                while not running.done():
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait([running])
                # The caller is gone, so the outcome is dropped.
                running.exception()
                raise

    # -- inside

    def _handled(self, message: Message) -> HandledMessage:
        return HandledMessage(
            self.reader.retries,
            self._transaction,
            message,
            is_transactional=self.delivery == "exactly-once",
        )

    async def _send_on(
        self, handled: HandledMessage, error: BaseException, *, is_own_work: bool
    ) -> bool:
        """Send a failed message on; False if its error is to be raised."""
        send_on = handled.failed(error, is_own_work=is_own_work)
        if send_on is None:
            return False
        try:
            send_on(False)
        except BufferFull:
            await asyncio.to_thread(send_on, True)
        return True

    async def _take(self, count: int, wait_s: float) -> list[Message]:
        reader = self.reader
        if reader.can_hand_over and not self._lock.locked():
            return reader.take(count, 0)
        # Messages stay in the reader until they are taken here, so that a cancelled caller loses nothing.
        await self.alone(lambda: reader.prepare(count, wait_s))
        return reader.take_prepared(count)

    async def _in_thread(self, act: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._worker, act)

    async def _close(self, *, is_done: bool) -> None:
        if self._is_closed:
            return
        reader, self._is_closed = self._reader_or_none, True
        try:
            if reader is not None:
                reader.stopping.set()
                await self.alone(lambda: reader.close(is_done=is_done))
        finally:
            self._worker.shutdown(wait=False)


class AsyncConsumedTransaction:
    """A batch of messages and the transaction in which they are handled: `async with transaction:`, once."""

    def __init__(self, consumer: AsyncConsumer, inner: ConsumedTransaction) -> None:
        self._consumer = consumer
        self._inner = inner
        self.messages = inner.messages

    @property
    def is_committed(self) -> bool:
        """After the transaction has ended: True if it was committed."""
        return self._inner.is_committed

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    async def __aenter__(self) -> Self:
        await self._consumer.alone(self._inner.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return await self._consumer.alone(lambda: self._inner.__exit__(kind, error, trace))
