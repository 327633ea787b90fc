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
    """The client's transaction protocol (the feature `transaction.version`)."""

    V0 = 0
    # The same as 0 for clients; Kafka writes its records in the newer format.
    V1 = 1
    # Every end of a transaction bumps the epoch, and partitions are added by writing to them (KIP-890).
    V2 = 2

    @property
    def bumps_epoch(self) -> bool:
        return self >= TransactionVersion.V2


class TransactionState(IntEnum):
    """The numbers are those in records; `kafka_name` gives the names that clients see."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def kafka_name(self) -> str:
        return self.name.title().replace("_", "")


# --- requests of producers


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId:
    """A producer starts, or continues after an error; then it sends its producer id (KIP-360).

    Without a producer id it is a new producer: the previous one is fenced, and its open transaction is aborted.
    Operators abort open transactions in the same way.
    """

    transactional_id: str
    timeout_ms: int
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    # A new, unused producer id. Set if the previous reply was ProducerIdNeeded.
    new_producer_id: ProducerId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdReply:
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    error: RequestError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """Adds partitions that the transaction will write to; the transaction begins with the first of them.

    The caller has checked that they exist. The partition of a group's offsets is added in the same way.
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
    """Asks whether the partitions are part of the producer's open transaction. Adds nothing."""

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
    # The producer's id and epoch for the next transaction; only in version 2.
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    error: RequestError | None = None


@dataclass(frozen=True, slots=True)
class ProducerIdNeeded:
    """The reply to a request that needs a new producer id: the caller repeats the request with one."""


# --- markers


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMarkers:
    """An effect: the outcome is final; write markers to all partitions, then send `MarkersWritten`.

    The effect may be repeated after a restart of the coordinator, so markers may be written twice.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    is_commit: bool
    partitions: tuple[TopicPartition, ...]
    # The epoch of the marker. In version 2 it is newer than that of the transaction's batches.
    version: TransactionVersion = TransactionVersion.V0


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """Markers are committed in these partitions, or the partitions are deleted. May be sent in parts; the reply is
    None.

    Send it only to the shard that emitted the effect, not to one loaded later: before version 2, a client keeps its
    epoch over transactions, so a late message could be mistaken for the next transaction's.
    """

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


# --- requests of operators


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactions:
    """Asks for the transactions that meet all conditions; an empty set, a negative time or None matches everything."""

    # As in `TransactionState.kafka_name`.
    states: frozenset[str] = frozenset()
    producer_ids: frozenset[ProducerId] = frozenset()
    # Open for longer than this.
    duration_ms_min: int = -1
    # A regular expression that must match the whole transactional id.
    id_pattern: str | None = None


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: ProducerId
    state: TransactionState


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactionsReply:
    error: RequestError | None = None
    # Requested states that do not exist.
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
    # NO_TIMESTAMP: no transaction has begun since the producer started.
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
