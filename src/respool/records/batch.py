"""The record batch, format v2: a 61-byte header, and records that stay opaque.

```
 0            8        12       16     17     21          23               27
 | base offset | length | epoch | magic | crc | attributes | last offset delta |
 27              35             43            51               53              57      61
 | base timestamp | max timestamp | producer id | producer epoch | base sequence | count | records …
```
`length` counts the bytes after it. The crc (CRC-32C) covers everything from the attributes on, so the leader can write
base offset and leader epoch into a producer's batch without changing it.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from respool.model.config_rules import LONG_MAX
from respool.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset

HEADER_BYTES = 61
# Base offset and length: enough to find the end of a batch.
LENGTH_BYTES = 12
# Overwritten by the leader: base offset, length, leader epoch.
STAMP_BYTES = 16
MAGIC_AT = 16
CRC_AT = 17
CRC_COVERS_FROM = 21
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
# Set by compaction only: the base timestamp is the delete horizon of tombstones (KIP-534).
DELETE_HORIZON_BIT = 0x40

SEQUENCE_MAX = 2**31 - 1

_HEADER = Struct(">qiibIhiqqqhii")
_STAMP = Struct(">qii")
assert _HEADER.size == HEADER_BYTES
assert _STAMP.size == STAMP_BYTES


class Codec(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchHeader(NamedTuple):
    base_offset: Offset
    length: int
    leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes, header included."""
        return self.length + LENGTH_BYTES

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def codec_bits(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def latest_timestamp(self) -> int:
        """The records' largest timestamp; NO_TIMESTAMP if compaction left no records."""
        return self.max_timestamp if self.record_count else NO_TIMESTAMP

    def max_timestamp_of(self, timestamp_delta_max: int) -> int:
        """The max timestamp for those records whose largest timestamp delta is this.

        Under LogAppendTime it is the time of all records. A producer may write any delta: an implausible result leaves
        it unchanged.
        """
        largest = self.base_timestamp + timestamp_delta_max
        if self.is_log_append_time or not NO_TIMESTAMP <= largest <= LONG_MAX:
            return self.max_timestamp
        return largest

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """The last record's sequence; 0 follows 2^31-1."""
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


def read_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """Parse the header at `position`; the buffer must contain at least `HEADER_BYTES` from there."""
    return BatchHeader._make(_HEADER.unpack_from(buffer, position))


def pack_header(header: BatchHeader) -> bytes:
    return _HEADER.pack(*header)


def stamp(header: BatchHeader, *, base_offset: Offset, leader_epoch: LeaderEpoch) -> bytes:
    """The batch's first `STAMP_BYTES` as the leader writes them; the rest stays the producer's."""
    return _STAMP.pack(base_offset, header.length, leader_epoch)


class RecordBatch(NamedTuple):
    """A whole batch: its parsed header, and all its bytes including the header."""

    header: BatchHeader
    data: bytes | memoryview


# The length field of a batch without records: the header after that field.
LENGTH_MIN = HEADER_BYTES - LENGTH_BYTES


def seal(header: BatchHeader, records: bytes | bytearray | memoryview) -> RecordBatch:
    """Return a batch with correct length and checksum; those fields of `header` are ignored.

    Every batch that is built or changed goes through here, so only this function knows what the checksum covers.
    """
    crc = crc32c(records, crc32c(pack_header(header)[CRC_COVERS_FROM:]))
    header = header._replace(length=LENGTH_MIN + len(records), crc=crc)
    return RecordBatch(header, b"".join((pack_header(header), records)))


def crc_of(data: bytes | bytearray | memoryview) -> int:
    """The checksum that a whole batch should have. Does not copy."""
    return crc32c(memoryview(data)[CRC_COVERS_FROM:])


def records_of(batch: RecordBatch) -> memoryview:
    """The bytes after the header, still compressed. Does not copy."""
    return memoryview(batch.data)[HEADER_BYTES:]
