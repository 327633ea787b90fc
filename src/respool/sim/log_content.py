"""What a replica's log holds, batch by batch, for comparing it with another's."""

from typing import NamedTuple
from zlib import crc32

from respool.log.partition_log import PartitionLog
from respool.model.ids import Offset
from respool.records.validate import walk_batches


class StoredBatch(NamedTuple):
    base_offset: int
    last_offset: int
    leader_epoch: int
    # Of all its bytes as they are stored.
    crc: int


def batches_between(log: PartitionLog, start: Offset, end: Offset) -> list[StoredBatch]:
    """The batches from the one that holds `start` to the last that lies before `end` as a whole."""
    batches: list[StoredBatch] = []
    position = max(start, log.log_start)
    while position < end:
        data = log.read(position, max_offset=end, bytes_max=1 << 20, at_least_one=True)
        found = [
            StoredBatch(
                header.base_offset,
                header.last_offset,
                header.leader_epoch,
                crc32(data[at : at + header.size]),
            )
            for at, header in walk_batches(data)
        ]
        if not found:
            break
        batches += found
        position = Offset(found[-1].last_offset + 1)
    return batches
