"""Offset -> stored bytes: which segment, from where, and where to stop. Runs in any thread."""

from typing import NamedTuple

from respool.log.batch_walk import BatchAt
from respool.log.segment import Segment
from respool.log.segments import LogPoint, Segments
from respool.model.errors import OffsetOutOfRange
from respool.model.ids import Offset
from respool.records.batch import CRC_COVERS_FROM, pack_header


class StoredRange(NamedTuple):
    """Bytes of one segment."""

    segment: Segment
    position: int
    size: int
    # No batch in it ends behind this offset; the last one may end before.
    end: Offset
    # How its first batch begins, up to the checksum: it is that very batch, in this very log.
    head: bytes


def find_batches(
    segments: Segments,
    offset: Offset,
    *,
    end: LogPoint,
    synced: LogPoint,
    max_offset: Offset,
    bytes_max: int,
    at_least_one: bool,
    cached_only: bool,
    with_empty: bool = False,
) -> StoredRange | None:
    """Where the batches are in [offset, max_offset), both of which the segments reach; see `PartitionLog.read`.

    None: there is no whole one.

    `end` and `synced` are points already known: one of them is where most readers stop.
    """
    index = segments.index_of(offset)
    segment = segments.all[index]
    first = segment.find(offset, cached_only=cached_only)
    if first is None:
        # No batch of this segment reaches that far, so the next one begins with it.
        index += 1
        segment = segments.all[min(index, len(segments) - 1)]
        first = segment.find(offset, cached_only=cached_only)
        if first is None:
            raise OffsetOutOfRange(f"offset {offset} was cut off while it was being read")
    if not first.header.record_count and not with_empty:
        # librdkafka takes an answer without records for one that was cut too short, and after some of them gives up.
        index, first = _pass_empty(segments, index, first, max_offset, cached_only=cached_only)
        segment = segments.all[index]
    position, header = first
    stop = position + (max(bytes_max, header.size) if at_least_one else bytes_max)
    if segment is not end.segment and max_offset >= segments.end_of(index, log_end=end.offset):
        stop = min(stop, segment.size)
    else:
        for point in (end, synced):
            if point.offset == max_offset and point.segment is segment:
                stop = min(stop, point.position)
                break
        else:
            stop = _stop_before(segment, max_offset, stop, cached_only=cached_only)
    if stop - position < header.size:
        return None
    segment_end = segments.end_of(index, log_end=end.offset)
    return StoredRange(
        segment,
        position,
        stop - position,
        min(max_offset, segment_end),
        pack_header(header)[:CRC_COVERS_FROM],
    )


def _pass_empty(
    segments: Segments, index: int, first: BatchAt, max_offset: Offset, *, cached_only: bool
) -> tuple[int, BatchAt]:
    """The next batch that has records, and its segment's index; `first` itself where none comes before `max_offset`.

    Compaction leaves headers without records, for producers' sake. Readers need them only to get past them.
    """
    offset = first.header.next_offset
    for later in range(index, len(segments)):
        segment = segments.all[later]
        for batch in segment.walk_from(max(offset, segment.base_offset), cached_only=cached_only):
            if batch.header.next_offset > max_offset:
                return index, first
            if batch.header.record_count and batch.header.base_offset >= offset:
                return later, batch
    return index, first


def _stop_before(segment: Segment, max_offset: Offset, stop: int, *, cached_only: bool) -> int:
    """Move `stop` back to where the batches before `max_offset` end, if it lies beyond."""
    if stop <= segment.floor_position(max_offset):
        return stop
    beyond = segment.find(max_offset, cached_only=cached_only)
    return min(stop, beyond.position if beyond is not None else segment.size)
