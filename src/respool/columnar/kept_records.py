"""The records that stay, written one after the other into a new section."""

import numpy as np

from respool.columnar.compiled import Bytes, Numbers, kernel
from respool.columnar.raw_memory import copy_bytes
from respool.columnar.record_table import (
    ROW_BEGIN,
    ROW_BODY,
    ROW_END,
    ROW_TAIL,
    TIMESTAMP_DELTA,
)
from respool.columnar.varint import varint_bytes, write_varint

# How much longer a record can get by another timestamp delta: that number, and its own length.
RECORD_GROWTH_MAX = 15


@kernel
def copy_kept(
    data: Bytes, rows: Numbers, first: int, count: int, stays: Numbers, target: Bytes
) -> int:
    """Copy the rows that stay as they are; return how many bytes that makes."""
    at = 0
    number, last = first, first + count
    while number < last:
        if not stays[number]:
            number += 1
            continue
        # Neighbours go together.
        begin = rows[number, ROW_BEGIN]
        while number + 1 < last and stays[number + 1]:
            number += 1
        at = copy_bytes(data, begin, rows[number, ROW_END], target, at)
        number += 1
    return at


@kernel
def copy_kept_shifted(
    data: Bytes, rows: Numbers, first: int, count: int, stays: Numbers, shift: int, target: Bytes
) -> int:
    """The same with `shift` added to each timestamp delta."""
    at = 0
    for number in range(first, first + count):
        if not stays[number]:
            continue
        delta = np.int64(rows[number, TIMESTAMP_DELTA]) + np.int64(shift)
        body, tail, end = rows[number, ROW_BODY], rows[number, ROW_TAIL], rows[number, ROW_END]
        at = write_varint(target, at, 1 + varint_bytes(delta) + end - tail)
        # The attributes.
        at = copy_bytes(data, body, body + 1, target, at)
        at = write_varint(target, at, delta)
        at = copy_bytes(data, tail, end, target, at)
    return at
