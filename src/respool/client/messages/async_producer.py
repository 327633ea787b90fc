"""Send messages from asyncio: `AsyncProducer`.

One thread per producer serves librdkafka's callbacks, however many messages there are; their results are passed to the
event loop in one call. `send` awaits only while the bounded buffer is full.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from types import TracebackType
from typing import Self, TypeVar

from respool.client.kafka.errors import BufferFull
from respool.client.messages.batching import Pace
from respool.client.messages.closing import noted_on
from respool.client.messages.delay import Delay, delay_headers
from respool.client.messages.errors import ClientClosed, ClientError
from respool.client.messages.failures import OnDelivery
from respool.client.messages.guarantee import Delivery
from respool.client.messages.message import Data, Headers, Receipt
from respool.client.messages.outgoing import Choose, Outgoing
from respool.client.messages.producer import Producer
from respool.client.messages.producer_transaction import Transaction

_SERVE_SECONDS = 0.1
Result = TypeVar("Result")
Outcome = tuple["asyncio.Future[Receipt]", Receipt | ClientError]


class AsyncProducer:
    """A `Producer` for asyncio, with the same arguments. Use it as `async with`, or `start` and `close` it."""

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        delivery: Delivery = "at-least-once",
        pace: Pace = "balanced",
        partitioner: str | Choose = "key",
        transactional_id: str | None = None,
        compression: str = "none",
        settings: Mapping[str, object] | None = None,
    ) -> None:
        def make() -> Producer:
            return Producer(
                bootstrap,
                delivery=delivery,
                pace=pace,
                partitioner=partitioner,
                transactional_id=transactional_id,
                compression=compression,
                settings=settings,
            )

        self._make: Callable[[], Producer] = make
        self._producer: Producer | None = None
        self._is_closed = False
        # For blocking calls: connecting, flushing, transactions. One at a time.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="respool-producer")
        self._server: threading.Thread | None = None
        self._stopping = threading.Event()
        # Filled by the thread that serves callbacks, drained by the event loop in one call.
        self._outcomes: list[Outcome] = []
        self._is_loop_called = False
        self._outcomes_lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with noted_on(error, "producer"):
            await self.close()

    async def start(self) -> None:
        """Connect. Raises what `Producer` does."""
        if self._producer is not None or self._is_closed:
            return
        self._loop = asyncio.get_running_loop()
        self._producer = await self.in_thread(self._make)
        self._server = threading.Thread(target=self._serve, name="respool-deliveries", daemon=True)
        self._server.start()

    async def send(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        *,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        headers: Headers = (),
        delay: Delay | None = None,
        deliver_at: datetime | int | None = None,
        schedule_id: str | bytes | None = None,
    ) -> None:
        """Queue a message. Waits only while the buffer is full, and once for a topic's first message.

        In a topic with `respool.delay=true`, consumers see it after `delay` or at `deliver_at`. Until then a later one
        with the same key and `schedule_id` replaces it.

        Raises:
            DeliveryFailed: messages sent earlier were not delivered; this one was not sent.
            UnknownTopic, UnknownPartition, BadArgument: this one was not sent.
            NoTransaction: exactly once, and no transaction is open.
        """
        producer = self.producer
        producer.raise_failures()
        await self._know(topic)
        made = producer.prepare(
            topic,
            value,
            key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            later=delay_headers(delay, deliver_at, schedule_id),
        )
        await self._put(made, producer.failures.on_delivery)

    async def send_and_wait(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        *,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        headers: Headers = (),
        delay: Delay | None = None,
        deliver_at: datetime | int | None = None,
        schedule_id: str | bytes | None = None,
    ) -> Receipt:
        """Send one message and wait until it is acknowledged. For many at once use `asyncio.gather`.

        Raises:
            DeliveryFailed: it was not acknowledged, and why.
        """
        producer = self.producer
        producer.raise_failures()
        await self._know(topic)
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        made = producer.prepare(
            topic,
            value,
            key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            later=delay_headers(delay, deliver_at, schedule_id),
        )
        await self._put(made, producer.telling(lambda outcome: self._tell(future, outcome)))
        return await future

    async def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything sent so far is acknowledged.

        Raises:
            DeliveryFailed: a message was not delivered, or the time is up.
        """
        producer = self.producer
        await self.in_thread(lambda: producer.flush(timeout_s))

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, and close. An open transaction is aborted. Closing twice does nothing.

        Raises:
            DeliveryFailed: a message could not be delivered.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            producer = self._producer
            if producer is not None:
                await self.in_thread(lambda: producer.close(timeout_s))
        finally:
            self._stopping.set()
            if self._server is not None:
                await self.in_thread(self._server.join)
            self._hand_out()
            self._worker.shutdown(wait=False)

    def transaction(self) -> "AsyncTransaction":
        """Use it as `async with producer.transaction():`; like `Producer.transaction`."""
        return AsyncTransaction(self, self.producer.transaction())

    # -- for this package

    @property
    def producer(self) -> Producer:
        if self._is_closed:
            raise ClientClosed("the producer was closed: make a new one to send more")
        if self._producer is None:
            raise ClientClosed(
                "the producer was not started: say `async with AsyncProducer(...) as producer:`"
            )
        return self._producer

    async def in_thread(self, act: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._worker, act)

    # -- inside

    async def _know(self, topic: str) -> None:
        self.producer.check_may_send()
        counts = self.producer.counts
        if topic not in counts:
            await self.in_thread(lambda: counts.learn(topic))

    async def _put(self, made: Outgoing, on_delivery: OnDelivery) -> None:
        while True:
            try:
                return self.producer.put(made, on_delivery)
            except BufferFull:
                # Set by the serving thread after each callback.
                self._room.clear()
                await self._room.wait()

    def _serve(self) -> None:
        assert self._producer is not None
        while not self._stopping.is_set():
            if self._producer.kafka.poll(_SERVE_SECONDS):
                self._call_loop(self._room.set)
            self._producer.refresh_counts()

    def _tell(self, future: "asyncio.Future[Receipt]", outcome: Receipt | ClientError) -> None:
        """Called from a thread."""
        with self._outcomes_lock:
            self._outcomes.append((future, outcome))
            must_call, self._is_loop_called = not self._is_loop_called, True
        if must_call:
            self._call_loop(self._hand_out)

    def _hand_out(self) -> None:
        with self._outcomes_lock:
            outcomes, self._outcomes = self._outcomes, []
            self._is_loop_called = False
        for future, outcome in outcomes:
            if future.done():
                # Its sender was cancelled.
                continue
            if isinstance(outcome, ClientError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def _call_loop(self, act: Callable[[], None]) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)


class AsyncTransaction:
    """`async with producer.transaction():`"""

    def __init__(self, producer: AsyncProducer, transaction: Transaction) -> None:
        self._producer = producer
        self._transaction = transaction

    async def __aenter__(self) -> Self:
        await self._producer.in_thread(self._transaction.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._producer.in_thread(lambda: self._transaction.__exit__(kind, error, trace))
