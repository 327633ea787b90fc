"""An Arrow batch as input of the kernels: position and length of key, value, timestamp and headers of every row.

Bytes are not copied, whatever the column type; only positions and lengths are. Created once, it serves any number of
encodings of rows of the batch.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from respool.columnar.arrow_columns import HEADER_TYPE, HEADERS, KEY, TIMESTAMP, VALUE
from respool.columnar.byte_column import ByteColumn, byte_column, rising
from respool.columnar.compiled import Numbers
from respool.columnar.errors import ColumnTypeMismatch, NullNotAllowed, TimestampInvalid
from respool.columnar.record_writer import TIME_TO_COME, HeaderColumns
from respool.model.ids import NO_TIMESTAMP

_NONE: Numbers = np.zeros(0, dtype=np.int64)
_NONE.flags.writeable = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBuffers:
    rows: int
    key: ByteColumn
    value: ByteColumn
    # Empty if all rows get the time of encoding.
    timestamps: Numbers
    headers: HeaderColumns

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> "RowBuffers":
        """Use the columns key, value, timestamp and headers; missing ones are null. Others are ignored.

        Raises:
            ColumnTypeMismatch: a column has the wrong type.
            ColumnInvalid: a column is inconsistent.
            NullNotAllowed: a header, or a header's key, is null.
            TimestampInvalid: a timestamp is before 1970.
        """
        rows = batch.num_rows

        def column(name: str) -> pa.Array:
            index = batch.schema.get_field_index(name)
            return batch.column(index) if index >= 0 else pa.nulls(rows)

        return cls(
            rows=rows,
            key=byte_column(column(KEY), KEY),
            value=byte_column(column(VALUE), VALUE),
            timestamps=_timestamps(column(TIMESTAMP)),
            headers=_header_columns(column(HEADERS)),
        )


def _timestamps(column: pa.Array) -> Numbers:
    if pa.types.is_null(column.type):
        return _NONE
    kind = column.type
    try:
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            # Finer timestamps are truncated to milliseconds.
            column = column.cast(pa.timestamp("ms", getattr(kind, "tz", None)), safe=False)
        elif not pa.types.is_integer(kind):
            raise ColumnTypeMismatch(
                f"the column timestamp is {kind}: it must be a timestamp, a date, or milliseconds since 1970"
            )
        numbers = column.cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise TimestampInvalid(f"the column timestamp: {error}") from error
    early = pc.min(numbers).as_py()
    if early is not None and early < NO_TIMESTAMP:
        raise TimestampInvalid(
            f"a timestamp is {-early} ms before 1970, which brokers reject; "
            "leave it null for the time of writing"
        )
    if numbers.null_count:
        numbers = numbers.fill_null(TIME_TO_COME)
    return _numbers(numbers)


def _header_columns(column: pa.Array) -> HeaderColumns:
    kind = column.type
    if pa.types.is_null(kind):
        none = byte_column(pa.nulls(0), HEADERS)
        return HeaderColumns(_NONE, none, none)
    if pa.types.is_map(kind):
        pair = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        column = column.cast(pa.list_(pair))
    if not _is_list(column.type) or not pa.types.is_struct(column.type.value_type):
        raise ColumnTypeMismatch(
            f"the column headers is {kind}: it must be a list of {HEADER_TYPE}, or a map"
        )
    lengths = pc.list_value_length(column).cast(pa.int64()).fill_null(0)
    ends: Numbers = np.cumsum(rising(_numbers(lengths), HEADERS))
    ends.flags.writeable = False
    pairs = pc.list_flatten(column)
    if pairs.null_count:
        raise NullNotAllowed(f"{pairs.null_count} headers are null: leave them out of the list")
    if {field.name for field in pairs.type} != {"key", "value"}:
        raise ColumnTypeMismatch(f"headers have the fields {pairs.type}, not key and value")
    keys = pairs.field("key")
    if keys.null_count:
        raise NullNotAllowed(f"{keys.null_count} headers have no key; only values may be null")
    return HeaderColumns(
        ends,
        byte_column(keys, "headers.key"),
        byte_column(pairs.field("value"), "headers.value"),
    )


def _is_list(kind: pa.DataType) -> Any:
    return (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def _numbers(array: pa.Array) -> Numbers:
    numbers: Numbers = np.frombuffer(array.buffers()[1] or b"", dtype=np.int64)
    numbers = numbers[array.offset : array.offset + len(array)]
    numbers.flags.writeable = False
    return numbers
