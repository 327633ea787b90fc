"""Sends messages that failed to the retry topic and the dead letters, at least once: `RetrySender`.

It does not wait for each acknowledgement. The group's commits wait for them instead (`unconfirmed.py`), so thousands of
failures a second cost no round trip each. Safe to use from several threads.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from respool.client.kafka.errors import BufferFull
from respool.client.messages import library
from respool.client.messages.errors import ClientError
from respool.client.messages.library import KafkaException
from respool.client.messages.message import Message, Place
from respool.client.messages.outgoing import Outgoing
from respool.client.messages.producer import Producer
from respool.client.messages.retry.failed_message import Bury, SendAgain
from respool.client.messages.retry.failure_decisions import Retries
from respool.client.messages.retry.retry_topics import RetryTopics
from respool.client.messages.retry.unconfirmed import RefusedRetry, Unconfirmed

_POLL_SECONDS = 0.1


class RetryCounts:
    """How many messages were sent again, and how many were buried: acknowledged, not merely sent."""

    def __init__(self) -> None:
        self.retried = 0
        self.buried = 0

    def add(self, sent: SendAgain | Bury) -> None:
        if isinstance(sent, SendAgain):
            self.retried += 1
        else:
            self.buried += 1


def outgoing(sent: SendAgain | Bury, rules: Retries, partitions: Mapping[str, int]) -> Outgoing:
    topic = rules.retry_topic if isinstance(sent, SendAgain) else rules.dead_letter_topic
    return Outgoing(
        topic,
        sent.value,
        sent.key,
        sent.source_partition % partitions[topic],
        0,
        list(sent.headers_to_send()),
    )


class RetrySender:
    def __init__(
        self, rules: Retries, topics: RetryTopics, make_producer: Callable[[], Producer]
    ) -> None:
        """`make_producer` is called with the first failure: most consumers never need it."""
        self.counts = RetryCounts()
        self._rules = rules
        self._partitions = topics.partitions
        self._make_producer = make_producer
        self._producer: Producer | None = None
        # Reentrant: an answer that comes in `put` is handled in the same thread.
        self._lock = threading.RLock()
        self._unconfirmed = Unconfirmed()

    def send(self, message: Message, sent: SendAgain | Bury, *, can_wait: bool = True) -> None:
        """Send it, waiting only while the buffer is full. Refused messages are found by `take_refused`.

        Raises:
            BufferFull: the buffer is full, and this call cannot wait.
        """
        producer = self._started()
        # Before it is sent: its answer may come at once, in another thread.
        with self._lock:
            self._unconfirmed.on_sent(message.place, message.offset)
        while True:
            try:
                return self._put(producer, message, sent)
            except BufferFull:
                if not can_wait:
                    with self._lock:
                        self._unconfirmed.on_not_sent(message.place, message.offset)
                    raise
                # What cannot be delivered leaves the buffer after delivery.timeout.ms.
                producer.kafka.poll(_POLL_SECONDS)
            except ClientError as error:
                return self._on_refused(message, str(error))

    def serve(self) -> None:
        """Handle the answers that have arrived."""
        if self._producer is not None:
            self._producer.kafka.poll(0)

    def wait(self, timeout_s: float) -> None:
        """Wait until everything sent is acknowledged or refused."""
        producer, until = self._producer, time.monotonic() + timeout_s
        while producer is not None and self._is_waiting and time.monotonic() < until:
            producer.kafka.flush(min(_POLL_SECONDS, timeout_s))

    def limited(self, offsets: Mapping[Place, int]) -> dict[Place, int]:
        """The offsets that may be committed."""
        with self._lock:
            return self._unconfirmed.limited(offsets)

    @property
    def has_refused(self) -> bool:
        return self._unconfirmed.has_refused

    def take_refused(self) -> list[RefusedRetry]:
        """The first message of each partition that was not written; it is the caller's to read again."""
        if not self.has_refused:
            return []
        with self._lock:
            return self._unconfirmed.take_refused()

    def forget(self, places: Iterable[Place]) -> None:
        with self._lock:
            self._unconfirmed.forget(places)

    @property
    def _is_waiting(self) -> bool:
        with self._lock:
            return self._unconfirmed.is_waiting

    def _started(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = self._make_producer()
            return self._producer

    def _put(self, producer: Producer, message: Message, sent: SendAgain | Bury) -> None:
        producer.put(
            outgoing(sent, self._rules, self._partitions),
            lambda error, _: self._on_answer(producer, message, sent, error),
        )

    def _on_answer(
        self, producer: Producer, message: Message, sent: SendAgain | Bury, error: Any
    ) -> None:
        if error is None:
            with self._lock:
                self._unconfirmed.on_acknowledged(message.place, message.offset)
                self.counts.add(sent)
            return
        reason = library.reason(KafkaException(error))
        if error.code() in library.TOO_LARGE:
            smaller = self._rules.bury_too_large(sent)
            if isinstance(smaller, Bury):
                try:
                    self._put(producer, message, smaller)
                except ClientError as also:
                    reason = str(also)
                else:
                    return
        self._on_refused(message, reason)

    def _on_refused(self, message: Message, reason: str) -> None:
        library.log.warning(
            "%s/%d offset %d failed, and its retry was not written: %s",
            message.topic,
            message.partition,
            message.offset,
            reason,
        )
        with self._lock:
            self._unconfirmed.on_refused(message.place, message.offset, reason)
