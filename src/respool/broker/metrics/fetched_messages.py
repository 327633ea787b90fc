"""Bytes and messages that consumers fetch from a topic, counted from batch headers alone."""

from struct import Struct

from respool.broker.partitions.partition import Partition
from respool.broker.views.filtered_records import FilteredRecords
from respool.log.partition_log import TailBatches
from respool.records.batch import HEADER_BYTES, LENGTH_BYTES
from respool.wire.hot_replies import FetchedPartition

# Headers read per reply and partition; the rest is extrapolated. Takes about 25 us.
HEADERS_MAX = 128

# base offset, length ... record count: see `records/batch.py`.
_HEAD = Struct(">qi45xi")
assert _HEAD.size == HEADER_BYTES


def count_served(partition: Partition, fetched: FetchedPartition, *, fetch_offset: int) -> None:
    """Count the records that a consumer gets from the partition, from `fetch_offset` on."""
    traffic, records = partition.traffic, fetched.records
    traffic.bytes_out += fetched.record_bytes
    if isinstance(records, FilteredRecords):
        traffic.messages_out += records.message_count
    elif isinstance(records, TailBatches):
        traffic.messages_out += max(0, records.end - fetch_offset)
    elif isinstance(records, bytes | memoryview) and fetched.file_range is None:
        traffic.messages_out += messages_in(records, fetch_offset)
    elif partition.is_online:
        # A local read: the broker has not seen the records, so their number is estimated.
        log = partition.log
        offsets = log.log_end - log.first_base_offset
        traffic.messages_out += fetched.record_bytes * offsets // max(1, log.size_bytes)


def messages_in(records: bytes | memoryview, fetch_offset: int) -> int:
    """Count messages from `fetch_offset` on; the result is an estimate for more than `HEADERS_MAX` batches."""
    count = position = headers = 0
    size = len(records)
    while size - position >= HEADER_BYTES:
        base_offset, length, record_count = _HEAD.unpack_from(records, position)
        after = position + LENGTH_BYTES + length
        if length <= 0 or after > size:
            # An incomplete batch: the next fetch returns it completely.
            break
        count += record_count
        if base_offset < fetch_offset:
            # The reader has the messages before `fetch_offset`; fewer if compaction removed some of them.
            count -= min(record_count, fetch_offset - base_offset)
        position = after
        headers += 1
        if headers == HEADERS_MAX:
            return int(count * size // position)
    return int(count)
