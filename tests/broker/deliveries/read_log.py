"""Reads all records of a log, as a replica has them."""

from respool.log.partition_log import PartitionLog, ReadSpec
from respool.records.batch import RecordBatch
from respool.records.record import Record, read_records
from respool.records.validate import walk_batches


def read_log(log: PartitionLog) -> list[Record]:
    found: list[Record] = []
    offset = log.log_start
    while offset < log.log_end:
        data = bytes(log.read(ReadSpec(offset, max_offset=log.log_end, bytes_max=2**30)))
        for position, header in walk_batches(data):
            if not header.is_control:
                batch = RecordBatch(header, data[position : position + header.size])
                found += read_records(batch, limit=2**30)
            offset = header.next_offset
    return [one for one in found if one.offset >= log.log_start]
