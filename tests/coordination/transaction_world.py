"""A transaction coordinator without a broker; see `ShardWorld`. Its markers are what a test says."""

from dataclasses import replace
from typing import Any

from coordination.shard_world import ShardWorld
from respool.coordination.decision import CoordinatorRecord, Decision, SetTimer, Ticket
from respool.coordination.transactions.transaction_coordinator_shard import (
    TransactionCoordinatorShard,
)
from respool.coordination.transactions.transaction_metadata import TransactionMetadata
from respool.coordination.transactions.transaction_records import (
    write_transaction_key,
    write_transaction_value,
)
from respool.coordination.transactions.transaction_requests import (
    AddPartitions,
    AddPartitionsReply,
    DescribedTransaction,
    DescribeTransactions,
    EndTransaction,
    EndTransactionReply,
    InitProducerId,
    InitProducerIdReply,
    MarkersWritten,
    ProducerIdNeeded,
    TransactionRequest,
    TransactionState,
    TransactionVersion,
    VerifyPartitions,
    WriteMarkers,
)
from respool.model.coordinator_settings import TransactionSettings
from respool.model.errors import RequestError
from respool.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition

ID = "payments-1"
TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 1_000
V0, V1, V2 = TransactionVersion.V0, TransactionVersion.V1, TransactionVersion.V2
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class TransactionWorld(ShardWorld[TransactionCoordinatorShard]):
    def __init__(self, **settings: int) -> None:
        self.settings = TransactionSettings(**settings)
        # Markers to be written, in the order asked for.
        self.effects: list[WriteMarkers] = []
        self.next_producer_id = FIRST_PRODUCER_ID
        super().__init__()

    def new_shard(self) -> TransactionCoordinatorShard:
        return TransactionCoordinatorShard(self.settings)

    def ask_in_vain(self, request: TransactionRequest) -> None:
        """The log refuses what is decided; timers are set before that."""
        decision = self.shard.decide(
            request, ticket=Ticket(-1), now_ms=self.now_ms, wall_ms=self.wall_ms
        )
        self.carry_out(Decision(timers=decision.timers))

    def is_waiting(self, ticket: Ticket) -> bool:
        return ticket not in self.replies

    def reload(self) -> None:
        # Those in flight are asked for again.
        self.effects.clear()
        super().reload()

    def carry_out(self, decision: Decision) -> None:
        assert all(isinstance(change, SetTimer) for change in decision.timers)
        super().carry_out(decision)
        self.effects += decision.effects

    # --- short words for stories

    def new_producer_id(self) -> ProducerId:
        self.next_producer_id += 1
        return ProducerId(self.next_producer_id - 1)

    def init(self, transactional_id: str = ID, **fields: Any) -> InitProducerIdReply:
        """As the runtime does: ask again with a producer id where one is needed."""
        reply = self.now(init_of(transactional_id, **fields))
        if isinstance(reply, ProducerIdNeeded):
            request = init_of(transactional_id, **fields)
            reply = self.now(replace(request, new_producer_id=self.new_producer_id()))
        assert isinstance(reply, InitProducerIdReply)
        return reply

    def add(self, *partitions: TopicPartition, **fields: Any) -> RequestError | None:
        reply = self.now(add_of(*partitions, **fields))
        assert isinstance(reply, AddPartitionsReply)
        return reply.error

    def verify(self, *partitions: TopicPartition, **fields: Any) -> list[type | None]:
        """For each partition, what is wrong with it."""
        request = VerifyPartitions(partitions=partitions, **(_producer() | fields))
        errors = self.now(request).errors
        assert tuple(errors) == partitions
        return [None if error is None else type(error) for error in errors.values()]

    def end(self, *, is_commit: bool = True, **fields: Any) -> EndTransactionReply:
        reply = self.now(end_of(is_commit=is_commit, **fields))
        if isinstance(reply, ProducerIdNeeded):
            request = end_of(is_commit=is_commit, **fields)
            reply = self.now(replace(request, new_producer_id=self.new_producer_id()))
        assert isinstance(reply, EndTransactionReply)
        return reply

    def write_markers(self) -> WriteMarkers:
        """Write the markers asked for first, everywhere, and say so."""
        effect = self.effects.pop(0)
        assert self.now(written(effect)) is None
        return effect

    def describe(self, transactional_id: str = ID) -> DescribedTransaction:
        reply = self.now(DescribeTransactions(transactional_ids=(transactional_id,)))
        described = reply.transactions[0]
        assert isinstance(described, DescribedTransaction)
        return described

    def state(self) -> TransactionState:
        return self.describe().state

    @property
    def transaction(self) -> TransactionMetadata:
        return self.shard._transactions[ID]

    def set_epoch(self, epoch: int) -> None:
        """Let the producer have come so far: asking for each epoch would take long."""
        transaction = self.transaction._replace(producer_epoch=epoch)
        record = CoordinatorRecord(
            key=write_transaction_key(ID), value=write_transaction_value(transaction)
        )
        self.carry_out(Decision(records=(record,)))


def _producer() -> dict[str, Any]:
    return {
        "transactional_id": ID,
        "producer_id": ProducerId(FIRST_PRODUCER_ID),
        "producer_epoch": 0,
    }


def init_of(transactional_id: str = ID, **fields: Any) -> InitProducerId:
    words: dict[str, Any] = {"transactional_id": transactional_id, "timeout_ms": TIMEOUT_MS}
    return InitProducerId(**(words | fields))


def add_of(*partitions: TopicPartition, **fields: Any) -> AddPartitions:
    return AddPartitions(partitions=partitions, **(_producer() | fields))


def end_of(**fields: Any) -> EndTransaction:
    return EndTransaction(**(_producer() | fields))


def written(effect: WriteMarkers, *partitions: TopicPartition) -> MarkersWritten:
    return MarkersWritten(
        transactional_id=effect.transactional_id,
        producer_id=effect.producer_id,
        producer_epoch=effect.producer_epoch,
        partitions=partitions or effect.partitions,
    )


def told(reply: InitProducerIdReply | EndTransactionReply) -> tuple[int, int]:
    """The producer id, from the first one's on, and the epoch."""
    assert reply.error is None, reply.error
    assert reply.producer_id != NO_PRODUCER_ID
    return reply.producer_id - FIRST_PRODUCER_ID, reply.producer_epoch


def error_of(reply: Any) -> type[RequestError] | None:
    return None if reply.error is None else type(reply.error)
