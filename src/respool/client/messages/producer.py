"""Send messages: `Producer`.

`send` puts a message into a bounded buffer and returns; librdkafka sends it in the background. A failed delivery is
never silent: it raises at the next `send`, `flush` or `close`. A producer may be used by several threads.
"""

from collections.abc import Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from respool.client.kafka.bootstrap import Bootstrap
from respool.client.kafka.errors import BufferFull
from respool.client.messages import library
from respool.client.messages.batching import Pace, pace_settings
from respool.client.messages.closing import noted_on
from respool.client.messages.delay import Delay, HeaderPair, delay_headers
from respool.client.messages.errors import (
    BadArgument,
    ClientClosed,
    ClientError,
    DeliveryFailed,
    NoTransaction,
    Undelivered,
)
from respool.client.messages.failures import Failures, OnDelivery, telling
from respool.client.messages.guarantee import Delivery, check_delivery, producer_settings
from respool.client.messages.library import KafkaException
from respool.client.messages.message import Data, Headers, Receipt, as_headers
from respool.client.messages.outgoing import (
    LIBRARY_SETTING,
    Choose,
    Outgoing,
    Partitioner,
    TopicCounts,
    prepare,
)
from respool.client.messages.producer_transaction import LibraryTransactions, Transaction

# Bounds of the buffer; librdkafka's default is a gigabyte.
_BOUNDS = {"queue.buffering.max.messages": 100_000, "queue.buffering.max.kbytes": 64 * 1024}
_DELIVERY_TIMEOUT_MS = 120_000
_TRANSACTION_TIMEOUT_MS = 60_000
# Callbacks are served once per this many sends.
_SENDS_PER_POLL = 32
_POLL_SECONDS = 0.1


class Producer:
    """Sends messages with a delivery guarantee.

    Args:
        bootstrap: one or more broker addresses, `host:port,host:port`; None means RESPOOL_BROKER of the environment, or
            else 127.0.0.1:9092.
        delivery: "at-most-once", "at-least-once" or "exactly-once". The last needs a `transactional_id`, and sends only
            inside `with producer.transaction()` or a consumer's `transactions(producer)`.
        pace: "latency", "balanced" or "throughput": how long a message may wait for others.
        partitioner: "key" as in the Java client, "round-robin", or a function of key, value and number of partitions.
        transactional_id: one per running instance, and the same after its restart. Never generated: a restart under
            another id would not abort the transaction left open.
        compression: "none", "gzip", "snappy", "lz4" or "zstd".
        settings: other librdkafka properties.

    Raises:
        BadArgument: an argument is invalid, or contradicts another.
        BrokerUnreachable: no broker answers; only "exactly-once" connects before the first message.
    """

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
        brokers = Bootstrap.resolve(bootstrap)
        check_delivery(delivery)
        _check_transactional_id(delivery, transactional_id)
        self.delivery = delivery
        self._partitioner = Partitioner(partitioner)
        is_transactional = transactional_id is not None
        made: dict[str, object] = {
            **_BOUNDS,
            # Messages must not outlive their transaction.
            "delivery.timeout.ms": _TRANSACTION_TIMEOUT_MS
            if is_transactional
            else _DELIVERY_TIMEOUT_MS,
            "socket.nagle.disable": True,
            # A mistyped name is an error, not a new topic.
            "allow.auto.create.topics": False,
            "compression.type": compression,
            **LIBRARY_SETTING,
            **pace_settings(pace).producer,
            **producer_settings(delivery, settings or {}),
            "bootstrap.servers": brokers.servers,
        }
        if is_transactional:
            made = {"transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS, **made}
            made["transactional.id"] = transactional_id
        # librdkafka's producer, for this package.
        self.kafka: Any = library.make(library.KafkaProducer, made)
        self.counts = TopicCounts(self.kafka, brokers)
        self.failures = Failures()
        self.transactions: LibraryTransactions | None = None
        self._has_acks = str(made["acks"]) != "0"
        # librdkafka refuses larger ones itself; this is its default.
        self.message_bytes_max = int(str(made.get("message.max.bytes", 1_000_000)))
        # How many messages were passed to librdkafka.
        self.sent_count = 0
        self._sends = 0
        self._is_closed = False
        if is_transactional:
            timeout_ms = int(str(made["transaction.timeout.ms"]))
            self.transactions = LibraryTransactions(self.kafka, timeout_s=timeout_ms / 1000)
            self.transactions.take_place(brokers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with noted_on(error, "producer"):
            self.close()

    def send(
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
        """Queue a message. Waits only while the buffer is full.

        In a topic with `respool.delay=true`, consumers see it after `delay` or at `deliver_at`. Until then a later one
        with the same key and `schedule_id` replaces it.

        Raises:
            DeliveryFailed: messages sent earlier were not delivered; this one was not sent.
            UnknownTopic, UnknownPartition, BadArgument: this one was not sent.
            NoTransaction: exactly once, and no transaction is open.
        """
        self.raise_failures()
        later = delay_headers(delay, deliver_at, schedule_id)
        made = self._prepare(topic, value, key, partition, timestamp, headers, later)
        self.put_patiently(made, self.failures.on_delivery)

    def send_and_wait(
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
        """Send one message and wait until it is acknowledged.

        Raises:
            DeliveryFailed: it was not acknowledged, and why.
        """
        self.raise_failures()
        outcome: list[Receipt | ClientError] = []
        later = delay_headers(delay, deliver_at, schedule_id)
        made = self._prepare(topic, value, key, partition, timestamp, headers, later)
        self.put_patiently(made, self.telling(outcome.append))
        while not outcome:
            # Bounded by delivery.timeout.ms.
            self.kafka.poll(_POLL_SECONDS)
        if isinstance(outcome[0], ClientError):
            raise outcome[0]
        return outcome[0]

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything sent so far is acknowledged; without a timeout, for at most delivery.timeout.ms.

        Raises:
            DeliveryFailed: a message was not delivered, or the time is up.
        """
        self._check_open()
        self._flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, and close. An open transaction is aborted. Closing twice does nothing.

        Raises:
            DeliveryFailed: a message could not be delivered.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self.transactions is not None:
            self.transactions.close()
        else:
            self._flush(timeout_s)

    def transaction(self) -> Transaction:
        """`with producer.transaction():` commits all messages sent inside at its end, or none of them.

        Raises:
            NoTransaction: this is not an exactly-once producer.
            TransactionAborted: at the end; nothing was committed, and it may be retried.
            Fenced, TransactionUnsure: at the end; this producer cannot be used again.
        """
        return Transaction(self.require_transactions(), self.failures)

    # -- for this package

    def require_transactions(self) -> LibraryTransactions:
        self._check_open()
        if self.transactions is None:
            raise NoTransaction(
                f"this producer is {self.delivery}: transactions need delivery='exactly-once' and a transactional_id"
            )
        return self.transactions

    def raise_failures(self) -> None:
        # In a transaction the commit reports the failure, and nothing is committed.
        if self.transactions is None:
            self.failures.raise_any()

    def telling(self, tell: Any) -> OnDelivery:
        return telling(tell, has_acks=self._has_acks)

    def check_may_send(self) -> None:
        self._check_open()
        if self.transactions is not None and not self.transactions.is_open:
            raise NoTransaction(
                "an exactly-once producer sends inside `with producer.transaction():`,"
                " or in a consumer's `transactions(producer)`"
            )

    def prepare(
        self,
        topic: str,
        value: Data,
        key: Data,
        *,
        partition: int | None,
        timestamp: datetime | int | None,
        headers: Headers,
        later: list[HeaderPair] | None = None,
    ) -> Outgoing:
        return prepare(
            topic,
            value,
            key,
            partition=partition,
            timestamp=timestamp,
            headers=[*as_headers(headers), *later] if later else headers,
            counts=self.counts,
            partitioner=self._partitioner,
        )

    def put(self, made: Outgoing, on_delivery: OnDelivery) -> None:
        """Pass one message to librdkafka, without waiting.

        Raises:
            BufferFull: the buffer is full.
        """
        try:
            self.kafka.produce(
                made.topic,
                made.value,
                made.key,
                made.partition,
                on_delivery=on_delivery,
                timestamp=made.timestamp_ms,
                headers=made.headers,
            )
        except BufferError as error:
            raise BufferFull("the buffer is full") from error
        except KafkaException as error:
            raise self._refused(made, error) from error
        self.sent_count += 1

    def put_patiently(self, made: Outgoing, on_delivery: OnDelivery) -> None:
        """Pass one message to librdkafka; waits while the buffer is full."""
        self._sends += 1
        if self._sends % _SENDS_PER_POLL == 0:
            self.kafka.poll(0)
            self.refresh_counts()
        while True:
            try:
                return self.put(made, on_delivery)
            except BufferFull:
                # Undeliverable messages leave the buffer after delivery.timeout.ms.
                self.kafka.poll(_POLL_SECONDS)

    def refresh_counts(self) -> None:
        if self._partitioner.needs_count:
            self.counts.refresh()

    # -- inside

    def _prepare(  # noqa: PLR0917 - as `send` has them
        self,
        topic: str,
        value: Data,
        key: Data,
        partition: int | None,
        timestamp: datetime | int | None,
        headers: Headers,
        later: list[HeaderPair],
    ) -> Outgoing:
        self.check_may_send()
        if topic not in self.counts:
            self.counts.learn(topic)
        return self.prepare(
            topic,
            value,
            key,
            partition=partition,
            timestamp=timestamp,
            headers=headers,
            later=later,
        )

    def _flush(self, timeout_s: float | None) -> None:
        left = self.kafka.flush(-1 if timeout_s is None else timeout_s)
        self.raise_failures()
        if left:
            raise DeliveryFailed(
                (), left, hint=f"Not within {timeout_s:g} s; they are still being sent."
            )

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the producer was closed: make a new one to send more")

    def _refused(self, made: Outgoing, error: Any) -> ClientError:
        kafka_error = error.args[0]
        if library.is_fencing(kafka_error):
            return library.fenced("a message cannot be sent", error)
        if self.transactions is not None and kafka_error.code() == library.STATE:
            return self.transactions.aborted("a message cannot be sent", error)
        refused = Undelivered(
            topic=made.topic,
            partition=made.partition if made.partition >= 0 else None,
            key=made.key,
            reason=library.reason(error),
        )
        return DeliveryFailed([refused], 1, hint="It was not sent.")


def _check_transactional_id(delivery: str, transactional_id: str | None) -> None:
    if delivery == "exactly-once" and not transactional_id:
        raise BadArgument(
            "delivery='exactly-once' needs transactional_id=: a name for this instance that it has again after"
            " a restart, such as 'fares-1', and that no other running instance has"
        )
    if delivery != "exactly-once" and transactional_id is not None:
        raise BadArgument(
            f"transactional_id={transactional_id!r} is for delivery='exactly-once', not for {delivery!r}"
        )
