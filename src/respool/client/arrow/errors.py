"""The errors of reading and writing tables: one class each, with its data as fields; all are `ClientError`.

Three kinds, by who can act:

- the caller: `BadArgument`, `WrongColumn`, `RecordTooLarge`, `WrongState`, `TlsRefused`, `LoginRefused`,
  `UnknownTopic`, `UnknownPartition`, `OutsideRetention`, `OffsetBeyondEnd`;
- no one, but it may be transient: `BrokerUnreachable`, `NoBroker`, `ConnectionLost`, `PartitionUnavailable`,
  `WriteFailed` (which lists the rows written), `BufferFull`. They are raised after retries for `retry_ms` or the
  delivery timeout;
- the log itself changed while it was read: `TopicRecreated`, `LogTruncated`, `RetentionOvertook`.

Transactions add three: `TransactionFenced` (another producer took over the transactional id), `TransactionLost` (it
ended with another outcome) and `TransactionUncertain` (no answer came: end it again).
"""

from collections.abc import Mapping

from respool.client.arrow.prepared import TransactionUncertain
from respool.client.arrow.write_result import PartitionWrite, WriteResult
from respool.client.kafka.errors import (
    BadArgument,
    BrokerRefused,
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    ConnectionLost,
    LoginRefused,
    NoBroker,
    ProtocolBroken,
    TlsRefused,
    TransactionError,
    TransactionFenced,
    TransactionLost,
    UnknownPartition,
    UnknownTopic,
    Untrusted,
    VersionUnsupported,
)

__all__ = [
    "BadArgument",
    "BatchDamaged",
    "BrokerRefused",
    "BrokerUnreachable",
    "BufferFull",
    "ClientClosed",
    "ClientError",
    "ConnectionLost",
    "LogTruncated",
    "LoginRefused",
    "NoBroker",
    "OffsetBeyondEnd",
    "OutsideRetention",
    "PartitionUnavailable",
    "ProtocolBroken",
    "ReadError",
    "RecordTooLarge",
    "RetentionOvertook",
    "TlsRefused",
    "TopicRecreated",
    "TransactionError",
    "TransactionFenced",
    "TransactionLost",
    "TransactionUncertain",
    "UnknownPartition",
    "UnknownTopic",
    "Untrusted",
    "VersionUnsupported",
    "WriteFailed",
    "WrongColumn",
    "WrongState",
]


# -- reading -----------------------------------------------------------------------------------------------------------


class ReadError(ClientError):
    """A read cannot begin or continue. `offset` is the first unread offset of this partition."""

    def __init__(self, message: str, *, topic: str, partition: int, offset: int | None) -> None:
        super().__init__(f"{topic}/{partition}: {message}")
        self.topic = topic
        self.partition = partition
        self.offset = offset


class OutsideRetention(ReadError):
    """Requested messages have been deleted. `first_offset` and `first_time_ms` describe the first one left."""

    def __init__(
        self,
        message: str,
        *,
        topic: str,
        partition: int,
        offset: int | None,
        first_offset: int,
        first_time_ms: int | None = None,
    ) -> None:
        super().__init__(message, topic=topic, partition=partition, offset=offset)
        self.first_offset = first_offset
        self.first_time_ms = first_time_ms


class RetentionOvertook(OutsideRetention):
    """Messages were deleted while they were being read: the reader was too slow, or an administrator deleted them."""


class OffsetBeyondEnd(ReadError):
    """The read would begin beyond the log end."""


class LogTruncated(ReadError):
    """Messages that were already returned are no longer in the log: a replica without them became leader."""


class TopicRecreated(ReadError):
    """The topic was deleted and recreated while it was read; its offsets now belong to other messages."""


class BatchDamaged(ReadError):
    """A batch cannot be decoded; everything before `offset` was returned. The cause says what is wrong with it."""


class PartitionUnavailable(ReadError):
    """No broker served the partition for `retry_ms`. Everything before `offset` was returned."""


# -- writing -----------------------------------------------------------------------------------------------------------


class WrongColumn(BadArgument):
    """A column is missing, or has a type that cannot be written."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column = column


class RecordTooLarge(ClientError):
    """A row is larger than the topic allows. Nothing of the table was written."""

    def __init__(self, topic: str, *, row: int, size: int, limit: int) -> None:
        super().__init__(
            f"row {row} needs {size} bytes, and {topic!r} takes record batches of {limit} bytes at the most "
            "(its max.message.bytes)"
        )
        self.row = row
        self.size = size
        self.limit = limit


class WrongState(ClientError):
    """The producer cannot do this in its current state; the message says what must be done first."""


class BufferFull(ClientError):
    """No buffer space became free within the delivery timeout. Rows written before are still being sent."""


class WriteFailed(ClientError):
    """Not all rows were written. `result` has the counts per partition; in each, the written rows are a prefix."""

    def __init__(self, message: str, result: WriteResult) -> None:
        super().__init__(message)
        self.result = result

    @property
    def partitions(self) -> Mapping[tuple[str, int], PartitionWrite]:
        return self.result.partitions
