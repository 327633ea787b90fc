"""Writes record batches whose producer id, epoch and sequence the caller chose, each exactly once.

    writer.add(place, batch, rows)  -->  PartitionQueue of its producer and partition  -->  Produce, one batch each
    writer.run(...)                 <--  Acknowledged, in the order of each queue      <--  replies

A batch is resent with the same sequence until it has a reply, so the broker recognises it if it was already appended. A
few batches of a queue are in flight at a time, no more than the broker remembers. One thread uses a writer.

A writer with several threads, or one that encodes batches when it sends them, uses `PartitionQueue` directly.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import refused
from respool.client.kafka.connection import Connection
from respool.client.kafka.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ProtocolBroken,
)
from respool.client.kafka.metadata import Place
from respool.client.kafka.partition_queue import (
    FIXED,
    BatchFate,
    PartitionQueue,
    ProducerBatch,
    ProducerIdentity,
    QueueUpdate,
    SequencePolicy,
)
from respool.client.kafka.produce_request import ProduceAnswer, answers_of, produce_body
from respool.client.kafka.retries import BACKOFF
from respool.client.kafka.versions import VersionRange
from respool.records.batch import read_header
from respool.wire.api_table import Api

ALL_IN_SYNC = -1
REQUEST_MS = 30_000


class Acknowledged(NamedTuple):
    """A batch that the partition's leader has appended."""

    place: Place
    # The token passed to `add`.
    token: object
    # The offset of its first record; -1 if the broker reported a duplicate without its offset.
    base_offset: int


class WriteRefused(BrokerRefused):
    """A batch was refused permanently; no later batch of its queue is appended. `token` is the one passed to `add`."""

    token: object = None
    place: Place = ("", -1)


@dataclass(slots=True, eq=False)
class _WriterConnection:
    """A connection and the batches in flight on it, oldest first."""

    connection: Connection
    version: int
    in_flight: deque[tuple["_WriterQueue", ProducerBatch]]
    # When the broker was last known to be alive: its last reply, or the first batch after it.
    alive_at: float = 0.0


@dataclass(slots=True, eq=False)
class _WriterQueue:
    """The queue of one producer in one partition."""

    place: Place
    queue: PartitionQueue
    tokens: dict[int, object]
    # The broker that its batches in flight were sent to: later ones must not overtake them at another broker.
    broker: int = -1


class SequencedWriter:
    """`add` batches, `run` until they are acknowledged, `close`."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        policy: SequencePolicy = FIXED,
        transactional_id: str | None = None,
        versions: VersionRange | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._policy = policy
        self._transactional_id = transactional_id
        self._versions = versions
        self._clock = clock
        self._queues: dict[tuple[Place, int], _WriterQueue] = {}
        self._lines: dict[int, _WriterConnection] = {}
        self._pending = 0
        # Acknowledged, but not yet returned by `run`.
        self._done: list[Acknowledged] = []
        self._stale: set[str] = set()
        # Requests for metadata since the last acknowledged batch, and when the next one is due.
        self._refreshes = 0
        self._refresh_at_ms = 0
        # The last transient error, for a caller that stops waiting.
        self.last_error: Exception | None = None

    @property
    def pending(self) -> int:
        """Batches without a reply."""
        return self._pending

    def add(self, place: Place, data: bytes, *, token: object = None) -> None:
        """Queue an encoded batch. Batches of one producer in one partition must have consecutive sequences."""
        header = read_header(data)
        identity = ProducerIdentity(header.producer_id, header.producer_epoch)
        queued = self._queues.get((place, header.producer_id))
        if queued is None:
            queue = PartitionQueue(
                identity=identity, policy=self._policy, first_sequence=header.base_sequence
            )
            queued = self._queues[place, header.producer_id] = _WriterQueue(place, queue, {})
        rows = header.last_offset_delta + 1
        batch = ProducerBatch(rows=rows, size=len(data), deadline_ms=2**62, data=data)
        queued.queue.add(batch)
        assert batch.stamp == (header.producer_id, header.producer_epoch, header.base_sequence), (
            f"sequence {header.base_sequence} does not follow: {batch.stamp.sequence} is next"
        )
        queued.tokens[id(batch)] = token
        self._pending += 1

    def run(self, *, seconds: float) -> list[Acknowledged]:
        """Send queued batches, and wait up to `seconds` for the first reply. Returns the newly acknowledged batches.

        Transient errors are retried by the next `run`; the last one is in `last_error`.

        Raises:
            WriteRefused: a batch was refused permanently. The writer cannot be used any longer.
            UnknownTopic, ClientClosed, Untrusted, VersionUnsupported
        """
        deadline = self._clock() + seconds
        while self._pending and not self._done:
            self._send()
            left = max(0.0, deadline - self._clock())
            if any(line.in_flight for line in self._lines.values()):
                self._receive(seconds=left)
            else:
                self._cluster.sleep(min(left, self._until_due_s()))
            if self._clock() >= deadline:
                break
        done, self._done = self._done, []
        return done

    def flush(self, *, limit_ms: int) -> list[Acknowledged]:
        """Run until every queued batch is acknowledged.

        Raises:
            BrokerUnreachable, BrokerRefused: some batch was not acknowledged within `limit_ms`.
        """
        done: list[Acknowledged] = []
        deadline = self._clock() + limit_ms / 1000
        while self._pending:
            left = deadline - self._clock()
            if left <= 0:
                raise self.last_error or BrokerUnreachable(f"no reply within {limit_ms} ms")
            done += self.run(seconds=left)
        return done

    def close(self) -> None:
        """Close the connections. It is unknown whether batches without a reply were appended."""
        for line in self._lines.values():
            self._cluster.release(line.connection)
        self._lines.clear()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return round(self._clock() * 1000)

    def _until_due_s(self) -> float:
        due = [at for one in self._queues.values() if (at := one.queue.due_at_ms()) is not None]
        # Without a leader nothing is due: the metadata is requested again after a backoff.
        wait_ms = max(0, min(due, default=0) - self._now_ms())
        return max(wait_ms, BACKOFF.first) / 1000

    def _send(self) -> None:
        self._refresh()
        for queued in self._queues.values():
            while (broker := self._broker_for(queued)) is not None:
                batch = queued.queue.take(self._now_ms())
                if batch is None:
                    break
                queued.broker = broker
                if not self._send_one(broker, queued, batch):
                    break

    def _refresh(self) -> None:
        if not self._stale or self._now_ms() < self._refresh_at_ms:
            return
        self._refreshes += 1
        self._refresh_at_ms = self._now_ms() + round(BACKOFF.delay(self._refreshes))
        for topic in sorted(self._stale):
            try:
                self._cluster.refresh(topic)
            except (BrokerUnreachable, BrokerRefused) as error:
                if isinstance(error, BrokerRefused) and not error.retriable:
                    raise
                self.last_error = error
                return
            self._stale.discard(topic)

    def _broker_for(self, queued: _WriterQueue) -> int | None:
        """None while the partition has no leader, or batches are in flight to another broker."""
        topic, partition = queued.place
        if queued.queue.is_empty:
            return None
        try:
            leader = self._cluster.topic(topic).leader_of(partition)
        except BrokerUnreachable as error:
            self.last_error = error
            return None
        if leader is None:
            self.last_error = BrokerUnreachable(f"{topic}/{partition} has no leader")
            self._stale.add(topic)
            return None
        return leader.broker if queued.queue.is_quiet or queued.broker == leader.broker else None

    def _send_one(self, broker: int, queued: _WriterQueue, batch: ProducerBatch) -> bool:
        assert isinstance(batch.data, bytes)
        topic, partition = queued.place
        try:
            line = self._line(broker)
        except BrokerUnreachable as error:
            self._on_unsent(queued, batch, error)
            return False
        parts = produce_body(
            {topic: [(partition, batch.data)]},
            acks=ALL_IN_SYNC,
            timeout_ms=REQUEST_MS,
            transactional_id=self._transactional_id,
        )
        if not line.in_flight:
            line.alive_at = self._clock()
        line.in_flight.append((queued, batch))
        try:
            line.connection.send_parts(Api.PRODUCE, line.version, parts)
        except BrokerUnreachable as error:
            self._lose(broker, error)
            return False
        return True

    def _line(self, broker: int) -> _WriterConnection:
        line = self._lines.get(broker)
        if line is not None and (line.in_flight or line.connection.is_fresh):
            return line
        if line is not None:
            self._cluster.release(self._lines.pop(broker).connection)
        connection = self._cluster.connect(broker)
        try:
            version = connection.version(Api.PRODUCE, self._versions)
        except BaseException:
            self._cluster.release(connection)
            raise
        line = self._lines[broker] = _WriterConnection(connection, version, deque())
        return line

    def _receive(self, *, seconds: float) -> None:
        """Process available replies; waits for the oldest, since others may arrive only after it."""
        for broker, line in list(self._lines.items()):
            try:
                while line.in_flight and self._has_reply(line, 0.0 if self._done else seconds):
                    line.alive_at = self._clock()
                    answers = answers_of(line.connection.receive_reply())
                    queued, batch = line.in_flight[0]
                    if [(one.topic, one.partition) for one in answers] != [queued.place]:
                        raise ProtocolBroken(f"broker {broker} answered for {answers}")
                    line.in_flight.popleft()
                    self._on_answer(queued, batch, answers[0])
            except BrokerUnreachable as error:
                self._lose(broker, error)

    def _has_reply(self, line: _WriterConnection, seconds: float) -> bool:
        """Wait for a reply.

        Raises:
            BrokerUnreachable: none came within the request timeout. A broker that hangs keeps its connections open.
        """
        timeout_s = self._cluster.request_timeout_ms / 1000
        left = line.alive_at + timeout_s - self._clock()
        if line.connection.has_reply(max(0.0, min(seconds, left))):
            return True
        if self._clock() >= line.alive_at + timeout_s:
            raise BrokerUnreachable(f"no reply within {timeout_s:g} s")
        return False

    def _on_answer(self, queued: _WriterQueue, batch: ProducerBatch, answer: ProduceAnswer) -> None:
        if not answer.code:
            self.last_error = None
            self._refreshes = 0
            self._take(queued, queued.queue.on_appended(batch, answer.base_offset))
            return
        topic, partition = queued.place
        # The broker's own message, without the leading code name.
        said = answer.message.partition(": ")[2]
        self.last_error = refused(f"writing {topic}/{partition}", answer.code, said)
        update = queued.queue.on_refused(
            batch, answer.code, said, retry_at_ms=self._retry_at_ms(batch)
        )
        self._take(queued, update)

    def _lose(self, broker: int, error: Exception) -> None:
        """Handle a lost connection: its batches may or may not be appended, and are sent again."""
        line = self._lines.pop(broker)
        self._cluster.release(line.connection)
        self.last_error = error
        for queued, batch in line.in_flight:
            self._take(queued, queued.queue.on_lost(batch, retry_at_ms=self._retry_at_ms(batch)))

    def _on_unsent(self, queued: _WriterQueue, batch: ProducerBatch, error: Exception) -> None:
        self.last_error = error
        self._take(queued, queued.queue.on_unsent(batch, retry_at_ms=self._retry_at_ms(batch)))

    def _retry_at_ms(self, batch: ProducerBatch) -> int:
        return self._now_ms() + round(BACKOFF.delay(max(batch.attempts, 1)))

    def _take(self, queued: _WriterQueue, update: QueueUpdate) -> None:
        if update.wants_metadata:
            self._stale.add(queued.place[0])
        failed: list[object] = []
        for batch in update.done:
            token = queued.tokens.pop(id(batch))
            self._pending -= 1
            if batch.fate is BatchFate.IN:
                self._done.append(Acknowledged(queued.place, token, batch.base_offset))
            else:
                failed.append(token)
        if failed:
            failure = queued.queue.failure
            assert failure is not None
            raise _refusal(queued.place, failed[0], failure.code, failure.message)


def _refusal(place: Place, token: object, code: int, message: str) -> WriteRefused:
    known = refused(f"writing {place[0]}/{place[1]}", code, message)
    made = WriteRefused(
        f"writing {place[0]}/{place[1]}", code, known.name, retriable=False, message=message
    )
    made.token, made.place = token, place
    return made
