"""The columns that Spark's Kafka connector taught people, of those that the client reads, as Spark wants them.

A schema that the user gives (`spark.read.schema("value binary, offset long")`) says which columns are read: others
are not decoded, and not carried to Spark. Rows come in batches of 10,000 to 50,000, which cost Spark least.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from respool.spark.options import BadOption

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MIN, ROWS_MAX = 10_000, 50_000
# Large messages are not gathered further: Spark holds a whole batch of them.
BYTES_ENOUGH = 8 * 1024 * 1024

# Name, type, and what the client calls it.
_COLUMNS: tuple[tuple[str, DataType, str], ...] = (
    ("key", BinaryType(), "key"),
    ("value", BinaryType(), "value"),
    ("topic", StringType(), "topic"),
    ("partition", IntegerType(), "partition"),
    ("offset", LongType(), "offset"),
    ("timestamp", TimestampType(), "timestamp"),
    ("timestampType", IntegerType(), "timestamp_type"),
)
_HEADERS = (
    "headers",
    ArrayType(StructType().add("key", StringType()).add("value", BinaryType())),
    "headers",
)
_NULLABLE = ("key", "value", "headers")


def full_schema(*, include_headers: bool) -> StructType:
    schema = StructType()
    for name, kind, _ in (*_COLUMNS, _HEADERS) if include_headers else _COLUMNS:
        schema = schema.add(name, kind)
    return schema


def columns_of(schema: StructType) -> tuple[str, ...]:
    """What the client is to read for this schema, in its order.

    Raises:
        BadOption: it has columns that there are not, or of other types.
    """
    known = {name.lower(): (kind, ours) for name, kind, ours in (*_COLUMNS, _HEADERS)}
    chosen: list[str] = []
    for one in schema.fields:
        if one.name.lower() not in known:
            names = ", ".join(name for name, _, _ in (*_COLUMNS, _HEADERS))
            raise BadOption(f"the schema has a column {one.name!r}; there are {names}")
        kind, ours = known[one.name.lower()]
        if one.dataType.simpleString() != kind.simpleString():
            raise BadOption(
                f"the schema has {one.name} as {one.dataType.simpleString()}; it is {kind.simpleString()}: "
                "cast it afterwards"
            )
        if not one.nullable and ours in _NULLABLE:
            raise BadOption(f"the schema has {one.name} as NOT NULL, and messages may have none")
        if ours in chosen:
            raise BadOption(f"the schema has the column {one.name!r} twice")
        chosen.append(ours)
    if not chosen:
        raise BadOption("the schema has no columns")
    return tuple(chosen)


def as_spark_wants(
    batches: "Iterable[pa.RecordBatch]", schema: StructType
) -> "Iterator[pa.RecordBatch]":
    """Batches of the client's columns for this schema -> with Spark's types, in a size that it likes."""
    from pyspark.sql.pandas.types import to_arrow_schema

    target = to_arrow_schema(schema, timezone="UTC")
    for batch in _of_good_size(batches):
        yield _converted(batch, target)


def _of_good_size(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= ROWS_MIN or size >= BYTES_ENOUGH:
            yield from _sliced(held, rows)
            held, rows, size = [], 0, 0
    if held:
        yield from _sliced(held, rows)


def _sliced(held: "Sequence[pa.RecordBatch]", rows: int) -> "Iterator[pa.RecordBatch]":
    if len(held) == 1:
        (whole,) = held
    else:
        import pyarrow as pa

        (whole,) = pa.Table.from_batches(held).combine_chunks().to_batches()
    parts = -(-rows // ROWS_MAX)
    for number in range(parts):
        begin, end = rows * number // parts, rows * (number + 1) // parts
        yield whole if parts == 1 else whole.slice(begin, end - begin)


def _converted(batch: "pa.RecordBatch", target: "pa.Schema") -> "pa.RecordBatch":
    import pyarrow as pa

    arrays = [_cast(column, one.type) for column, one in zip(batch.columns, target, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _cast(column: "pa.Array", kind: "pa.DataType") -> "pa.Array":
    """Only what the client's types need. By buffers where that is possible: kernels' first use costs imports."""
    import pyarrow as pa

    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    if pa.types.is_timestamp(kind):
        return _of_numbers(kind, _numbers(column, np.int64) * 1000)
    if pa.types.is_list(kind):
        return _headers(column, kind)
    return _of_numbers(kind, _numbers(column, np.int8).astype(np.int32))


def _numbers(column: "pa.Array", kind: Any) -> "np.ndarray[Any, Any]":
    """Of a column without nulls."""
    whole = np.frombuffer(column.buffers()[1], dtype=kind)
    return whole[column.offset : column.offset + len(column)]


def _of_numbers(kind: "pa.DataType", numbers: "np.ndarray[Any, Any]") -> "pa.Array":
    import pyarrow as pa

    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _headers(column: "pa.Array", kind: "pa.DataType") -> "pa.Array":
    """Null where a message has none, as Spark's Kafka connector has it."""
    import pyarrow as pa

    element = kind.value_type
    fields = [element.field(number) for number in range(element.num_fields)]
    values = pa.StructArray.from_arrays(column.values.flatten(), fields=fields)
    offsets = _numbers_of_offsets(column)
    lacking = np.packbits(np.diff(offsets) > 0, bitorder="little")
    return pa.Array.from_buffers(
        kind, len(column), [pa.py_buffer(lacking), pa.py_buffer(offsets)], children=[values]
    )


def _numbers_of_offsets(column: "pa.Array") -> "np.ndarray[Any, Any]":
    whole = np.frombuffer(column.buffers()[1], dtype=np.int32)
    return whole[column.offset : column.offset + len(column) + 1]
