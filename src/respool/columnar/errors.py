"""Errors of converting between record batches and columns.

They are the client's: each says what was found, where, and what to do about it.
"""

from respool.model.errors import RespoolError


class ColumnarError(RespoolError):
    """Record batches and columns could not be converted. Nothing was returned."""


class BatchUnreadable(ColumnarError):
    """A record batch cannot be decoded; skipping it would leave an unnoticed gap."""

    def __init__(self, *, offset: int, why: str, advice: str) -> None:
        super().__init__(f"the batch at offset {offset}: {why}; {advice}")
        self.offset = offset
        self.why = why


class CorruptBatch(BatchUnreadable):
    """A batch is inconsistent, or its checksum does not match."""

    def __init__(self, *, offset: int, why: str) -> None:
        super().__init__(
            offset=offset,
            why=why,
            advice="read it again; if that fails too, check the broker's log (`respool log verify`)",
        )


class BatchTooLarge(BatchUnreadable):
    """A compressed batch contains more bytes than the caller allows."""

    def __init__(self, *, offset: int, limit: int) -> None:
        super().__init__(
            offset=offset,
            why=f"it holds more than {limit} bytes when decompressed",
            advice="raise decompressed_max if you trust the producer",
        )
        self.limit = limit


class BatchFormatUnknown(BatchUnreadable):
    """A batch in an old format, or with a codec that this version does not know."""

    def __init__(self, *, offset: int, why: str) -> None:
        super().__init__(
            offset=offset,
            why=why,
            advice="read it with a client that knows it, or upgrade respool",
        )


class UnknownColumn(ColumnarError):
    """There is no column of this name."""


class ColumnTypeMismatch(ColumnarError):
    """A column's type cannot be converted."""


class ColumnInvalid(ColumnarError):
    """A column is inconsistent, for instance from a damaged file; pyarrow's `validate(full=True)` says more."""


class NullNotAllowed(ColumnarError):
    """A required value is null."""


class TimestampInvalid(ColumnarError):
    """A timestamp is before 1970, which brokers reject."""


class RowOutOfRange(ColumnarError):
    """A row was requested that the batch does not have."""


class BatchNotEncodable(ColumnarError):
    """These rows cannot be one record batch: there are none, or too many bytes."""
