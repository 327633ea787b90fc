"""Offset -> stored bytes: which segment, first and last position. Runs in any thread."""

from typing import NamedTuple

from respool.log.batch_walk import BatchAt
from respool.log.segment import Segment
from respool.log.segments import LogPoint, Segments
from respool.model.errors import OffsetOutOfRange
from respool.model.ids import Offset
from respool.records.batch import CRC_COVERS_FROM, pack_header


class ReadSpec(NamedTuple):
    """Which stored batches to read.

    The first is the batch that holds `offset`, which may begin before it. If that batch is deleted, or compaction
    removed all its records, it is the next batch that has records.
    """

    offset: Offset
    # Only batches that end before or at this offset are read.
    max_offset: Offset
    # The result may end within a batch here, or at a segment's end.
    bytes_max: int
    # A first batch larger than `bytes_max` is read whole instead of not at all.
    at_least_one: bool = True
    # Raise NotCached instead of reading from the disk.
    cached_only: bool = False
    # Include headers that compaction left without records. They hold producer state, which a replica needs.
    with_empty: bool = False


class StoredRange(NamedTuple):
    """Bytes of one segment."""

    segment: Segment
    position: int
    size: int
    # No batch in it ends after this offset; the last one may end before it.
    end: Offset
    # The first batch's bytes up to the checksum: they identify this batch in this log.
    head: bytes


def find_batches(
    segments: Segments, spec: ReadSpec, *, end: LogPoint, synced: LogPoint
) -> StoredRange | None:
    """Locate the batches to read; None when there is no whole one.

    The segments reach both offsets of `spec`. `end` and `synced` are known points; most reads end at one of them.
    """
    offset, max_offset, bytes_max, at_least_one, cached_only, with_empty = spec
    assert offset < max_offset <= end.offset
    index = segments.index_of(offset)
    segment = segments.all[index]
    first = segment.find(offset, cached_only=cached_only)
    if first is None:
        # Every batch of this segment ends before the offset, so the next segment starts with the batch.
        index += 1
        segment = segments.all[min(index, len(segments) - 1)]
        first = segment.find(offset, cached_only=cached_only)
        if first is None:
            raise OffsetOutOfRange(f"offset {offset} was truncated during the read")
    if not first.header.record_count and not with_empty:
        # librdkafka takes a reply without records for a truncated one, and fails after a few of them.
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
    """Return the next batch with records and its segment's index; `first` if there is none before `max_offset`.

    Compaction keeps headers without records for producer state. Consumers only skip them.
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
    """Lower `stop` to the end of the batches before `max_offset`."""
    if stop <= segment.floor_position(max_offset):
        return stop
    beyond = segment.find(max_offset, cached_only=cached_only)
    return min(stop, beyond.position if beyond is not None else segment.size)
