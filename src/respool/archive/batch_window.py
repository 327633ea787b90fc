"""Finds whole batches in a piece of an archived segment."""

from typing import NamedTuple

from respool.model.ids import Offset
from respool.records.batch import HEADER_BYTES, BatchHeader, read_header


class BatchWindow(NamedTuple):
    """The batches to serve are `data[begin:end]`; `end == begin` if there is none yet."""

    begin: int
    end: int
    # The offset after the last of them.
    next_offset: Offset
    # The size that the piece needs to hold one batch; 0 if it holds one, or none follows.
    bytes_needed: int


def find_window(
    data: memoryview,
    *,
    offset: Offset,
    max_offset: Offset,
    bytes_max: int,
    at_least_one: bool = True,
    with_empty: bool = False,
) -> BatchWindow:
    """Find the batches from the one with `offset` on that end at or before `max_offset`.

    `data` begins with a batch that begins at or before the one with `offset`. More than `bytes_max` only for a first
    batch that is larger. Batches without records, which only compaction leaves, are passed over unless asked for.
    """
    position, size = 0, len(data)
    begin = -1
    next_offset = offset
    while position < size:
        if position + HEADER_BYTES > size:
            needed = position + HEADER_BYTES
            break
        header = read_header(data, position)
        end = position + header.size
        if header.last_offset < offset or (
            begin < 0 and not header.record_count and not with_empty
        ):
            if header.next_offset > max_offset:
                return BatchWindow(position, position, next_offset, 0)
            next_offset = max(next_offset, header.next_offset)
            position = end
            continue
        if header.next_offset > max_offset:
            return _found(begin, position, next_offset, 0)
        if begin < 0:
            if end > size:
                return BatchWindow(position, position, next_offset, end)
            if header.size > bytes_max and not at_least_one:
                return BatchWindow(position, position, next_offset, 0)
            begin = position
        elif end > size or end - begin > bytes_max:
            return _found(begin, position, next_offset, 0)
        next_offset = header.next_offset
        position = end
    else:
        needed = position + HEADER_BYTES
    return _found(begin, position, next_offset, needed)


def _found(begin: int, end: int, next_offset: Offset, needed: int) -> BatchWindow:
    if begin < 0:
        return BatchWindow(end, end, next_offset, needed)
    return BatchWindow(begin, end, next_offset, 0)


def headers_in(data: memoryview) -> list[tuple[int, BatchHeader]]:
    """The positions and headers of the whole batches."""
    found = []
    position = 0
    while position + HEADER_BYTES <= len(data):
        header = read_header(data, position)
        if position + header.size > len(data):
            break
        found.append((position, header))
        position += header.size
    return found
