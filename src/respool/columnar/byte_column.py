"""Arrow columns of bytes or text -> begin and length of each row's bytes."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from respool.columnar.compiled import Bytes, Numbers, readable
from respool.columnar.errors import ColumnInvalid, ColumnTypeMismatch

NULL = -1


class ByteColumn(NamedTuple):
    """The input of kernels. All ranges are within `data`: Arrow has checked the outer bounds, and we the inner ones."""

    data: Bytes
    begins: Numbers
    # NULL for null rows.
    lengths: Numbers


def byte_column(array: pa.Array, name: str) -> ByteColumn:
    """Convert without copying the bytes, except for views; a dictionary stays one.

    Raises:
        ColumnTypeMismatch: it has neither bytes nor text.
        ColumnInvalid: its rows are not consecutive within its bytes.
    """
    try:
        array.validate()
    except pa.ArrowInvalid as error:
        raise ColumnInvalid(f"the column {name}: {error}") from error
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return byte_column(array.storage, name)
    if pa.types.is_null(kind):
        rows = len(array)
        return _column(b"", np.zeros(rows, dtype=np.int64), np.full(rows, NULL, dtype=np.int64))
    if pa.types.is_dictionary(kind):
        return _from_dictionary(array, name)
    if pa.types.is_binary_view(kind) or pa.types.is_string_view(kind):
        return byte_column(array.cast(pa.large_binary()), name)
    if pa.types.is_fixed_size_binary(kind):
        begins = np.arange(array.offset, array.offset + len(array), dtype=np.int64)
        begins *= kind.byte_width
        lengths = np.full(len(array), kind.byte_width, dtype=np.int64)
        return _column(array.buffers()[1], begins, _without_nulls(lengths, array))
    offset_type = _OFFSET_TYPES.get(kind)
    if offset_type is None:
        raise ColumnTypeMismatch(
            f"the column {name} is {kind}: cast it to binary or string, because records contain bytes"
        )
    _, places, data = array.buffers()
    ends: NDArray[Any] = np.frombuffer(places or bytes(8), dtype=offset_type)
    ends = ends[array.offset : array.offset + len(array) + 1].astype(np.int64, copy=False)
    lengths = rising(np.diff(ends), name)
    return _column(data, ends[:-1], _without_nulls(lengths, array))


def rising(lengths: Numbers, name: str) -> Numbers:
    """Raises:
    ColumnInvalid: a length is negative, so kernels would read outside of the data.
    """
    if len(lengths) and lengths.min() < 0:
        row = int(lengths.argmin())
        raise ColumnInvalid(
            f"the column {name}: row {row} ends {-lengths[row]} bytes before its start"
        )
    return lengths


_OFFSET_TYPES = {
    pa.binary(): np.int32,
    pa.string(): np.int32,
    pa.large_binary(): np.int64,
    pa.large_string(): np.int64,
}


def _from_dictionary(array: pa.Array, name: str) -> ByteColumn:
    words = byte_column(array.dictionary, name)
    numbers = array.indices
    if numbers.null_count:
        numbers = numbers.fill_null(0)
    if not len(words.lengths):
        # Then all rows are null.
        return byte_column(pa.nulls(len(array)), name)
    chosen = numbers.cast(pa.int64()).to_numpy(zero_copy_only=False)
    # Numpy checks the bounds.
    lengths = _without_nulls(words.lengths[chosen], array)
    return _column(words.data, words.begins[chosen], lengths)


def _without_nulls(lengths: Numbers, array: pa.Array) -> Numbers:
    """The lengths, with NULL for zeros in Arrow's bitmap."""
    if array.null_count:
        bitmap = np.frombuffer(array.buffers()[0], dtype=np.uint8)
        first = array.offset // 8
        bits = np.unpackbits(bitmap[first:], count=array.offset % 8 + len(array), bitorder="little")
        lengths[bits[array.offset % 8 :] == 0] = NULL
    return lengths


def _column(data: Any, begins: Numbers, lengths: Numbers) -> ByteColumn:
    # One array type, so that kernels are compiled once.
    begins, lengths = np.ascontiguousarray(begins), np.ascontiguousarray(lengths)
    begins.flags.writeable = lengths.flags.writeable = False
    return ByteColumn(readable(b"" if data is None else data), begins, lengths)
