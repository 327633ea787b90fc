"""Exact lookups by timestamp: the first record at or after a time, the record with the largest time.

Producers' timestamps are unordered within a batch, between batches and between segments. Indexes and header timestamps
exclude most batches; the one batch that may contain the record is decompressed.
"""

from typing import NamedTuple

from respool.log.batch_walk import BatchAt
from respool.log.segment import Segment
from respool.log.segments import Segments
from respool.model.errors import RequestError
from respool.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset
from respool.model.topic_config import MIB
from respool.ports.disk import NotCached
from respool.records.batch import BatchHeader
from respool.records.record import find_time, iterate_times

# Larger batches (decompressed) are not opened; the lookup stops at their first record.
DECOMPRESSED_BYTES_MAX = 128 * MIB
# Limits of a quick lookup: headers to skip, and the size of a batch to open.
QUICK_HEADERS_MAX = 32
QUICK_RECORDS_MAX = 200
QUICK_BYTES_MAX = 64 * 1024


class TimestampedOffset(NamedTuple):
    offset: Offset
    timestamp: int
    leader_epoch: LeaderEpoch


def find_first_at_or_after(
    segments: Segments,
    timestamp_ms: int,
    *,
    log_start: Offset,
    max_offset: Offset,
    quickly: bool = False,
) -> TimestampedOffset | None:
    """Return the first record in [log_start, max_offset) at or after that time; None if there is none.

    Raises:
        NotCached: `quickly`, and it would have to read the disk or take long.
    """
    passed = 0
    for segment in segments.all[segments.first_reaching(timestamp_ms, cached_only=quickly) :]:
        if segment.base_offset >= max_offset:
            return None
        if quickly and segment.size and not segment.has_indexes_open:
            raise NotCached
        if not segment.size or segment.largest.timestamp < timestamp_ms:
            continue
        indexed = segment.indexes().times.lookup(timestamp_ms)
        for batch in segment.walk_from(max(indexed, log_start), cached_only=quickly):
            header = batch.header
            if header.next_offset > max_offset:
                return None
            if header.latest_timestamp < timestamp_ms or header.last_offset < log_start:
                passed += 1
                if quickly and passed > QUICK_HEADERS_MAX:
                    raise NotCached
                continue
            found = _first_record(segment, batch, timestamp_ms, log_start, quickly=quickly)
            if found is not None:
                return found
    return None


def find_time_at(segments: Segments, offset: Offset, *, log_end: Offset) -> int | None:
    """Return the timestamp of the first record at or after `offset`, from its batch's header; None if there is none.

    Within a batch it is interpolated between the batch's first and largest timestamp, so the error is at most their
    difference. NO_TIMESTAMP if the record has none.
    """
    first = max(0, segments.index_of(offset))
    for segment in segments.all[first:]:
        for batch in segment.walk_from(max(offset, segment.base_offset)):
            header = batch.header
            if header.base_offset >= log_end:
                return None
            if header.last_offset >= offset and header.record_count:
                return _time_within(header, offset)
    return None


def _time_within(header: BatchHeader, offset: Offset) -> int:
    first, last, span = header.base_timestamp, header.max_timestamp, header.last_offset_delta
    # With a delete horizon, the base timestamp is the horizon.
    is_same = header.is_log_append_time or header.has_delete_horizon
    if is_same or not 0 <= first < last or not span:
        return last
    return first + (last - first) * max(0, offset - header.base_offset) // span


def find_latest(
    segments: Segments, *, log_start: Offset, max_offset: Offset
) -> TimestampedOffset | None:
    """Return the first record with the largest timestamp in [log_start, max_offset); None if none has a timestamp."""
    best: tuple[int, Segment, BatchAt] | None = None
    for segment in segments.all:
        if segment.base_offset >= max_offset or not segment.size:
            break
        if best is not None and segment.largest.timestamp <= best[0]:
            continue
        found = _latest_batch(segment, log_start, max_offset)
        if found is not None and (best is None or found[0] > best[0]):
            best = (found[0], segment, found[1])
    if best is None or best[0] < 0:
        return None
    timestamp, segment, batch = best
    return _first_record(segment, batch, timestamp, log_start)


def _latest_batch(
    segment: Segment, log_start: Offset, max_offset: Offset
) -> tuple[int, BatchAt] | None:
    """Return the largest timestamp between the two offsets and the first batch that has it."""
    if log_start <= segment.base_offset:
        return _latest_before(segment, max_offset)
    # Records at the segment's start are deleted but still in the indexes: check every header.
    best: tuple[int, BatchAt] | None = None
    for batch in segment.walk_from(log_start):
        header = batch.header
        if header.next_offset > max_offset:
            break
        if header.last_offset < log_start:
            continue
        timestamp = header.latest_timestamp
        if header.base_offset < log_start and header.record_count:
            timestamp = _latest_left(segment, batch, log_start)
        if best is None or timestamp > best[0]:
            best = (timestamp, batch)
    return best


def _latest_before(segment: Segment, offset: Offset) -> tuple[int, BatchAt] | None:
    """Return the largest timestamp of the batches that end before `offset`, and the first batch that has it."""
    # The time index is updated with every offset index entry. So what it does not cover comes after the last offset
    # entry.
    timestamp, last_offset = segment.indexes().times.before(offset)
    batch = segment.find(last_offset) if timestamp >= 0 else None
    best = (timestamp, batch) if batch is not None else None
    for following in segment.walk_from(Offset(offset - 1)):
        header = following.header
        if header.next_offset > offset:
            break
        if best is None or header.latest_timestamp > best[0]:
            best = (header.latest_timestamp, following)
    return best


def _latest_left(segment: Segment, batch: BatchAt, log_start: Offset) -> int:
    """The largest timestamp of the records from `log_start` on; NO_TIMESTAMP if compaction left none."""
    try:
        times = iterate_times(segment.read_batch(batch), limit=DECOMPRESSED_BYTES_MAX)
        return max((time for offset, time in times if offset >= log_start), default=NO_TIMESTAMP)
    except RequestError:
        return batch.header.max_timestamp


def _is_small(header: BatchHeader) -> bool:
    """True if opening the batch is quick."""
    return (
        header.record_count <= QUICK_RECORDS_MAX
        and header.size <= QUICK_BYTES_MAX
        and not header.codec_bits
    )


def _first_record(
    segment: Segment,
    batch: BatchAt,
    timestamp_ms: int,
    log_start: Offset,
    *,
    quickly: bool = False,
) -> TimestampedOffset | None:
    """Return the batch's first record at or after `log_start` with that time or a later one."""
    header = batch.header
    if quickly and not _is_small(header):
        raise NotCached
    opened = segment.read_batch(batch, cached_only=quickly)
    try:
        found = find_time(opened, timestamp_ms, from_offset=log_start, limit=DECOMPRESSED_BYTES_MAX)
        if found is not None:
            return TimestampedOffset(*found, header.leader_epoch)
        if header.base_offset < log_start:
            # The matching record was deleted.
            return None
    except RequestError:
        pass
    # Stored batches are not validated inside: one may be garbage, or have no record with its header's timestamp. That
    # is no corruption of ours. If the batch cannot be read, its header counts, so that one such batch does not make us
    # open all later ones.
    offset = max(header.base_offset, log_start)
    return TimestampedOffset(offset, header.max_timestamp, header.leader_epoch)
