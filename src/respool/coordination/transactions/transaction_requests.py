"""Requests to a transaction coordinator and its replies, independent of protocol versions.

As with groups (`group_requests.py`), an error is a `RequestError` in the reply, and None is success. A fenced producer
gets `ProducerFenced`, which the handler translates for old versions. A request that only has to wait for the previous
transaction's markers is held for a while and then decided, instead of being rejected.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from respool.model.errors import RequestError
from respool.model.ids import NO_PRODUCER_ID, NO_TIMESTAMP, ProducerId, TopicPartition

NO_PRODUCER_EPOCH = -1


class TransactionVersion(IntEnum):
    """How a client does transactions (the feature `transaction.version`)."""

    V0 = 0
    # To clients the same as 0; Kafka writes its records in the newer form then.
    V1 = 1
    # Every end of a transaction bumps the epoch, and partitions are added by writing to them (KIP-890).
    V2 = 2

    @property
    def bumps_epoch(self) -> bool:
        return self >= TransactionVersion.V2


class TransactionState(IntEnum):
    """The numbers are those in records, the names those that clients see (`kafka_name`)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def kafka_name(self) -> str:
        return self.name.title().replace("_", "")


# --- what producers ask


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer starts, or goes on after an error and then says which it is (KIP-360).

    Without a producer id it is a new one: whoever had the transactional id before is fenced, and what it had open is
    aborted. That is also how an operator ends an open transaction.
    """

    transactional_id: str
    timeout_ms: int
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    # One that nobody has had yet. Brought when the answer was ProducerIdNeeded.
    new_producer_id: ProducerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdReply:
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    error: RequestError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """The partitions will be written to in the transaction; it begins with the first of them.

    The caller has checked that they exist. The partition of a group's offsets is one as well.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    version: TransactionVersion = TransactionVersion.V0


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsReply:
    error: RequestError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPartitions:
    """Whether the partitions are part of the producer's open transaction. Nothing is added."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPartitionsReply:
    errors: dict[TopicPartition, RequestError | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    is_commit: bool
    version: TransactionVersion = TransactionVersion.V0
    new_producer_id: ProducerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionReply:
    # What the producer goes on with; told in version 2 only.
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    error: RequestError | None = None


@dataclass(frozen=True, slots=True)
class ProducerIdNeeded:
    """The answer to a request that cannot be decided without a new producer id: ask again with one."""


# --- markers


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMarkers:
    """An effect: the outcome cannot change any more, so write it to all partitions, then say `MarkersWritten`.

    It may come again after the coordinator has started anew, and markers may be written twice.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    # How it was ended. In version 2 the epoch is newer than that of anything the transaction has written.
    version: TransactionVersion = TransactionVersion.V0


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """Markers are committed in these partitions, or the partitions are gone. May come in parts; the answer is None.

    To be told to the machine that had the effect, not to one that was loaded after it: a client before version 2 keeps
    its epoch from one transaction to the next, so a late word could be taken for the next transaction's.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


# --- looking after transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactions:
    """Those that meet all conditions; an empty set, a negative time or no pattern is no condition."""

    # As in `TransactionState.kafka_name`.
    states: frozenset[str] = frozenset()
    producer_ids: frozenset[ProducerId] = frozenset()
    # Open for longer than this.
    duration_ms_min: int = -1
    # A regular expression for the whole transactional id.
    id_pattern: str | None = None


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    state: TransactionState


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactionsReply:
    error: RequestError | None = None
    # Of those asked for: there is no such state.
    unknown_states: tuple[str, ...] = ()
    transactions: tuple[ListedTransaction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactions:
    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTransaction:
    transactional_id: str
    error: RequestError | None = None
    state: TransactionState = TransactionState.EMPTY
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int = 0
    # NO_TIMESTAMP: none has begun since the producer started.
    started_at_ms: int = NO_TIMESTAMP
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransactionsReply:
    transactions: tuple[DescribedTransaction, ...]


TransactionRequest: TypeAlias = (
    InitProducerId
    | AddPartitions
    | VerifyPartitions
    | EndTransaction
    | MarkersWritten
    | ListTransactions
    | DescribeTransactions
)
