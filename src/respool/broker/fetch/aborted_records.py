"""The aborted transactions in fetched records, by which read_committed consumers filter out aborted records."""

from struct import Struct

from respool.log.partition_log import PartitionLog, TailBatches
from respool.model.ids import Offset
from respool.records.batch import LENGTH_BYTES

_BASE_OFFSET_AND_LENGTH = Struct(">qi").unpack_from
_LAST_OFFSET_DELTA = Struct(">i").unpack_from
_LAST_OFFSET_DELTA_AT = 23


def aborted_among(
    log: PartitionLog,
    offset: Offset,
    records: bytes | memoryview | TailBatches,
    *,
    cached_only: bool,
) -> list[tuple[int, int]]:
    """Return producer id and first offset of each transaction with aborted records in `records`, from `offset` on.

    Raises:
        NotCached: `cached_only`, and an index would have to be read from disk.
    """
    if not log.has_aborted_from(offset):
        return []
    end = records.end if isinstance(records, TailBatches) else end_of(records)
    found = log.aborted_in(offset, end, cached_only=cached_only)
    return [(one.producer_id, one.first_offset) for one in found]


def end_of(records: bytes | memoryview) -> Offset:
    """Return the offset after the last complete batch; the first batch is always complete."""
    # Reads only the three needed fields: this runs for every batch sent to a read_committed consumer.
    position, size = 0, len(records)
    last = 0
    while position + LENGTH_BYTES <= size:
        _, length = _BASE_OFFSET_AND_LENGTH(records, position)
        following = position + LENGTH_BYTES + length
        if following > size:
            break
        last, position = position, following
    base_offset, _ = _BASE_OFFSET_AND_LENGTH(records, last)
    return Offset(base_offset + _LAST_OFFSET_DELTA(records, last + _LAST_OFFSET_DELTA_AT)[0] + 1)
