"""The aborted transactions in a fetch's records, for read_committed consumers, which filter them out themselves."""

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
    """Producer id and first offset of each transaction with aborted records from `offset` on in these.

    Raises:
        NotCached: `cached_only`, and something would have to come from the disk.
    """
    if not log.has_aborted_from(offset):
        return []
    end = records.end if isinstance(records, TailBatches) else end_of(records)
    found = log.aborted_in(offset, end, cached_only=cached_only)
    return [(one.producer_id, one.first_offset) for one in found]


def end_of(records: bytes | memoryview) -> Offset:
    """The offset after the last whole batch; the first one is whole."""
    # Only the three fields that are needed: this is done for every batch that a read_committed reader gets.
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
