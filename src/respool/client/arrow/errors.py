"""The errors of reading and writing tables: one class each, with its data as fields; all are `ClientError`.

Three kinds, by who can act:

- the caller: `BadArgument`, `WrongColumn`, `RecordTooLarge`, `WrongState`, `TlsRefused`, `LoginRefused`,
  `UnknownTopic`, `UnknownPartition`, `OutsideRetention`, `OffsetBeyondEnd`;
- no one, but it may be transient: `BrokerUnreachable`, `NoBroker`, `ConnectionLost`, `PartitionUnavailable`,
  `WriteFailed` (which lists the rows written), `BufferFull`. They are raised after retries for `retry_ms` or the
  delivery timeout;
- the log itself changed while it was read: `TopicRecreated`, `PartitionRetired`, `LogTruncated`,
  `RetentionOvertook`.

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
    BufferFull,
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
from respool.client.kafka.reading.read_errors import (
    BatchDamaged,
    LogTruncated,
    OffsetBeyondEnd,
    OutsideRetention,
    PartitionRetired,
    PartitionUnavailable,
    ReadError,
    RetentionOvertook,
    TopicRecreated,
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
    "PartitionRetired",
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


class WriteFailed(ClientError):
    """Not all rows were written. `result` has the counts per partition; in each, the written rows are a prefix."""

    def __init__(self, message: str, result: WriteResult) -> None:
        super().__init__(message)
        self.result = result

    @property
    def partitions(self) -> Mapping[tuple[str, int], PartitionWrite]:
        return self.result.partitions
