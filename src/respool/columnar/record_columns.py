"""Sections of records -> columns, in two steps: locate all fields, then copy the bytes of each wanted column.

The first step reads and validates every record once; it fills the fixed-width columns, and for keys and values their
position and their end in the column. So the second step knows exactly how much memory it needs.

Kernels check no bounds. They stay inside because a section is within the data, `read_varint` stops at the given end,
and every length is compared with the remaining bytes before it is used.
"""

from typing import NamedTuple

import numpy as np

from respool.columnar.batch_headers import (
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BEGIN,
    END,
    IS_LOG_APPEND_TIME,
    LAST_OFFSET_DELTA,
    MAX_TIMESTAMP,
    RECORD_COUNT,
)
from respool.columnar.clause_tables import ALL_CLAUSES, ClauseTables, match_record
from respool.columnar.compiled import Bytes, Numbers, Places, Word, kernel
from respool.columnar.raw_memory import copy_bytes
from respool.columnar.record_table import HEADER_BYTES_MIN, RECORD_BYTES_MIN, read_record
from respool.columnar.varint_kernels import INT_BITS, read_varint

# The wanted records: offset and timestamp bounds, inclusive.
OFFSET_FIRST, OFFSET_LAST, TIME_FIRST, TIME_LAST = range(4)

# The wanted columns, as bits.
WANT_KEY, WANT_VALUE, WANT_OFFSET, WANT_TIMESTAMP, WANT_TIMESTAMP_TYPE, WANT_HEADERS = (
    1 << bit for bit in range(6)
)

# Faults of a section.
NO_FAULT, FAULT_COUNT, FAULT_RECORD, FAULT_DELTA, FAULT_TIME, FAULT_HEADERS, FAULT_END = range(7)


@kernel
def read_header(data: Bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """Parse one header at `at`: begin and end of its key, begin and end of its value (begin -1 for null).

    The value's end is -1 if it is malformed.
    """
    broken = (0, 0, 0, -1)
    key_length, key_begin = read_varint(data, at, end, INT_BITS)
    if key_begin < 0 or key_length < 0 or key_length > end - key_begin:
        return broken
    key_end = key_begin + key_length
    value_length, value_begin = read_varint(data, key_end, end, INT_BITS)
    if value_begin < 0 or value_length < -1 or value_length > end - value_begin:
        return broken
    if value_length < 0:
        return key_begin, key_end, -1, value_begin
    return key_begin, key_end, value_begin, value_begin + value_length


@kernel
def count_headers(data: Bytes, begin: int, end: int) -> int:
    """The number of headers in data[begin:end], which starts with their count; -1 if they do not fill it exactly."""
    count, at = read_varint(data, begin, end, INT_BITS)
    if at < 0 or count < 0 or count > (end - at) // HEADER_BYTES_MIN:
        return -1
    for _ in range(count):
        at = read_header(data, at, end)[3]
        if at < 0:
            return -1
    return count if at == end else -1


class ColumnRoom(NamedTuple):
    """The target arrays. A column that is not wanted has none.

    `*_begins` are positions in the data, -1 for null; `*_ends` are positions in the column, starting with 0.
    """

    offsets: Numbers
    timestamps: Numbers
    timestamp_types: Bytes
    key_begins: Numbers
    key_ends: Places
    value_begins: Numbers
    value_ends: Places
    header_begins: Numbers
    header_ends: Places


@kernel
def locate(
    data: Bytes,
    sections: Numbers,
    bounds: Numbers,
    clauses: ClauseTables,
    wanted: int,
    room: ColumnRoom,
) -> tuple[int, int, int]:
    """Parse all records of all sections; fill a row for each one within bounds for which the clauses hold.

    Returns the number of rows, NO_FAULT and 0; or the fault of the first section that does not match its batch header,
    and that section.
    """
    row = 0
    for index in range(sections.shape[0]):
        row, fault = locate_section(data, sections[index], bounds, clauses, wanted, room, row)
        if fault != NO_FAULT:
            return row, fault, index
    return row, NO_FAULT, 0


@kernel
def locate_section(
    data: Bytes,
    section: Numbers,
    bounds: Numbers,
    clauses: ClauseTables,
    wanted: int,
    room: ColumnRoom,
    row: Word,
) -> tuple[Word, int]:
    """Fill rows from `row` on; return their end, and the fault."""
    # Outside of the loop: taking an array out of a tuple costs reference counting each time.
    offsets, timestamps, timestamp_types = room.offsets, room.timestamps, room.timestamp_types
    key_begins, key_ends = room.key_begins, room.key_ends
    value_begins, value_ends = room.value_begins, room.value_ends
    header_begins, header_ends = room.header_begins, room.header_ends
    tests, values, text, masks = clauses.tests, clauses.values, clauses.text, clauses.masks
    is_conditional = masks[ALL_CLAUSES] != 0

    at, section_end, count = section[BEGIN], section[END], section[RECORD_COUNT]
    if count < 0 or count > (section_end - at) // RECORD_BYTES_MIN:
        return row, FAULT_COUNT
    delta_last: Word = np.int64(-1)
    for _ in range(count):
        record = read_record(data, at, section_end)
        at, time_delta, delta, value_end = record[0], record[3], record[4], record[8]
        if at < 0:
            return row, FAULT_RECORD
        if delta <= delta_last or delta > section[LAST_OFFSET_DELTA]:
            return row, FAULT_DELTA
        delta_last = delta
        offset = section[BASE_OFFSET] + delta
        timestamp, fits = time_of(section, time_delta)
        if not fits:
            return row, FAULT_TIME
        verdict = 1
        if is_conditional:
            verdict = match_record(
                data, record[5], record[6], record[7], value_end, at, tests, values, text, masks
            )
        headers: Word = 0
        # Nearly always there are none.
        if verdict > 0 and wanted & WANT_HEADERS and (value_end + 1 != at or data[value_end] != 0):
            headers = count_headers(data, value_end, at)
        if verdict < 0 or headers < 0:
            return row, FAULT_HEADERS
        if verdict and is_within(bounds, offset, timestamp):
            put_number(wanted & WANT_OFFSET, offsets, row, offset)
            put_number(wanted & WANT_TIMESTAMP, timestamps, row, timestamp)
            put_number(
                wanted & WANT_TIMESTAMP_TYPE, timestamp_types, row, section[IS_LOG_APPEND_TIME]
            )
            put_place(wanted & WANT_KEY, key_begins, key_ends, row, record[5], record[6])
            put_place(wanted & WANT_VALUE, value_begins, value_ends, row, record[7], value_end)
            if wanted & WANT_HEADERS:
                header_begins[row] = value_end
                header_ends[row + 1] = header_ends[row] + headers
            row += 1
    return row, NO_FAULT if at == section_end else FAULT_END


@kernel
def time_of(section: Numbers, delta: Word) -> tuple[Word, bool]:
    """A record's timestamp, and whether it fits 64 bits."""
    if section[IS_LOG_APPEND_TIME]:
        return section[MAX_TIMESTAMP], True
    base = section[BASE_TIMESTAMP]
    timestamp = base + delta
    # It overflowed if the sum's sign differs from that of both operands.
    return timestamp, ((base ^ timestamp) & (delta ^ timestamp)) >= 0


@kernel
def is_within(bounds: Numbers, offset: int, timestamp: int) -> Word:
    return (
        bounds[OFFSET_FIRST] <= offset <= bounds[OFFSET_LAST]
        and bounds[TIME_FIRST] <= timestamp <= bounds[TIME_LAST]
    )


@kernel
def put_number(is_wanted: int, column: Numbers | Bytes, row: int, number: int) -> None:
    if is_wanted:
        column[row] = number


@kernel
def put_place(
    is_wanted: int, begins: Numbers, ends: Places, row: int, begin: int, end: int
) -> None:
    """Store the row's position, and its end in the column; a null row, at -1, is empty."""
    if is_wanted:
        begins[row] = begin
        ends[row + 1] = ends[row] + (end - begin if begin >= 0 else 0)


@kernel
def locate_headers(
    data: Bytes,
    header_begins: Numbers,
    header_ends: Places,
    rows: int,
    key_begins: Numbers,
    key_ends: Places,
    value_begins: Numbers,
    value_ends: Places,
) -> None:
    """As `locate`, for the headers of rows that `locate` has validated."""
    for row in range(rows):
        if header_ends[row] == header_ends[row + 1]:
            continue
        # Validated before: the end of the data cannot be reached.
        _, at = read_varint(data, header_begins[row], len(data), INT_BITS)
        for header in range(header_ends[row], header_ends[row + 1]):
            key_begin, key_end, value_begin, at = read_header(data, at, len(data))
            put_place(1, key_begins, key_ends, header, key_begin, key_end)
            put_place(1, value_begins, value_ends, header, value_begin, at)


@kernel
def gather(data: Bytes, begins: Numbers, ends: Places, rows: int, target: Bytes) -> None:
    """Copy the bytes of each row to its place in the column."""
    for row in range(rows):
        # A null row is empty in the column, so nothing is copied.
        copy_bytes(data, begins[row], begins[row] + ends[row + 1] - ends[row], target, ends[row])


@kernel
def mark_valid(begins: Numbers, rows: int, bitmap: Bytes) -> None:
    """Set the bit of each row that is not null; the bitmap starts as zeros."""
    for row in range(rows):
        if begins[row] >= 0:
            bitmap[row >> 3] |= np.uint8(1 << (row & 7))
