"""Writes rows as records, one after the other. `records/record.py` shows the layout.

Kernels check no bounds. They stay inside because the caller has checked that every row exists, and the target of
`write_records` has the size computed by `add_sizes`, which is at least the size of every field.
"""

from typing import NamedTuple

import numpy as np

from respool.columnar.byte_column import ByteColumn
from respool.columnar.compiled import Bytes, Numbers, Word, kernel
from respool.columnar.raw_memory import copy_bytes
from respool.columnar.varint_kernels import varint_bytes, write_varint

# Marks a row that gets the time of encoding. No real timestamp is that early.
TIME_TO_COME = -(2**63)

_ATTRIBUTES_BYTES = 1


class HeaderColumns(NamedTuple):
    # The end of each row's headers, which start at the previous row's end. Empty without any headers.
    ends: Numbers
    keys: ByteColumn
    values: ByteColumn


@kernel
def part_bytes(length: Word) -> Word:
    """The encoded size of a key or value of this length, -1 for null."""
    return varint_bytes(length) + max(length, 0)


@kernel
def headers_bytes(headers: HeaderColumns, row: int) -> Word:
    """The encoded size of all headers of a row, with their count."""
    begin, end = header_span(headers.ends, row)
    key_lengths, value_lengths = headers.keys.lengths, headers.values.lengths
    size = varint_bytes(end - begin)
    for index in range(begin, end):
        size += part_bytes(key_lengths[index]) + part_bytes(value_lengths[index])
    return size


@kernel
def header_span(ends: Numbers, row: int) -> tuple[Word, Word]:
    """The range of a row's headers."""
    return (ends[row - 1] if row else np.int64(0)), ends[row]


@kernel
def add_sizes(
    key_lengths: Numbers,
    value_lengths: Numbers,
    headers: HeaderColumns,
    rows: Numbers,
    time_bytes: int,
    sizes: Numbers,
) -> None:
    """Fill the cumulated size of the records up to each row, with `time_bytes` for every timestamp delta."""
    has_headers = headers.ends.shape[0] > 0
    total: Word = 0
    for place in range(rows.shape[0]):
        row = rows[place]
        size = (
            _ATTRIBUTES_BYTES
            + time_bytes
            + varint_bytes(place)
            + part_bytes(key_lengths[row])
            + part_bytes(value_lengths[row])
            + (headers_bytes(headers, row) if has_headers else 1)
        )
        total += varint_bytes(size) + size
        sizes[place] = total


@kernel
def write_part(target: Bytes, at: Word, data: Bytes, begin: Word, length: Word) -> Word:
    at = write_varint(target, at, length)
    if length <= 0:
        return at
    return copy_bytes(data, begin, begin + length, target, at)


@kernel
def write_headers(target: Bytes, at: Word, headers: HeaderColumns, row: int) -> Word:
    begin, end = header_span(headers.ends, row)
    at = write_varint(target, at, end - begin)
    keys, values = headers.keys, headers.values
    for index in range(begin, end):
        at = write_part(target, at, keys.data, keys.begins[index], keys.lengths[index])
        at = write_part(target, at, values.data, values.begins[index], values.lengths[index])
    return at


@kernel
def write_records(
    keys: ByteColumn,
    values: ByteColumn,
    headers: HeaderColumns,
    timestamps: Numbers,
    rows: Numbers,
    base_timestamp: int,
    timestamp_given: int,
    target: Bytes,
) -> Word:
    """Write the records of these rows; return their end."""
    at: Word = 0
    key_data, key_begins, key_lengths = keys.data, keys.begins, keys.lengths
    value_data, value_begins, value_lengths = values.data, values.begins, values.lengths
    has_headers = headers.ends.shape[0] > 0
    for place in range(rows.shape[0]):
        row = rows[place]
        time_delta = time_of_row(timestamps, row, timestamp_given) - base_timestamp
        key_length, value_length = key_lengths[row], value_lengths[row]
        size = (
            _ATTRIBUTES_BYTES
            + varint_bytes(time_delta)
            + varint_bytes(place)
            + part_bytes(key_length)
            + part_bytes(value_length)
            + (headers_bytes(headers, row) if has_headers else 1)
        )
        at = write_varint(target, at, size)
        target[at] = 0
        at = write_varint(target, at + 1, time_delta)
        at = write_varint(target, at, place)
        at = write_part(target, at, key_data, key_begins[row], key_length)
        at = write_part(target, at, value_data, value_begins[row], value_length)
        if has_headers:
            at = write_headers(target, at, headers, row)
        else:
            target[at] = 0
            at += 1
    return at


@kernel
def time_of_row(timestamps: Numbers, row: int, timestamp_given: int) -> Word:
    """The row's own timestamp, or the given one if it has none."""
    if timestamps.shape[0] == 0:
        return timestamp_given
    timestamp = timestamps[row]
    return timestamp if timestamp != TIME_TO_COME else np.int64(timestamp_given)


@kernel
def time_span(timestamps: Numbers, rows: Numbers, timestamp_given: int) -> tuple[Word, Word, Word]:
    """The first row's timestamp, the earliest and the latest. There is at least one row."""
    first = time_of_row(timestamps, rows[0], timestamp_given)
    earliest, latest = first, first
    if timestamps.shape[0]:
        for place in range(rows.shape[0]):
            timestamp = time_of_row(timestamps, rows[place], timestamp_given)
            earliest, latest = min(earliest, timestamp), max(latest, timestamp)
    return first, earliest, latest
