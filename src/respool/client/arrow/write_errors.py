"""What writing tables can end with, beside what reading them can: see `errors.py`.

- the caller: `WrongColumn`, `RecordTooLarge`, `WrongState`;
- the brokers, after all tries: `WriteFailed`, which says what is in; `BufferFull`;
- transactions: `TransactionFenced` (another producer goes by that name now), `TransactionLost` (others ended it),
  `TransactionUncertain` (no answer came: end it again).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from respool.client.arrow.errors import BadArgument, ClientError

if TYPE_CHECKING:
    from respool.client.arrow.prepared import PreparedTransaction
    from respool.client.arrow.write_result import PartitionWrite, WriteResult


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


class TransactionError(ClientError):
    """A transaction cannot go on."""


class TransactionFenced(TransactionError):
    """Another producer has taken the transactional id over, or the transaction took too long and was aborted."""


class TransactionLost(TransactionError):
    """It has ended already, and not as asked for."""


class TransactionUncertain(TransactionError):
    """Nobody said in time whether it has ended. End it the same way again: `transaction` does, in any process."""

    def __init__(self, message: str, transaction: "PreparedTransaction") -> None:
        super().__init__(message)
        self.transaction = transaction
