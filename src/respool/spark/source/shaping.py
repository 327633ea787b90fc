"""Converts the client's batches for Spark: to its types, with 10,000 to 100,000 rows, which it processes fastest."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from respool.spark.hidden_traceback import each_without_traceback

ROWS_MIN, ROWS_MAX = 10_000, 100_000
# Batches of large messages are not combined beyond this, since Spark holds a whole batch in memory.
BYTES_ENOUGH = 8 * 1024 * 1024


def as_spark_wants(
    batches: Iterable[pa.RecordBatch], schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Convert batches of the client's columns for this schema to Spark's types, in batches of a suitable size."""
    target = to_arrow_schema(schema, timezone="UTC")
    for batch in _of_good_size(each_without_traceback(batches)):
        yield _converted(batch, target)


def _of_good_size(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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


def _sliced(held: Sequence[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    if len(held) == 1:
        (whole,) = held
    else:
        (whole,) = pa.Table.from_batches(held).combine_chunks().to_batches()
    parts = -(-rows // ROWS_MAX)
    for number in range(parts):
        begin, end = rows * number // parts, rows * (number + 1) // parts
        yield whole if parts == 1 else whole.slice(begin, end - begin)


def _converted(batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
    arrays = [_cast(column, one.type) for column, one in zip(batch.columns, target, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast only what the client's types need, by buffers if possible: the first use of kernels costs imports."""
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        # The topic's name: a task reads only one topic.
        assert len(column.dictionary) == 1
        return _repeated(column.dictionary[0].as_py(), ROWS_MAX).slice(0, len(column))
    if pa.types.is_timestamp(kind):
        return _of_numbers(kind, _numbers(column, np.int64) * 1000)
    if pa.types.is_list(kind):
        return _headers(column, kind)
    return _of_numbers(kind, _numbers(column, np.int8).astype(np.int32))


# A worker reads the same topic for a long time, and with a long name this takes 25 MB.
@lru_cache(maxsize=1)
def _repeated(text: str, rows: int) -> pa.Array:
    data = text.encode()
    ends = np.arange(rows + 1, dtype=np.int32) * len(data)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(data * rows)]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


def _numbers(column: pa.Array, kind: Any) -> NDArray[Any]:
    """The numbers of a column without nulls."""
    whole = np.frombuffer(column.buffers()[1], dtype=kind)
    return whole[column.offset : column.offset + len(column)]


def _of_numbers(kind: pa.DataType, numbers: NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _headers(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Null for a message without headers, as in Spark's Kafka connector."""
    element = kind.value_type
    fields = [element.field(number) for number in range(element.num_fields)]
    values = pa.StructArray.from_arrays(column.values.flatten(), fields=fields)
    offsets = _numbers_of_offsets(column)
    lacking = np.packbits(np.diff(offsets) > 0, bitorder="little")
    return pa.Array.from_buffers(
        kind, len(column), [pa.py_buffer(lacking), pa.py_buffer(offsets)], children=[values]
    )


def _numbers_of_offsets(column: pa.Array) -> NDArray[Any]:
    whole = np.frombuffer(column.buffers()[1], dtype=np.int32)
    return whole[column.offset : column.offset + len(column) + 1]
