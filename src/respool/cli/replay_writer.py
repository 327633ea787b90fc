"""Writes batches with producer ids and numbers of our own choosing, each exactly once, in order.

Client libraries choose them themselves and begin anew with every process; a replay must go on with those of the run
before, so that the broker compares with what that run wrote. A few batches are under way at a time: fewer than a
broker remembers of a producer, so that it recognises each of them when it comes again.

When something breaks, all that has no answer is sent again, in order, on new connections.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from respool.cli import output
from respool.cli.broker_socket import BrokerSocket, Question
from respool.cli.errors import BrokerUnreachable
from respool.cli.kafka import Cluster
from respool.cli.replay_batches import Batch
from respool.cli.replay_plan import CopyPlan, ProducerId
from respool.model.errors import (
    InvalidProducerEpoch,
    LeaderNotAvailable,
    MessageTooLarge,
    NotEnoughReplicas,
    NotLeader,
    OutOfOrderSequence,
    RequestTimedOut,
    StorageFailed,
    UnknownTopicOrPartition,
)
from respool.model.operator_errors import OperatorError
from respool.records.batch import SEQUENCE_MAX, Codec
from respool.records.build import build_batch

PRODUCE, PRODUCE_VERSION = 0, 9
INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION = 22, 4
ALL_IN_SYNC = -1
REQUEST_MS = 30_000
# A broker remembers five batches of each producer in a partition.
IN_FLIGHT_MAX = 5
# How long the target may be away before the replay gives up; it can be gone on with later.
AWAY_SECONDS_MAX = 60.0
PAUSE_SECONDS = 0.2

DUPLICATE_SEQUENCE, UNKNOWN_PRODUCER_ID = 46, 59
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
_NOT_EXPECTED = {
    OutOfOrderSequence.code,
    InvalidProducerEpoch.code,
    DUPLICATE_SEQUENCE,
    UNKNOWN_PRODUCER_ID,
}
_PASSING = {
    UnknownTopicOrPartition.code,
    LeaderNotAvailable.code,
    NotLeader.code,
    RequestTimedOut.code,
    StorageFailed.code,
    NotEnoughReplicas.code,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}


class PositionLost(Exception):
    """The target expects another number next: somebody else wrote for this replay. Read its end again."""


class Trouble(Exception):
    """Something that passes; the text says what."""


class Acknowledged(NamedTuple):
    batch: Batch
    # Of its first record, in the target partition.
    offset: int


class ReplayWriter:
    """Writes a replay's batches."""

    def __init__(
        self,
        cluster: Cluster,
        plan: CopyPlan,
        *,
        codec: Codec = Codec.NONE,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._plan = plan
        self._codec = codec
        self._clock = clock
        self._pause = pause
        # Which broker leads which partition of the target, and where it is.
        self._leaders: dict[int, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int], BrokerSocket] = {}
        # Not answered yet, in order, with their requests: those under way first, by connection, then the rest.
        self._unanswered: deque[tuple[Batch, Question]] = deque()
        self._under_way: dict[tuple[str, int], deque[Batch]] = {}
        self._sent = 0
        # Source and target partitions of which the broker surely remembers the producer: it has taken a batch since
        # we connected.
        self._proven: set[tuple[int, int]] = set()
        # When the target last took something, or had nothing to take.
        self._heard_at = clock()
        self._has_trouble = False

    @property
    def unacknowledged(self) -> list[Batch]:
        return [batch for batch, _ in self._unanswered]

    @property
    def is_full(self) -> bool:
        """Whether more would only pile up."""
        return len(self._unanswered) >= 2 * IN_FLIGHT_MAX

    def add(self, batch: Batch) -> None:
        self._unanswered.append((batch, self._question(batch)))

    def run(self, *, seconds: float) -> list[Acknowledged]:
        """Send what may be sent; wait for answers that long at most. Returns what is in the target now.

        Raises:
            PositionLost: see there. Nothing more can be written with this writer.
            BrokerUnreachable: the target was away for too long.
            OperatorError: a batch was refused for good.
        """
        done: list[Acknowledged] = []
        if not self._unanswered:
            self._heard_at = self._clock()
            return done
        try:
            self._send()
            self._receive(done, seconds=seconds)
        except (Trouble, BrokerUnreachable) as trouble:
            self._recover(trouble)
        if done:
            self._heard_at = self._clock()
            self._has_trouble = False
        elif self._clock() - self._heard_at > AWAY_SECONDS_MAX:
            raise BrokerUnreachable(
                f"{self._plan.into} has taken nothing for {AWAY_SECONDS_MAX:.0f} seconds"
            )
        return done

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._under_way.clear()
        self._proven.clear()
        self._sent = 0

    # Inside.

    def _send(self) -> None:
        while self._sent < min(len(self._unanswered), IN_FLIGHT_MAX):
            batch, question = self._unanswered[self._sent]
            if not self._may_follow(batch):
                return
            address = self._leader_of(batch.target)
            connection = self._connections.get(address)
            if connection is None:
                connection = self._connections[address] = BrokerSocket(*address)
            connection.send(question)
            self._under_way.setdefault(address, deque()).append(batch)
            self._sent += 1

    def _may_follow(self, batch: Batch) -> bool:
        """A broker takes any number from a producer it does not know. So the first batch goes alone.

        1. Batch 0 of a producer is refused for a passing reason, such as a full disk.
        2. Batch 1, under way behind it, is taken: the broker has nothing to compare with.
        3. Batch 0 is out of order for ever, and its messages are missing.
        """
        pair = batch.source, batch.target
        under_way = {
            (each.source, each.target) for batches in self._under_way.values() for each in batches
        }
        return pair in self._proven or pair not in under_way

    def _receive(self, done: list[Acknowledged], *, seconds: float) -> None:
        """Take the answers that are there. The oldest is waited for, since others may come only after it."""
        waiting = [address for address, batches in self._under_way.items() if batches]
        for address in waiting:
            batches, connection = self._under_way[address], self._connections[address]
            while batches and connection.can_receive(seconds if not done else 0.0):
                reply = connection.receive()
                done.append(self._judge(batches.popleft(), reply))

    def _judge(self, batch: Batch, reply: Any) -> Acknowledged:
        (answer,) = reply.responses[0].partition_responses
        code = int(answer.error_code)
        where = f"{self._plan.into}/{batch.target}"
        if code in _NOT_EXPECTED:
            raise PositionLost(f"{where} does not expect number {batch.first_number} (code {code})")
        if code in _PASSING:
            raise Trouble(f"{where} cannot be written to now (error code {code})")
        if code:
            raise _refused(batch, code, self._plan)
        self._forget(batch)
        self._proven.add((batch.source, batch.target))
        return Acknowledged(batch, int(answer.base_offset))

    def _forget(self, batch: Batch) -> None:
        for at, (waiting, _) in enumerate(self._unanswered):
            if waiting is batch:
                del self._unanswered[at]
                self._sent -= 1
                return
        raise AssertionError("an answer to a batch that was not sent")

    def _recover(self, trouble: Exception) -> None:
        if not self._has_trouble:
            output.note(f"{trouble}; trying again", style="yellow")
        self._has_trouble = True
        self.close()
        self._leaders.clear()
        self._pause(PAUSE_SECONDS)

    def _leader_of(self, target: int) -> tuple[str, int]:
        if not self._leaders:
            addresses = self._cluster.addresses()
            leaders = self._cluster.topic(self._plan.into).leaders
            self._leaders = {
                number: addresses[leader]
                for number, leader in leaders.items()
                if leader is not None and leader in addresses
            }
        if target not in self._leaders:
            self._leaders.clear()
            raise Trouble(f"nobody leads {self._plan.into}/{target}")
        return self._leaders[target]

    def _question(self, batch: Batch) -> Question:
        producer = self._plan.producers[batch.source]
        records = build_batch(
            batch.records,
            codec=self._codec,
            producer_id=producer.number,
            producer_epoch=producer.epoch,
            base_sequence=batch.first_number & SEQUENCE_MAX,
        )
        return Question(
            PRODUCE,
            PRODUCE_VERSION,
            {
                "transactional_id": None,
                "acks": ALL_IN_SYNC,
                "timeout": REQUEST_MS,
                "topic_data": [
                    {
                        "name": self._plan.into,
                        "partition_data": [{"index": batch.target, "records": records}],
                    }
                ],
            },
        )


def new_producer_ids(cluster: Cluster, count: int) -> list[ProducerId]:
    """Producer ids that nobody else has."""
    fields = {"transactional_id": None, "transaction_timeout": 60_000}
    question = Question(INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, fields)
    address = next(iter(cluster.addresses().values()))
    found = []
    with BrokerSocket(*address) as broker:
        for _ in range(count):
            (reply,) = broker.ask(question)
            if reply.error_code:
                raise OperatorError(
                    f"the broker gives out no producer id: error code {int(reply.error_code)}"
                )
            found.append(ProducerId(int(reply.producer_id), int(reply.producer_epoch)))
    return found


def _refused(batch: Batch, code: int, plan: CopyPlan) -> OperatorError:
    where = f"{plan.topic}/{batch.source}, offsets {batch.first_offset} to {batch.last_offset}"
    if code == MessageTooLarge.code:
        return OperatorError(
            f"{plan.into} refused messages as too large: {where}",
            hint=f"raise its limit: respool topic alter {plan.into} --set max.message.bytes=…; then start again",
        )
    return OperatorError(f"{plan.into} refused messages with error code {code}: {where}")
