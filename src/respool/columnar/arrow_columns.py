"""The Arrow schema of decoded records: column names and types."""

from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from respool.columnar.errors import UnknownColumn

KEY, VALUE, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, HEADERS = ALL_COLUMNS = (
    "key",
    "value",
    "offset",
    "timestamp",
    "timestamp_type",
    "headers",
)

# The values of timestamp_type: set by the producer, or by the broker.
CREATE_TIME = 0
LOG_APPEND_TIME = 1

# A header's value may be null, its key may not; a record without headers has an empty list.
HEADER_TYPE = pa.struct(
    [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
)
TYPES = {
    KEY: pa.binary(),
    VALUE: pa.binary(),
    OFFSET: pa.int64(),
    # -1, the last millisecond of 1969, if the producer gave no time.
    TIMESTAMP: pa.timestamp("ms", "UTC"),
    TIMESTAMP_TYPE: pa.int8(),
    HEADERS: pa.list_(pa.field("item", HEADER_TYPE, nullable=False)),
}
_NULLABLE = (KEY, VALUE)


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The schema of `decode` for these columns, in this order.

    Raises:
        UnknownColumn: there is no such column, or it appears twice.
    """
    return _schema_of(tuple(columns))


# Called for every fetch.
@lru_cache(maxsize=64)
def _schema_of(columns: tuple[str, ...]) -> pa.Schema:
    for name in columns:
        if name not in TYPES:
            raise UnknownColumn(f"no column {name!r}, there are {', '.join(ALL_COLUMNS)}")
    if len(set(columns)) < len(columns):
        raise UnknownColumn(f"a column is requested twice: {', '.join(columns)}")
    return pa.schema([pa.field(name, TYPES[name], nullable=name in _NULLABLE) for name in columns])
