"""What can be wrong with bytes that should become columns, and with columns that should become bytes.

The client's, not a broker's: each says what was found, where, and what to do about it.
"""

from respool.model.errors import RespoolError


class ColumnarError(RespoolError):
    """Record batches and columns could not be turned into each other. Nothing was returned."""


class BatchUnreadable(ColumnarError):
    """A record batch cannot be shown; skipping it would leave a gap that nobody sees."""

    def __init__(self, *, offset: int, why: str, advice: str) -> None:
        super().__init__(f"the batch at offset {offset}: {why}; {advice}")
        self.offset = offset
        self.why = why


class CorruptBatch(BatchUnreadable):
    """A batch's bytes do not fit together, or not their checksum."""

    def __init__(self, *, offset: int, why: str) -> None:
        super().__init__(
            offset=offset,
            why=why,
            advice="read it again, and if it stays so, check the broker's log (`respool log verify`)",
        )


class BatchTooLarge(BatchUnreadable):
    """A compressed batch holds more bytes than the caller allows."""

    def __init__(self, *, offset: int, limit: int) -> None:
        super().__init__(
            offset=offset,
            why=f"it holds more than {limit} bytes when decompressed",
            advice="raise decompressed_max if you trust the producer",
        )
        self.limit = limit


class BatchFormatUnknown(BatchUnreadable):
    """A batch of an old format, or with a codec that did not exist when this was written."""

    def __init__(self, *, offset: int, why: str) -> None:
        super().__init__(
            offset=offset,
            why=why,
            advice="read it with a client that knows it, or upgrade respool",
        )


class UnknownColumn(ColumnarError):
    """There is no column of this name."""


class ColumnTypeMismatch(ColumnarError):
    """A column's type cannot become what it should be."""


class ColumnInvalid(ColumnarError):
    """A column contradicts itself, as one from a damaged file may; pyarrow's `validate(full=True)` says more."""


class NullNotAllowed(ColumnarError):
    """Something is null that a record must have."""


class TimestampInvalid(ColumnarError):
    """A record's time lies before 1970, which brokers refuse."""


class RowOutOfRange(ColumnarError):
    """A row was asked for that the batch does not have."""


class BatchNotEncodable(ColumnarError):
    """These rows cannot be one record batch: there are none, or too many bytes."""
