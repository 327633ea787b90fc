"""Producers and partitions for the model of transactions: what clients and logs do, as far as it matters there.

A producer does one thing at a time, tries again what it has no answer to, and gives up when it is fenced. What it
writes is named after its attempt at a transaction, so that it can be seen what became of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from respool.coordination.decision import Ticket
from respool.coordination.transactions.transaction_requests import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    ProducerIdNeeded,
    TransactionVersion,
    VerifyPartitions,
    WriteMarkers,
)
from respool.model.coordinator_errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    ProducerFenced,
)
from respool.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition

Attempt: TypeAlias = tuple[int, int]


@dataclass
class SimPartition:
    """A log that knows what of a producer is open, and refuses older epochs (as `log/` does)."""

    epochs: dict[ProducerId, int] = field(default_factory=dict)
    open: dict[ProducerId, list[Attempt]] = field(default_factory=dict)
    outcomes: list[tuple[Attempt, bool]] = field(default_factory=list)

    def is_open(self, producer_id: ProducerId, epoch: int) -> bool:
        return producer_id in self.open and self.epochs[producer_id] == epoch

    def write(self, producer_id: ProducerId, epoch: int, attempt: Attempt) -> bool:
        """Whether it was let in."""
        if epoch < self.epochs.get(producer_id, -1):
            return False
        self.epochs[producer_id] = epoch
        self.open.setdefault(producer_id, []).append(attempt)
        return True

    def mark(self, effect: WriteMarkers) -> None:
        # The coordinator that decides is never behind what it let producers have.
        assert effect.producer_epoch >= self.epochs.get(effect.producer_id, -1)
        self.epochs[effect.producer_id] = effect.producer_epoch
        for attempt in self.open.pop(effect.producer_id, ()):
            self.outcomes.append((attempt, effect.is_commit))


class SimProducer:
    def __init__(
        self,
        number: int,
        transactional_id: str,
        *,
        ask: Callable[[Any], Ticket],
        new_producer_id: Callable[[], ProducerId],
        timeout_ms: int,
    ) -> None:
        self.number = number
        self.transactional_id = transactional_id
        self._ask = ask
        self._new_producer_id = new_producer_id
        self._timeout_ms = timeout_ms
        self.producer_id = NO_PRODUCER_ID
        self.epoch = -1
        self.is_alive = True
        # What it has under way. Without a ticket the answer was lost, and it asks again.
        self.request: Any = None
        self.ticket: Ticket | None = None
        # Of the transaction it is in.
        self.version: TransactionVersion = TransactionVersion.V0
        self.attempts = 0
        self.added: set[TopicPartition] = set()
        self.is_in_transaction = False
        # What it was told: attempt -> committed.
        self.told: dict[Attempt, bool] = {}
        # What was written in each attempt.
        self.written: dict[Attempt, int] = {}

    @property
    def attempt(self) -> Attempt:
        return self.number, self.attempts

    @property
    def is_ready(self) -> bool:
        """It may do something new."""
        return self.is_alive and self.request is None

    @property
    def has_started(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    # --- what it does

    def start(self) -> None:
        self._send(
            InitProducerId(transactional_id=self.transactional_id, timeout_ms=self._timeout_ms)
        )

    def go_on(self) -> None:
        """After an error: leave what it is in, and ask for the next epoch (KIP-360)."""
        self.is_in_transaction = False
        self._send(
            InitProducerId(
                transactional_id=self.transactional_id,
                timeout_ms=self._timeout_ms,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
            )
        )

    def begin(self, version: TransactionVersion) -> None:
        self.is_in_transaction = True
        self.version = version
        self.attempts += 1
        self.added.clear()

    def add(self, *partitions: TopicPartition) -> None:
        self._send(
            AddPartitions(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                partitions=partitions,
                version=self.version,
            )
        )

    def end(self, *, is_commit: bool) -> None:
        self._send(
            EndTransaction(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                is_commit=is_commit,
                version=self.version,
            )
        )

    def verification(self, partition: TopicPartition) -> VerifyPartitions:
        return VerifyPartitions(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            partitions=(partition,),
        )

    @property
    def is_adding(self) -> bool:
        """Waiting for a request that adds partitions."""
        return self.is_alive and isinstance(self.request, AddPartitions)

    def expire(self) -> None:
        """Abort as after delivery.timeout.ms: what it asked for may still take effect, and it hears of it no more."""
        assert self.is_adding
        self.request = self.ticket = None
        self.end(is_commit=False)

    def ask_again(self) -> None:
        if self.is_alive and self.request is not None and self.ticket is None:
            self.ticket = self._ask(self.request)

    def lose_connection(self) -> None:
        self.ticket = None

    def _send(self, request: Any) -> None:
        assert self.is_ready
        self.request = request
        self.ticket = self._ask(request)

    # --- what it hears

    def on_reply(self, reply: Any) -> None:
        request, self.ticket = self.request, None
        if isinstance(reply, ProducerIdNeeded):
            # The broker does this for it, and each time with another one.
            self.ticket = self._ask(replace(request, new_producer_id=self._new_producer_id()))
        elif isinstance(reply.error, ConcurrentTransactions):
            return
        elif isinstance(reply.error, ProducerFenced | InvalidProducerIdMapping):
            self.is_alive = False
        else:
            # Above all not INVALID_TXN_STATE, at which clients stop: whatever was lost or repeated, they did no wrong.
            assert reply.error is None, reply.error
            self.request = None
            self._take(request, reply)

    def _take(self, request: Any, reply: Any) -> None:
        if isinstance(request, AddPartitions):
            self.added.update(request.partitions)
            return
        if isinstance(request, EndTransaction):
            self.is_in_transaction = False
            self.told[self.attempt] = request.is_commit
            if not request.version.bumps_epoch:
                assert reply.producer_id == NO_PRODUCER_ID
                return
        self.producer_id = reply.producer_id
        self.epoch = reply.producer_epoch


def report_of(effect: WriteMarkers, partitions: tuple[TopicPartition, ...]) -> MarkersWritten:
    return MarkersWritten(
        transactional_id=effect.transactional_id,
        producer_id=effect.producer_id,
        producer_epoch=effect.producer_epoch,
        partitions=partitions,
    )
