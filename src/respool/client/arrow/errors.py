"""The errors of reading and writing tables: one class each, with the numbers inside; all are `ClientError`.

Three kinds, by who can act:

- the caller: `BadArgument`, `WrongColumn`, `RecordTooLarge`, `WrongState`, `TlsRefused`, `LoginRefused`,
  `UnknownTopic`, `UnknownPartition`, `OutsideRetention`, `OffsetBeyondEnd`;
- nobody, but it may pass: `BrokerUnreachable`, `NoBroker`, `ConnectionLost`, `PartitionUnavailable`, `WriteFailed`
  (which names the rows that are in), `BufferFull`. They come after retries for `retry_ms` or the delivery timeout;
- the history itself changed while it was read: `TopicRecreated`, `LogTruncated`, `RetentionOvertook`.

Transactions have three of their own: `TransactionFenced` (another producer took the transactional id),
`TransactionLost` (it ended otherwise) and `TransactionUncertain` (no answer came: end it again).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from respool.client.arrow.writing.prepared import PreparedTransaction
    from respool.client.arrow.writing.write_result import PartitionWrite, WriteResult

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
    """A read cannot begin or go on. `offset` is the first one of this partition that was not read."""

    def __init__(self, message: str, *, topic: str, partition: int, offset: int | None) -> None:
        super().__init__(f"{topic}/{partition}: {message}")
        self.topic = topic
        self.partition = partition
        self.offset = offset


class OutsideRetention(ReadError):
    """What was asked for has been deleted. `first_offset` and `first_time_ms` say what there still is."""

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
    """Messages were deleted while they were being read: the reader was too slow, or someone deleted them."""


class OffsetBeyondEnd(ReadError):
    """The read should begin where the log has not come yet."""


class LogTruncated(ReadError):
    """Messages that were handed out are in the log no more: a leader took over that did not have them."""


class TopicRecreated(ReadError):
    """The topic was deleted and made again while it was read; its offsets now mean other messages."""


class BatchDamaged(ReadError):
    """A batch cannot be opened; everything before `offset` was handed out. The cause tells what is wrong with it."""


class PartitionUnavailable(ReadError):
    """Nobody could be read from for `retry_ms`. Everything before `offset` was handed out."""


# -- writing -----------------------------------------------------------------------------------------------------------


class WrongColumn(BadArgument):
    """A column is missing, or of a type that cannot be written."""

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column = column


class RecordTooLarge(ClientError):
    """A row is larger than the topic takes. Nothing of the table was written."""

    def __init__(self, topic: str, *, row: int, size: int, limit: int) -> None:
        super().__init__(
            f"row {row} needs {size} bytes, and {topic!r} takes record batches of {limit} bytes at the most "
            "(its max.message.bytes)"
        )
        self.row = row
        self.size = size
        self.limit = limit


class WrongState(ClientError):
    """The producer cannot do this now; the message says what comes first."""


class BufferFull(ClientError):
    """Brokers did not take anything for so long that the next rows found no room. What was written before goes on."""


class WriteFailed(ClientError):
    """Not all rows are in. `result` says for each partition which are; in each, those that are in come first."""

    def __init__(self, message: str, result: "WriteResult") -> None:
        super().__init__(message)
        self.result = result

    @property
    def partitions(self) -> "Mapping[tuple[str, int], PartitionWrite]":
        return self.result.partitions


class TransactionUncertain(TransactionError):
    """Nobody said in time whether it has ended. End it the same way again: `transaction` does, in any process."""

    def __init__(self, message: str, transaction: "PreparedTransaction") -> None:
        super().__init__(message)
        self.transaction = transaction
