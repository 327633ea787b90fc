"""Delivers batches to all brokers: the queues, the bounded buffer memory, and the partitions' current leaders.

Several threads share its state under one lock (`changed`), which is held only briefly:

- the caller's thread adds batches (`submit`), and waits for buffer space (`reserve`) or completion
  (`wait_until_complete`);
- one sender per broker takes batches that may be sent and reports their outcome (`sender.py`);
- the maintenance thread refreshes metadata after a leader change, and fails expired batches (`maintenance.py`).
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Condition
from typing import Protocol, TypeAlias

from respool.client.arrow.errors import BufferFull
from respool.client.arrow.write_result import Tally, WriteResult
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code
from respool.client.kafka.errors import ClientClosed
from respool.client.kafka.metadata import TopicMetadata
from respool.client.kafka.partition_queue import (
    IDEMPOTENT,
    TRANSACTIONAL,
    PartitionQueue,
    ProducerBatch,
    ProducerIdentity,
    QueueFailure,
    QueueUpdate,
)
from respool.client.kafka.produce_request import ProduceAnswer
from respool.client.kafka.retries import retry_at_ms
from respool.client.kafka.versions import VERSIONS, VersionRange
from respool.wire.api_table import Api

Place: TypeAlias = tuple[str, int]

ACKS_ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    acks: int = ACKS_ALL
    in_flight_max: int = 5
    # How long a broker may take to replicate a batch, and how long a batch is retried in total.
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    buffer_bytes: int = 64 * 1024 * 1024
    # The size limit of one request; a request has at least one batch.
    request_bytes_max: int = 8 * 1024 * 1024
    requests_in_flight_max: int = 32
    transactional_id: str | None = None
    produce_versions: VersionRange = VERSIONS[Api.PRODUCE]


class Sender(Protocol):
    """Sends the batches of one broker: `BrokerSender`."""

    def start(self) -> None: ...

    def interrupt(self) -> None: ...

    def join(self) -> None: ...


class Maintenance(Protocol):
    """Refreshes metadata and expires batches: `MaintenanceThread`."""

    def start(self) -> None: ...

    def join(self) -> None: ...


class Delivery:
    def __init__(
        self,
        cluster: Cluster,
        settings: DeliverySettings,
        *,
        new_sender: "Callable[[Delivery, int], Sender]",
        new_maintenance: "Callable[[Delivery], Maintenance]",
    ) -> None:
        self.cluster = cluster
        self.settings = settings
        self.changed = Condition()
        # The producer id and epoch; None without idempotence. Set before the first batch.
        self.identity: ProducerIdentity | None = None
        self.queues: dict[Place, PartitionQueue] = {}
        # The queues that are not empty.
        self.active: dict[Place, PartitionQueue] = {}
        self.leaders: dict[Place, int | None] = {}
        # The broker to which a partition's batches in flight were sent.
        self._sent_to: dict[Place, int] = {}
        # Topics whose metadata must be refreshed.
        self.stale: set[str] = set()
        self.tally = Tally()
        self.is_stopping = False
        # The last error of each failing partition, for the final error message.
        self._last_words: dict[Place, str] = {}
        self._new_sender = new_sender
        self._new_maintenance = new_maintenance
        self._senders: dict[int, Sender] = {}
        self._maintenance: Maintenance | None = None
        self._buffered = 0

    # For the caller's thread.

    def submit(self, place: Place, batch: ProducerBatch) -> bool:
        """Queue a batch for sending; False if its partition has failed, and the batch is counted as not written."""
        with self.changed:
            self._check_running()
            queue = self.queue_of(place)
            if queue.failure is not None:
                self._release(batch)
                self.tally.add(place, batch)
                return False
            queue.add(batch)
            self.active[place] = queue
            if self._maintenance is None:
                self._maintenance = self._new_maintenance(self)
                self._maintenance.start()
            self.changed.notify_all()
        return True

    def queue_of(self, place: Place) -> PartitionQueue:
        """The partition's queue, created if needed. The lock must be held."""
        queue = self.queues.get(place)
        if queue is None:
            queue = self.queues[place] = PartitionQueue(
                identity=self.identity,
                in_flight_max=self.settings.in_flight_max,
                policy=IDEMPOTENT if self.settings.transactional_id is None else TRANSACTIONAL,
            )
        return queue

    def reserve(self, size: int) -> None:
        """Wait until there is room for that many bytes. A single batch always has room, however large.

        Raises:
            BufferFull: no space became free within the delivery timeout.
        """
        limit = self.settings.buffer_bytes
        deadline = time.monotonic() + self.settings.delivery_timeout_ms / 1000
        with self.changed:
            while self._buffered and self._buffered + size > limit:
                self._check_running()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise BufferFull(
                        f"no room for {size} bytes within {self.settings.delivery_timeout_ms} ms: "
                        f"{self._buffered} of {limit} bytes wait for brokers"
                    )
                self.changed.wait(left)
            self._buffered += size

    def free(self, size: int) -> None:
        """Release reserved bytes that are not needed."""
        with self.changed:
            self._buffered -= size
            self.changed.notify_all()

    @property
    def has_failed(self) -> bool:
        return any(queue.failure is not None for queue in self.queues.values())

    @property
    def buffered_bytes(self) -> int:
        return self._buffered

    def wait_until_complete(self) -> None:
        """Wait until every batch is acknowledged or has failed, which the delivery timeout guarantees."""
        with self.changed:
            while self.active:
                self._check_running()
                self.changed.wait()

    def take_result(self) -> tuple[WriteResult, dict[Place, QueueFailure]]:
        """The outcome of all batches since the last call; clears failures."""
        with self.changed:
            assert not self.active
            failures = {
                place: queue.failure
                for place, queue in self.queues.items()
                if queue.failure is not None
            }
            for place in failures:
                self.queues[place].clear()
            self._last_words.clear()
            result = self.tally.result(failures)
            self.tally = Tally()
        return result, failures

    def fail_queued(self, failure: QueueFailure) -> None:
        """Fail all batches that are not in flight."""
        with self.changed:
            for place in list(self.active):
                self._react(place, self.queues[place].fail(failure))

    def resume_as(self, identity: ProducerIdentity) -> None:
        """Continue with another producer id or epoch; nothing may be in flight."""
        with self.changed:
            assert not self.active
            self.identity = identity
            self.queues.clear()

    def stop(self) -> None:
        """Stop all threads, without waiting for batches in flight."""
        with self.changed:
            self.is_stopping = True
            senders = list(self._senders.values())
            self.changed.notify_all()
        for sender in senders:
            sender.interrupt()
        for sender in senders:
            sender.join()
        if self._maintenance is not None:
            self._maintenance.join()

    # For the senders; the lock must be held.

    def take_for(self, broker: int, now_ms: int) -> list[tuple[Place, ProducerBatch]]:
        """The batches to send to this broker now: one per partition, up to the size limit of a request."""
        load: list[tuple[Place, ProducerBatch]] = []
        size = 0
        for place, queue in self._queues_for(broker):
            if size >= self.settings.request_bytes_max:
                break
            batch = queue.take(now_ms)
            if batch is None:
                continue
            self._sent_to[place] = broker
            load.append((place, batch))
            size += batch.size
            # Rotate, so that other partitions come first next time.
            self.active[place] = self.active.pop(place)
        return load

    def next_due_ms(self, broker: int) -> int | None:
        due = [queue.due_at_ms() for _, queue in self._queues_for(broker)]
        return min((one for one in due if one is not None), default=None)

    def on_answer(self, place: Place, batch: ProducerBatch, answer: ProduceAnswer) -> None:
        queue = self.queues[place]
        if not answer.code:
            self._react(place, queue.on_appended(batch, answer.base_offset))
            return
        message = (
            answer.message
            if answer.row is None
            else f"{answer.message} (row {answer.row} of a batch)"
        )
        self._last_words[place] = message
        self._react(
            place,
            queue.on_refused(batch, answer.code, message, retry_at_ms=retry_at_ms(batch.attempts)),
        )

    def on_sent_unacknowledged(self, place: Place, batch: ProducerBatch) -> None:
        """With acks=0 there is no reply, so a sent batch counts as appended."""
        self._react(place, self.queues[place].on_appended(batch, -1))

    def on_lost(
        self, load: Iterable[tuple[Place, ProducerBatch]], why: str, *, was_sent: bool
    ) -> None:
        for place, batch in load:
            queue = self.queues[place]
            self._last_words[place] = why
            at_ms = retry_at_ms(batch.attempts)
            told = queue.on_lost if was_sent else queue.on_unsent
            self._react(place, told(batch, retry_at_ms=at_ms))

    def on_impossible(
        self, load: Iterable[tuple[Place, ProducerBatch]], failure: QueueFailure
    ) -> None:
        """Fail batches that can never be sent."""
        for place, batch in load:
            queue = self.queues[place]
            self._react(place, queue.on_unsent(batch, retry_at_ms=0))
            self._react(place, queue.fail(failure))

    # For the maintenance thread; the lock must be held.

    def expire(self, now_ms: int) -> None:
        limit = self.settings.delivery_timeout_ms
        for place in list(self.active):
            words = self._last_words.get(place, "no broker took it")
            failure = QueueFailure(
                Code.request_timed_out, f"not acknowledged within {limit} ms; at last: {words}"
            )
            self._react(place, self.queues[place].expire(now_ms, failure))

    def on_metadata(self, topic: TopicMetadata) -> None:
        self.stale.discard(topic.name)
        for partition, leader in topic.leaders.items():
            broker = None if leader is None else leader.broker
            self.leaders[topic.name, partition] = broker
            if broker is not None and broker not in self._senders and not self.is_stopping:
                sender = self._senders[broker] = self._new_sender(self, broker)
                sender.start()
            if broker is None:
                self._last_words.setdefault((topic.name, partition), "the partition has no leader")
                self.stale.add(topic.name)
        self.changed.notify_all()

    def on_no_metadata(self, topic: str, why: str) -> None:
        for place in self.active:
            if place[0] == topic:
                self._last_words[place] = why

    def crash(self, error: BaseException) -> None:
        """Handle an unexpected error in one of the threads: waiting callers must not wait forever."""
        with self.changed:
            self._crash = error
            self.is_stopping = True
            self.changed.notify_all()

    # Inside.

    _crash: BaseException | None = None

    def _queues_for(self, broker: int) -> list[tuple[Place, PartitionQueue]]:
        """The queues whose batches may be sent to this broker now."""
        return [
            (place, queue)
            for place, queue in self.active.items()
            if self.leaders.get(place) == broker and self._may_go_to(broker, place, queue)
        ]

    def _may_go_to(self, broker: int, place: Place, queue: PartitionQueue) -> bool:
        # (1) A new leader without state for this producer accepts any sequence. (2) So if a later batch were sent to it
        # while earlier ones await replies from the old leader, and (3) those were refused there, they would be appended
        # after it.
        return queue.is_quiet or queue.identity is None or self._sent_to.get(place) == broker

    def _react(self, place: Place, update: QueueUpdate) -> None:
        for batch in update.done:
            self._release(batch)
            self.tally.add(place, batch)
        if self.queues[place].is_empty:
            self.active.pop(place, None)
        if update.wants_metadata:
            self.stale.add(place[0])
        self.changed.notify_all()

    def _release(self, batch: ProducerBatch) -> None:
        self._buffered -= batch.size
        batch.data = None

    def _check_running(self) -> None:
        if self._crash is not None:
            raise RuntimeError(
                "a thread of the producer ended by a mistake of ours"
            ) from self._crash
        if self.is_stopping:
            raise ClientClosed("the producer is closed")
