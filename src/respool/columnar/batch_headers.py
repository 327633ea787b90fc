"""Parses the headers of many batches into one table, a row per batch. `records/batch.py` shows the layout.

Only headers are read here, and only of whole batches.
"""

import numpy as np

from respool.columnar.compiled import Bytes, Numbers, Word, kernel
from respool.records.batch import (
    HEADER_BYTES,
    LENGTH_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_AT,
)

# A row. The fields that its records must match come first: `record_columns` reads that part, as for any section.
(
    BEGIN,
    END,
    RECORD_COUNT,
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    IS_LOG_APPEND_TIME,
    ATTRIBUTES,
    CRC,
    PRODUCER_ID,
) = range(11)
SECTION_COLUMNS = 8
HEADER_COLUMNS = 11

# Why a walk ended: end of data, an incomplete batch, no batch, or implausible offsets.
ENDED, INCOMPLETE, OTHER_FORMAT, BAD_LENGTH, BAD_OFFSETS = range(5)

_OFFSET_MAX = 2**63 - 1


@kernel
def read_int(data: Bytes, at: int, size: int) -> Word:
    """Read a signed big-endian number of `size` bytes."""
    number = np.uint64(0)
    for place in range(size):
        number = (number << np.uint64(8)) | np.uint64(data[at + place])
    spare = np.int64(64 - 8 * size)
    return (np.int64(number) << spare) >> spare


@kernel
def walk_headers(data: Bytes, table: Numbers) -> tuple[int, Word, int]:
    """Fill a row per whole batch, as long as the table has space.

    Returns the number of whole batches, the position after them, and why the walk ended there.
    """
    at: Word = np.int64(0)
    count = 0
    offset_min: Word = np.int64(0)
    while data.shape[0] - at >= LENGTH_BYTES:
        left = data.shape[0] - at
        size = read_int(data, at + 8, 4) + LENGTH_BYTES
        if left > MAGIC_AT and data[at + MAGIC_AT] != MAGIC:
            return count, at, OTHER_FORMAT
        if size < HEADER_BYTES:
            return count, at, BAD_LENGTH
        if size > left:
            return count, at, INCOMPLETE
        base_offset, last_delta = read_int(data, at, 8), read_int(data, at + 23, 4)
        # No batch ends with the largest possible offset: the next offset must exist.
        if base_offset < offset_min or last_delta < 0 or base_offset >= _OFFSET_MAX - last_delta:
            return count, at, BAD_OFFSETS
        offset_min = base_offset + last_delta + 1
        if count < table.shape[0]:
            fill_row(data, at, size, table[count])
        count += 1
        at += size
    return count, at, ENDED


@kernel
def fill_row(data: Bytes, at: int, size: int, row: Numbers) -> None:
    attributes = read_int(data, at + 21, 2)
    row[BEGIN] = at + HEADER_BYTES
    row[END] = at + size
    row[RECORD_COUNT] = read_int(data, at + 57, 4)
    row[BASE_OFFSET] = read_int(data, at, 8)
    row[LAST_OFFSET_DELTA] = read_int(data, at + 23, 4)
    row[BASE_TIMESTAMP] = read_int(data, at + 27, 8)
    row[MAX_TIMESTAMP] = read_int(data, at + 35, 8)
    row[IS_LOG_APPEND_TIME] = (attributes & LOG_APPEND_TIME_BIT) != 0
    row[ATTRIBUTES] = attributes
    row[CRC] = read_int(data, at + 17, 4) & 0xFFFFFFFF
    row[PRODUCER_ID] = read_int(data, at + 43, 8)
