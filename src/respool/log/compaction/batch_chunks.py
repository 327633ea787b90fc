"""Reads a segment's batches in large validated chunks: corruption must not be copied into a new file."""

from collections.abc import Iterator
from typing import NamedTuple

from respool.log.batch_walk import BatchAt
from respool.log.segment import Segment
from respool.model.errors import SegmentCorrupt
from respool.records.batch import HEADER_BYTES, LENGTH_BYTES, LENGTH_MIN, MAGIC, read_header
from respool.records.validate import check_stored

# A few milliseconds of work between reads, so that other threads can run.
READ_BYTES = 64 * 1024


class BatchChunk(NamedTuple):
    """Consecutive whole batches; their positions are relative to `data`."""

    data: memoryview
    batches: list[BatchAt]
    # True if the segment ends with them.
    is_last: bool

    def bytes_of(self, batch: BatchAt) -> memoryview:
        return self.data[batch.position : batch.position + batch.header.size]


def read_chunks(segment: Segment) -> Iterator[BatchChunk]:
    """Yield all batches of a segment that is not being written. From any thread.

    Raises:
        SegmentCorrupt: a checksum fails, or a batch is misplaced.
    """
    position, wanted, next_offset = 0, READ_BYTES, segment.base_offset
    while position < segment.size:
        data = memoryview(segment.read(position, min(wanted, segment.size - position)))
        batches, end = _batches_in(data, segment, position)
        if not batches:
            # Not even one whole batch was read.
            wanted = read_header(data).size
            continue
        for batch in batches:
            if batch[1].base_offset < next_offset:
                raise SegmentCorrupt(
                    f"{segment.path}: offset {batch[1].base_offset} comes after {next_offset - 1}"
                )
            next_offset = batch[1].next_offset
        position += end
        wanted = READ_BYTES
        yield BatchChunk(data[:end], batches, position == segment.size)


def _batches_in(data: memoryview, segment: Segment, position: int) -> tuple[list[BatchAt], int]:
    """Return the whole batches read at this position, and the end of the last one."""
    batches: list[BatchAt] = []
    at, end = 0, len(data)
    bytes_left = segment.size - position - LENGTH_BYTES
    while at + HEADER_BYTES <= end:
        header = read_header(data, at)
        length = header.length
        if header.magic != MAGIC or not LENGTH_MIN <= length <= bytes_left - at:
            raise SegmentCorrupt(
                f"{segment.path}: no batch at byte {position + at} of {segment.size}: "
                f"magic {header.magic}, length {length}"
            )
        following = at + length + LENGTH_BYTES
        if following > end:
            break
        if not check_stored(header, data[at:following]):
            raise SegmentCorrupt(
                f"{segment.path}: the batch at byte {position + at}, offset {header.base_offset}, is damaged"
            )
        batches.append(BatchAt(at, header))
        at = following
    if not batches and end < HEADER_BYTES:
        raise SegmentCorrupt(
            f"{segment.path}: {end} bytes at byte {position} of {segment.size}, a header has {HEADER_BYTES}"
        )
    return batches, at
