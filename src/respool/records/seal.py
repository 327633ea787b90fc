"""A header and records -> a batch whose length and checksum are right.

Everything that makes or changes a batch ends here, so there is one place that knows what the checksum covers.
"""

from crc32c import crc32c

from respool.records.batch import (
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_BYTES,
    BatchHeader,
    RecordBatch,
    pack_header,
)

# What the length field says of a batch without records: the header after that field.
LENGTH_MIN = HEADER_BYTES - LENGTH_BYTES


def seal(header: BatchHeader, records: bytes | bytearray | memoryview) -> RecordBatch:
    """Join them; `length` and `crc` of the header given do not matter."""
    crc = crc32c(records, crc32c(pack_header(header)[CRC_COVERS_FROM:]))
    header = header._replace(length=LENGTH_MIN + len(records), crc=crc)
    return RecordBatch(header, b"".join((pack_header(header), records)))


def crc_of(data: bytes | bytearray | memoryview) -> int:
    """The checksum a whole batch should carry. Does not copy."""
    return crc32c(memoryview(data)[CRC_COVERS_FROM:])


def records_of(batch: RecordBatch) -> memoryview:
    """What follows the header, compressed as it is. Does not copy."""
    return memoryview(batch.data)[HEADER_BYTES:]
