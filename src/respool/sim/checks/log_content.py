"""The content of a replica's log, by batch or by record, for comparison with another replica's."""

from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from respool.log.partition_log import PartitionLog, ReadSpec
from respool.model.ids import Offset
from respool.model.topic_config import MIB
from respool.records.batch import BatchHeader, RecordBatch
from respool.records.record import read_records
from respool.records.validate import walk_batches


class StoredBatch(NamedTuple):
    base_offset: int
    last_offset: int
    leader_epoch: int
    # The checksum of all its stored bytes.
    crc: int


class StoredRecord(NamedTuple):
    """What compaction preserves of a record, if it keeps the record."""

    offset: int
    leader_epoch: int
    # The checksum of its key and value.
    crc: int


def batches_between(log: PartitionLog, start: Offset, end: Offset) -> list[StoredBatch]:
    """The batches from the one that contains `start` to the last one that lies entirely below `end`."""
    return [
        StoredBatch(header.base_offset, header.last_offset, header.leader_epoch, crc32(data))
        for header, data in _walk(log, start, end)
    ]


def records_between(log: PartitionLog, start: Offset, end: Offset) -> list[StoredRecord]:
    """The records of the same batches."""
    return [
        StoredRecord(
            record.offset,
            header.leader_epoch,
            crc32(record.value or b"", crc32(record.key or b"")),
        )
        for header, data in _walk(log, start, end)
        for record in read_records(RecordBatch(header, data), limit=MIB)
    ]


def _walk(
    log: PartitionLog, start: Offset, end: Offset
) -> Iterator[tuple[BatchHeader, bytes | memoryview]]:
    position = max(start, log.log_start)
    while position < end:
        data = log.read(ReadSpec(position, max_offset=end, bytes_max=1 << 20))
        before = position
        for at, header in walk_batches(data):
            yield header, data[at : at + header.size]
            position = header.next_offset
        if position == before:
            break
