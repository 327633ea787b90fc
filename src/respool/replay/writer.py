"""Writes batches with the producer ids and sequence numbers of the replay, each exactly once, in order.

A client library's producer chooses its own id with every process. A replay continues the sequence of the run before, so
that the broker compares with what that run wrote. At most five batches of a producer are in flight, since a broker
recognises duplicates of the last five.

After a transient error all batches without an answer are sent again, in order, on new connections.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code, ProduceOutcome, code_name, produce_outcome
from respool.client.kafka.connection import Connection
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable
from respool.client.kafka.producer_ids import new_producer_id
from respool.records.batch import SEQUENCE_MAX, Codec
from respool.records.build import build_batch
from respool.replay.batches import CopyBatch
from respool.replay.errors import PositionLost, ReplayFailed, ReplayUnreachable
from respool.replay.plan import CopyPlan, ProducerId
from respool.replay.record_reader import ignore_note
from respool.wire.api_table import Api

ALL_IN_SYNC = -1
REQUEST_MS = 30_000
IN_FLIGHT_MAX = 5
# The target may be unavailable for this long before the replay fails; it can be resumed later.
AWAY_SECONDS_MAX = 60.0
BACKOFF_SECONDS = 0.2

_UNEXPECTED_SEQUENCE = {
    ProduceOutcome.SEQUENCE_GAP,
    ProduceOutcome.DUPLICATE,
    ProduceOutcome.PRODUCER_UNKNOWN,
}
_RETRIABLE = {
    ProduceOutcome.RETRY,
    ProduceOutcome.RETRY_MAY_BE_IN,
    ProduceOutcome.LEADER_MOVED,
}


class TransientError(Exception):
    """A retriable failure; the message names it."""


class Acknowledged(NamedTuple):
    batch: CopyBatch
    # Of its first record, in the target partition.
    offset: int


class ReplayWriter:
    """`add` batches, `run` until they are acknowledged, `close`."""

    def __init__(
        self,
        cluster: Cluster,
        plan: CopyPlan,
        *,
        codec: Codec = Codec.NONE,
        on_note: Callable[[str], None] = ignore_note,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._plan = plan
        self._codec = codec
        self._on_note = on_note
        self._clock = clock
        self._sleep = sleep
        # Target partition -> the broker that leads it.
        self._leaders: dict[int, int] = {}
        self._connections: dict[int, Connection] = {}
        # Without an answer, in order, with their requests: the first `_sent` are in flight, by broker.
        self._unanswered: deque[tuple[CopyBatch, Mapping[str, Any]]] = deque()
        self._in_flight: dict[int, deque[CopyBatch]] = {}
        self._sent = 0
        # Pairs of source and target partition whose producer the broker knows: it accepted a batch since we connected.
        self._known: set[tuple[int, int]] = set()
        # When the target last acknowledged a batch, or there was none to acknowledge.
        self._acknowledged_at = clock()
        self._is_failing = False

    @property
    def unacknowledged(self) -> list[CopyBatch]:
        return [batch for batch, _ in self._unanswered]

    @property
    def is_full(self) -> bool:
        """True while further batches would only queue up."""
        return len(self._unanswered) >= 2 * IN_FLIGHT_MAX

    def add(self, batch: CopyBatch) -> None:
        self._unanswered.append((batch, self._request(batch)))

    def run(self, *, seconds: float) -> list[Acknowledged]:
        """Send what may be sent, and wait up to `seconds` for answers. Returns the batches that were acknowledged.

        Raises:
            PositionLost: another run of this replay has written. This writer cannot be used any longer.
            ReplayUnreachable: the target was unavailable for too long.
            ReplayFailed: a batch was rejected with an error that is not retriable.
        """
        done: list[Acknowledged] = []
        if not self._unanswered:
            self._acknowledged_at = self._clock()
            return done
        try:
            self._send()
            self._receive(done, seconds=seconds)
        except (TransientError, BrokerUnreachable) as error:
            self._recover(error)
        except BrokerRefused as error:
            if not error.retriable:
                raise
            self._recover(error)
        if done:
            self._acknowledged_at = self._clock()
            self._is_failing = False
        elif self._clock() - self._acknowledged_at > AWAY_SECONDS_MAX:
            raise ReplayUnreachable(
                f"{self._plan.into} has acknowledged nothing for {AWAY_SECONDS_MAX:.0f} seconds"
            )
        return done

    def close(self) -> None:
        for connection in self._connections.values():
            self._cluster.release(connection)
        self._connections.clear()
        self._in_flight.clear()
        self._known.clear()
        self._sent = 0

    def _send(self) -> None:
        while self._sent < min(len(self._unanswered), IN_FLIGHT_MAX):
            batch, request = self._unanswered[self._sent]
            if not self._may_send(batch):
                return
            broker = self._leader_of(batch.target)
            connection = self._connections.get(broker)
            if connection is None:
                connection = self._connections[broker] = self._cluster.connect(broker)
            connection.send(Api.PRODUCE, connection.version(Api.PRODUCE), request)
            self._in_flight.setdefault(broker, deque()).append(batch)
            self._sent += 1

    def _may_send(self, batch: CopyBatch) -> bool:
        """A broker accepts any sequence number from a producer it does not know. So the first batch goes alone.

        1. Batch 0 of a producer is rejected for a transient reason, such as a full disk.
        2. Batch 1, in flight behind it, is accepted: the broker has nothing to compare with.
        3. Batch 0 is out of order for ever, and its messages are missing.
        """
        pair = batch.source, batch.target
        in_flight = {
            (each.source, each.target) for batches in self._in_flight.values() for each in batches
        }
        return pair in self._known or pair not in in_flight

    def _receive(self, done: list[Acknowledged], *, seconds: float) -> None:
        """Take the answers that are there. Waits for the oldest, since others may come only after it."""
        for broker in [broker for broker, batches in self._in_flight.items() if batches]:
            batches, connection = self._in_flight[broker], self._connections[broker]
            while batches and connection.has_reply(seconds if not done else 0.0):
                reply = connection.receive_reply()
                done.append(self._on_reply(batches.popleft(), reply))

    def _on_reply(self, batch: CopyBatch, reply: Any) -> Acknowledged:
        (answer,) = reply.responses[0].partition_responses
        code = int(answer.error_code)
        if code:
            raise self._rejected(batch, code)
        self._remove(batch)
        self._known.add((batch.source, batch.target))
        return Acknowledged(batch, int(answer.base_offset))

    def _rejected(self, batch: CopyBatch, code: int) -> Exception:
        plan, outcome = self._plan, produce_outcome(code)
        where, error = f"{plan.into}/{batch.target}", f"{code_name(code)} ({code})"
        if outcome in _UNEXPECTED_SEQUENCE or code == Code.invalid_producer_epoch:
            return PositionLost(f"{where} does not expect number {batch.first_number}: {error}")
        if outcome in _RETRIABLE:
            return TransientError(f"{where} cannot be written to now: {error}")
        messages = (
            f"{plan.topic}/{batch.source}, offsets {batch.first_offset} to {batch.last_offset}"
        )
        if code == Code.message_too_large:
            return ReplayFailed(
                f"{plan.into} rejected messages as too large: {messages}",
                hint=f"raise its limit: respool topic alter {plan.into} --set max.message.bytes=…; then start again",
            )
        return ReplayFailed(f"{plan.into} rejected messages with {error}: {messages}")

    def _remove(self, batch: CopyBatch) -> None:
        for at, (waiting, _) in enumerate(self._unanswered):
            if waiting is batch:
                del self._unanswered[at]
                self._sent -= 1
                return
        raise AssertionError("an answer to a batch that was not sent")

    def _recover(self, error: Exception) -> None:
        if not self._is_failing:
            self._on_note(f"{error}; trying again")
        self._is_failing = True
        self.close()
        self._leaders.clear()
        self._sleep(BACKOFF_SECONDS)

    def _leader_of(self, target: int) -> int:
        if not self._leaders:
            seen = self._cluster.refresh(self._plan.into)
            self._leaders = {
                number: leader.broker
                for number, leader in seen.leaders.items()
                if leader is not None
            }
        if target not in self._leaders:
            self._leaders.clear()
            raise TransientError(f"{self._plan.into}/{target} has no leader")
        return self._leaders[target]

    def _request(self, batch: CopyBatch) -> Mapping[str, Any]:
        producer = self._plan.producers[batch.source]
        records = build_batch(
            batch.records,
            codec=self._codec,
            producer_id=producer.number,
            producer_epoch=producer.epoch,
            base_sequence=batch.first_number & SEQUENCE_MAX,
        )
        return {
            "transactional_id": None,
            "acks": ALL_IN_SYNC,
            "timeout": REQUEST_MS,
            "topic_data": [
                {
                    "name": self._plan.into,
                    "partition_data": [{"index": batch.target, "records": records}],
                }
            ],
        }


def new_producer_ids(cluster: Cluster, count: int) -> list[ProducerId]:
    """Producer ids that no other producer has."""
    return [ProducerId(*cluster.retrying(lambda: new_producer_id(cluster))) for _ in range(count)]
