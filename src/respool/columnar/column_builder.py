"""Sections of records -> one Arrow batch: allocates memory for the kernels and wraps the result in Arrow arrays."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from respool.columnar import record_columns as kernels
from respool.columnar.arrow_columns import (
    ALL_COLUMNS,
    HEADER_TYPE,
    HEADERS,
    KEY,
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TYPES,
    VALUE,
)
from respool.columnar.batch_headers import BASE_OFFSET, BEGIN, END, RECORD_COUNT
from respool.columnar.clause_tables import ClauseTables
from respool.columnar.compiled import Bytes, Numbers, Places
from respool.columnar.errors import CorruptBatch
from respool.columnar.record_table import RECORD_BYTES_MIN

_WANTED = dict(
    zip(
        ALL_COLUMNS,
        (
            kernels.WANT_KEY,
            kernels.WANT_VALUE,
            kernels.WANT_OFFSET,
            kernels.WANT_TIMESTAMP,
            kernels.WANT_TIMESTAMP_TYPE,
            kernels.WANT_HEADERS,
        ),
        strict=True,
    )
)
_FAULTS = {
    kernels.FAULT_COUNT: "it announces more records than its bytes can hold",
    kernels.FAULT_RECORD: "a record's fields do not match its length",
    kernels.FAULT_DELTA: "its records' offsets do not increase, or exceed its last offset",
    kernels.FAULT_TIME: "a record's timestamp does not fit 64 bits",
    kernels.FAULT_HEADERS: "a record's headers do not match its length",
    kernels.FAULT_END: "its records do not end with the batch",
}


class ColumnBuilder:
    def __init__(
        self,
        schema: pa.Schema,
        *,
        offset_first: int,
        offset_last: int,
        time_first: int,
        time_last: int,
        clauses: ClauseTables,
    ) -> None:
        self._schema = schema
        self._clauses = clauses
        self._wanted = sum(_WANTED[name] for name in schema.names)
        self._bounds: Numbers = np.array(
            [offset_first, offset_last, time_first, time_last], dtype=np.int64
        )

    def build(self, data: Bytes, sections: Numbers) -> tuple[pa.RecordBatch, int]:
        """Return the rows of all sections within bounds for which the clauses hold, and their number.

        Raises:
            CorruptBatch: a batch's records do not match its header.
        """
        sizes = sections[:, END] - sections[:, BEGIN]
        # A header's record count must not determine the allocation.
        rows_max = (
            np.minimum(sections[:, RECORD_COUNT], sizes // RECORD_BYTES_MIN).clip(min=0).sum()
        )
        columns = _Columns(int(rows_max), self._wanted)
        rows, fault, index = kernels.locate(
            data, sections, self._bounds, self._clauses, self._wanted, columns.room
        )
        if fault != kernels.NO_FAULT:
            raise CorruptBatch(offset=int(sections[index, BASE_OFFSET]), why=_FAULTS[fault])
        arrays = [columns.array(name, data, rows) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), rows


class _Columns:
    """Memory for `rows_max` rows in the wanted columns; the others have none."""

    def __init__(self, rows_max: int, wanted: int) -> None:
        def room(bit: int, dtype: type[Any], extra: int = 0) -> NDArray[Any]:
            array = np.empty(rows_max + extra if wanted & bit else extra, dtype=dtype)
            array[:extra] = 0
            return array

        self.room = kernels.ColumnRoom(
            offsets=room(kernels.WANT_OFFSET, np.int64),
            timestamps=room(kernels.WANT_TIMESTAMP, np.int64),
            timestamp_types=room(kernels.WANT_TIMESTAMP_TYPE, np.uint8),
            key_begins=room(kernels.WANT_KEY, np.int64),
            key_ends=room(kernels.WANT_KEY, np.int32, 1),
            value_begins=room(kernels.WANT_VALUE, np.int64),
            value_ends=room(kernels.WANT_VALUE, np.int32, 1),
            header_begins=room(kernels.WANT_HEADERS, np.int64),
            header_ends=room(kernels.WANT_HEADERS, np.int32, 1),
        )

    def array(self, name: str, data: Bytes, rows: int) -> pa.Array:
        room = self.room
        if name == KEY:
            return binary_array(TYPES[KEY], data, room.key_begins, room.key_ends, rows)
        if name == VALUE:
            return binary_array(TYPES[VALUE], data, room.value_begins, room.value_ends, rows)
        if name == HEADERS:
            return self._header_lists(data, rows)
        numbers: dict[str, NDArray[Any]] = {
            OFFSET: room.offsets,
            TIMESTAMP: room.timestamps,
            TIMESTAMP_TYPE: room.timestamp_types,
        }
        buffers = [None, _fitted(numbers[name], rows)]
        return pa.Array.from_buffers(TYPES[name], rows, buffers)

    def _header_lists(self, data: Bytes, rows: int) -> pa.Array:
        begins, ends = self.room.header_begins, self.room.header_ends
        count = int(ends[rows])
        key_begins: Numbers = np.empty(count, dtype=np.int64)
        value_begins: Numbers = np.empty(count, dtype=np.int64)
        key_ends: Places = np.zeros(count + 1, dtype=np.int32)
        value_ends: Places = np.zeros(count + 1, dtype=np.int32)
        if count:
            kernels.locate_headers(
                data, begins, ends, rows, key_begins, key_ends, value_begins, value_ends
            )
        key_type, value_type = (HEADER_TYPE.field(index).type for index in range(2))
        keys = _as_text(binary_array(pa.binary(), data, key_begins, key_ends, count), key_type)
        values = binary_array(value_type, data, value_begins, value_ends, count)
        pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE))
        buffers = [None, _fitted(ends, rows + 1)]
        return pa.Array.from_buffers(TYPES[HEADERS], rows, buffers, children=[pairs])


def binary_array(
    kind: pa.DataType, data: Bytes, begins: Numbers, ends: Places, rows: int
) -> pa.Array:
    """Copy the bytes at these positions into a column of their own."""
    target: Bytes = np.empty(int(ends[rows]), dtype=np.uint8)
    if len(target):
        kernels.gather(data, begins, ends, rows, target)
    bitmap = None
    nulls = int(np.count_nonzero(begins[:rows] < 0))
    if nulls:
        bits: Bytes = np.zeros((rows + 7) // 8, dtype=np.uint8)
        kernels.mark_valid(begins, rows, bits)
        bitmap = pa.py_buffer(bits)
    buffers = [bitmap, _fitted(ends, rows + 1), pa.py_buffer(target)]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=nulls)


def _fitted(room: NDArray[Any], count: int) -> pa.Buffer:
    """The first `count` numbers; copied if they would keep much more memory than they fill."""
    used = room[:count]
    return pa.py_buffer(used.copy() if 2 * count < len(room) else used)


def _as_text(keys: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        # Validates without copying.
        return keys.cast(kind)
    except pa.ArrowInvalid:
        # Java's client decodes invalid UTF-8 this way too; the record is still readable.
        text = [key.decode("utf-8", errors="replace") for key in keys.to_pylist()]
        return pa.array(text, type=kind)
