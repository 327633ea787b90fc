"""Parses the records of many batches into one table, a row per record. `records/record.py` shows the layout.

Only what compaction needs is parsed; headers are skipped. A section that does not match its batch header gets no rows
and is marked. `record_columns.py` uses `read_record` too.
"""

import numpy as np

from respool.columnar.compiled import Bytes, Numbers, Word, kernel, part_of_kernels
from respool.columnar.varint_kernels import BROKEN, INT_BITS, LONG_BITS, read_varint

# Columns of a section.
BEGIN, END, RECORD_COUNT, BASE_OFFSET, LAST_OFFSET_DELTA, DROP_TOMBSTONES = range(6)

# Columns of a row. The first two are the record's bounds; the body starts after its length, the tail after its
# timestamp.
ROW_BEGIN, ROW_END, ROW_BODY, ROW_TAIL, TIMESTAMP_DELTA, OFFSET, KEY_BEGIN, KEY_END, HAS_VALUE = (
    range(9)
)
ROW_COLUMNS = 9

# Every field of a record takes at least a byte.
RECORD_BYTES_MIN = 7
# The lengths of a header's key and value.
HEADER_BYTES_MIN = 2


@part_of_kernels
def read_record(
    data: Bytes, begin: int, section_end: int
) -> tuple[int, int, int, int, int, int, int, int, int]:
    """Parse the record at `begin`: its end (BROKEN if malformed), then the fields as in a row, with an offset delta.

    The value's bounds come last. Key and value begin at -1 if they are null; the headers follow the value's end.
    """
    broken = (BROKEN, 0, 0, 0, 0, 0, 0, 0, 0)
    length, body = read_varint(data, begin, section_end, INT_BITS)
    if body < 0 or length < 1 or length > section_end - body:
        return broken
    end = body + length
    timestamp_delta, tail = read_varint(data, body + 1, end, LONG_BITS)
    if tail < 0:
        return broken
    offset_delta, at = read_varint(data, tail, end, INT_BITS)
    if at < 0:
        return broken
    key_length, key_begin = read_varint(data, at, end, INT_BITS)
    if key_begin < 0 or key_length < -1 or key_length > end - key_begin:
        return broken
    key_end = key_begin + max(key_length, 0)
    value_length, value_begin = read_varint(data, key_end, end, INT_BITS)
    # The header count takes at least a byte.
    if value_begin < 0 or value_length < -1 or max(value_length, 0) >= end - value_begin:
        return broken
    value_end = value_begin + max(value_length, 0)
    if key_length < 0:
        key_begin = -1
    if value_length < 0:
        value_begin = -1
    return (
        end, body, tail, timestamp_delta, offset_delta, key_begin, key_end, value_begin, value_end
    )  # fmt: skip


@kernel
def read_section(data: Bytes, sections: Numbers, index: int, rows: Numbers, first: int) -> int:
    """Fill a row for each record of one section; return their number, or -1 if it is malformed."""
    begin, end = sections[index, BEGIN], sections[index, END]
    count = sections[index, RECORD_COUNT]
    if count < 0 or count > (end - begin) // RECORD_BYTES_MIN:
        return -1
    at = begin
    delta_last: Word = np.int64(-1)
    for number in range(first, first + count):
        record = read_record(data, at, end)
        delta = record[4]
        if record[0] < 0 or delta <= delta_last or delta > sections[index, LAST_OFFSET_DELTA]:
            return -1
        rows[number, ROW_BEGIN] = at
        rows[number, ROW_END] = record[0]
        rows[number, ROW_BODY] = record[1]
        rows[number, ROW_TAIL] = record[2]
        rows[number, TIMESTAMP_DELTA] = record[3]
        rows[number, OFFSET] = sections[index, BASE_OFFSET] + delta
        rows[number, KEY_BEGIN] = record[5]
        rows[number, KEY_END] = record[6]
        rows[number, HAS_VALUE] = record[7] >= 0
        delta_last = delta
        at = record[0]
    return count if at == end else -1


@kernel
def list_keyless(data: Bytes, record_count: int, last_offset_delta: int, numbers: Numbers) -> int:
    """Count the records without a key, and list the first of them; return -1 if they are malformed."""
    at = 0
    found = 0
    delta_last: Word = np.int64(-1)
    for number in range(record_count):
        record = read_record(data, at, len(data))
        delta = record[4]
        if record[0] < 0 or delta <= delta_last or delta > last_offset_delta:
            return -1
        if record[5] < 0:
            if found < len(numbers):
                numbers[found] = number
            found += 1
        delta_last = delta
        at = record[0]
    return found if at == len(data) and record_count >= 0 else -1


@kernel
def read_sections(data: Bytes, sections: Numbers, rows: Numbers, counts: Numbers) -> int:
    """Fill the rows of all sections, and the number of rows of each, -1 if malformed; return the total."""
    total = 0
    for index in range(sections.shape[0]):
        counts[index] = read_section(data, sections, index, rows, total)
        total += max(counts[index], 0)
    return total


@kernel
def rows_needed(sections: Numbers) -> int:
    """The maximum number of rows of all sections."""
    total = 0
    for index in range(sections.shape[0]):
        room = (sections[index, END] - sections[index, BEGIN]) // RECORD_BYTES_MIN
        total += max(0, min(sections[index, RECORD_COUNT], room))
    return total
