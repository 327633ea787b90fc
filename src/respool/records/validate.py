"""Validates a produced batch, and adapts it to topic settings, by its header and checksum only.

Records are not parsed, so the cost is per batch. Properties that only the records show are not checked here: their
number, and whether their timestamps match the header.

`walk_batches` and `check_stored` are for stored batches, in which compaction may have left gaps.
"""

from collections.abc import Iterator
from typing import Never

from respool.model.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    TimestampOutOfRange,
    UnsupportedForMessageFormat,
)
from respool.model.ids import NO_PRODUCER_ID, NO_TIMESTAMP
from respool.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_BYTES,
    LENGTH_MIN,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    RecordBatch,
    crc_of,
    read_header,
    records_of,
    seal,
)
from respool.records.compress import codec_of, compress, decompress
from respool.records.mirrored_batches import MIRRORED

CODEC_MAX = max(Codec)
# Bit 6 marks the base timestamp as a delete horizon (KIP-534), set by compaction only. The remaining bits are
# undefined; a batch that uses them would be stored without being understood.
RESERVED_BITS = ~(CODEC_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)


def check_produced(data: bytes | memoryview, *, bytes_max: int) -> RecordBatch:
    """Validate a partition's data in a Produce request: exactly one intact v2 batch. Does not copy it.

    Raises:
        CorruptMessage: it is incomplete, or the checksum does not match.
        UnsupportedForMessageFormat: a message set from before Kafka 0.11.
        MessageTooLarge: larger than the topic allows; checked before the checksum.
        InvalidRecord: several batches, or a header that clients must not send.
        InvalidTimestamp: a time before 1970.
        UnsupportedCompressionType: undefined codec bits.
    """
    size = len(data)
    if size < HEADER_BYTES:
        _refuse_short(data)
    header = read_header(data)
    if header.magic != MAGIC:
        _refuse_magic(header.magic)
    if header.length != size - LENGTH_BYTES:
        _refuse_length(header, size)
    if size > bytes_max:
        raise MessageTooLarge(f"batch of {size} bytes, limit {bytes_max}")
    if crc_of(data) != header.crc:
        raise CorruptMessage(f"batch of {size} bytes with crc {header.crc}, it is {crc_of(data)}")
    _check_header(header)
    return RecordBatch(header, data)


def _refuse_short(data: bytes | memoryview) -> Never:
    # An old message is shorter than our header. CORRUPT_MESSAGE would make an old client retry forever.
    if len(data) > MAGIC_AT and data[MAGIC_AT] < MAGIC:
        _refuse_magic(data[MAGIC_AT])
    raise CorruptMessage(f"batch of {len(data)} bytes, a header alone has {HEADER_BYTES}")


def _refuse_magic(magic: int) -> Never:
    if 0 <= magic < MAGIC:
        raise UnsupportedForMessageFormat(f"message format v{magic}, only v{MAGIC} is stored")
    raise CorruptMessage(f"message format v{magic} does not exist")


def _refuse_length(header: BatchHeader, size: int) -> Never:
    if header.length < LENGTH_MIN or header.size > size:
        raise CorruptMessage(f"batch announces {header.size} bytes and has {size}")
    raise InvalidRecord(
        f"one batch of {header.size} bytes expected, {size - header.size} bytes follow it"
    )


def _check_header(header: BatchHeader) -> None:
    # Unpacked at once: a dozen reads by name would cost too much here.
    (
        base_offset, _, epoch, _, _, attributes, last_offset_delta, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, record_count,
    ) = header  # fmt: skip
    if base_offset != 0:
        raise InvalidRecord(f"base offset {base_offset}, a producer must leave it 0")
    if epoch == MIRRORED:
        raise InvalidRecord("a batch of respool mirror, but the topic is not a mirror")
    if record_count <= 0 or record_count != last_offset_delta + 1:
        raise InvalidRecord(f"{record_count} records with offsets 0 to {last_offset_delta}")
    if attributes & CODEC_MASK > CODEC_MAX:
        codec_of(attributes & CODEC_MASK)
    if attributes & CONTROL_BIT:
        raise InvalidRecord("a control batch, clients may not write those")
    if attributes & RESERVED_BITS:
        raise InvalidRecord(f"attributes {attributes:#x} have bits that are reserved")
    if base_timestamp < NO_TIMESTAMP or max_timestamp < NO_TIMESTAMP:
        raise InvalidTimestamp(
            f"timestamps {base_timestamp} to {max_timestamp}, only {NO_TIMESTAMP} may be negative"
        )
    if producer_id == NO_PRODUCER_ID:
        # Without a producer id, sequence and epoch are meaningless, and clients differ.
        if attributes & TRANSACTIONAL_BIT:
            raise InvalidRecord("a transactional batch without a producer id")
    elif producer_id < 0 or producer_epoch < 0 or base_sequence < 0:
        raise InvalidRecord(
            f"producer id {producer_id}, epoch {producer_epoch}, sequence {base_sequence}"
        )


def check_timestamps(
    header: BatchHeader, *, now_ms: int, before_max_ms: int, after_max_ms: int
) -> None:
    """Reject timestamps too far from the broker's time; for topics with CreateTime.

    Checks the first and the largest timestamp. None (-1) is allowed.

    Raises:
        TimestampOutOfRange: one of them is outside the allowed range.
    """
    oldest = now_ms - before_max_ms
    newest = now_ms + after_max_ms
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp != NO_TIMESTAMP and not oldest <= timestamp <= newest:
            raise TimestampOutOfRange(timestamp, oldest=oldest, newest=newest)


def with_log_append_time(batch: RecordBatch, *, now_ms: int) -> RecordBatch:
    """Set LogAppendTime: readers use the max timestamp for every record.

    Raises:
        InvalidTimestamp: the producer set the LogAppendTime bit; Kafka rejects that on such topics.
    """
    header = batch.header
    if header.is_log_append_time:
        raise InvalidTimestamp("the batch is marked LogAppendTime, a producer cannot know it")
    header = header._replace(
        attributes=header.attributes | LOG_APPEND_TIME_BIT, max_timestamp=now_ms
    )
    return seal(header, records_of(batch))


def with_create_time(batch: RecordBatch) -> RecordBatch:
    """Clear the LogAppendTime bit, so that the records' own timestamps count; few batches have it set.

    Kafka does so if the topic uses CreateTime and the batch has a timestamp.

    Raises:
        InvalidTimestamp: the bit is set, but there is no timestamp.
    """
    header = batch.header
    if not header.is_log_append_time:
        return batch
    if header.max_timestamp == NO_TIMESTAMP:
        raise InvalidTimestamp("the batch is marked LogAppendTime and has no timestamp")
    header = header._replace(attributes=header.attributes & ~LOG_APPEND_TIME_BIT)
    return seal(header, records_of(batch))


def recompress(
    batch: RecordBatch, codec: Codec, *, limit: int, level: int | None = None
) -> RecordBatch:
    """Recompress the records with another codec. They are compressed as a whole, so none is parsed.

    The result may be larger: check its size again.

    Raises:
        CorruptMessage: the records cannot be decompressed.
        MessageTooLarge: they are more than `limit` bytes.
    """
    header = batch.header
    if header.codec_bits == codec:
        return batch
    records = decompress(codec_of(header.codec_bits), records_of(batch), limit=limit)
    header = header._replace(attributes=header.attributes & ~CODEC_MASK | codec)
    return seal(header, compress(codec, records, level))


def walk_batches(
    buffer: bytes | bytearray | memoryview, *, position: int = 0
) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch, up to an incomplete or implausible one.

    Checks sizes only; use `check_stored` to verify a batch.
    """
    end = len(buffer)
    while end - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if header.length < LENGTH_MIN or header.size > end - position:
            return
        yield position, header
        position += header.size


def check_stored(header: BatchHeader, data: bytes | bytearray | memoryview) -> bool:
    """True if a stored batch has plausible sizes and a matching checksum."""
    return (
        header.magic == MAGIC
        and header.length >= LENGTH_MIN
        and header.size == len(data)
        and header.base_offset >= 0
        # Compaction removes records and keeps the offsets, down to zero records.
        and 0 <= header.record_count <= header.last_offset_delta + 1
        and header.crc == crc_of(data)
    )
