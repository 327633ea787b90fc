"""Validation of produced batches: the format's rules, then the topic's.

All rules but one read only the header. A compacted topic takes no record without a key, so its batches are decoded: at
once where that is quick, else off the loop.
"""

from respool.model.errors import (
    InvalidRecord,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from respool.model.topic_config import CompressionType, TimestampType, TopicConfig
from respool.ports.record_scan import NO_RECORDS, RecordScanner
from respool.records.batch import Codec, RecordBatch, records_of
from respool.records.compress import codec_of, decompress
from respool.records.validate import (
    check_produced,
    check_timestamps,
    with_create_time,
    with_log_append_time,
)

# Clients of older versions cannot read zstd, so they may not be led to believe they can write it.
ZSTD_FROM_PRODUCE_VERSION = 7

_CODECS = {
    CompressionType.UNCOMPRESSED: Codec.NONE,
    CompressionType.GZIP: Codec.GZIP,
    CompressionType.SNAPPY: Codec.SNAPPY,
    CompressionType.LZ4: Codec.LZ4,
    CompressionType.ZSTD: Codec.ZSTD,
}


def admit(records: bytes | None, config: TopicConfig, *, now_ms: int, version: int) -> RecordBatch:
    """The batch as it will be stored, but for its offsets.

    Raises:
        RequestError: a rule is broken; nothing of the batch is taken.
    """
    if records is None:
        raise InvalidRecord("there is no record batch")
    batch = check_produced(records, bytes_max=config.max_message_bytes)
    header = batch.header
    if header.codec_bits == Codec.ZSTD and version < ZSTD_FROM_PRODUCE_VERSION:
        raise UnsupportedCompressionType(
            f"zstd needs Produce version {ZSTD_FROM_PRODUCE_VERSION}, the request has {version}"
        )
    if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
        return with_log_append_time(batch, now_ms=now_ms)
    batch = with_create_time(batch)
    check_timestamps(
        batch.header,
        now_ms=now_ms,
        before_max_ms=config.message_timestamp_before_max_ms,
        after_max_ms=config.message_timestamp_after_max_ms,
    )
    return batch


def recompression_for(batch: RecordBatch, config: TopicConfig) -> Codec | None:
    """The codec the topic wants instead of the batch's own; None when the bytes stay as they are."""
    if config.compression_type is CompressionType.PRODUCER:
        return None
    codec = _CODECS[config.compression_type]
    return None if codec == batch.header.codec_bits else codec


def check_keys_quickly(batch: RecordBatch, config: TopicConfig, scanner: RecordScanner) -> bool:
    """`check_keys`, where the topic asks for it and it takes no time; False: it is still to be done.

    Raises:
        InvalidRecord, CorruptMessage: as `check_keys`.
    """
    if not config.is_compacted:
        return True
    limit = scanner.quick_bytes_max
    if batch.header.size > limit:
        return False
    try:
        check_keys(batch, scanner, limit=limit)
    except MessageTooLarge:
        # Compressed it was small.
        return False
    return True


def check_keys(batch: RecordBatch, scanner: RecordScanner, *, limit: int) -> None:
    """Refuse a record without a key: in a compacted topic nothing would ever take its place.

    Raises:
        InvalidRecord: there is one, or the batch does not hold what its header says.
        CorruptMessage: the batch cannot be decompressed.
        MessageTooLarge: there are more than `limit` bytes in it.
    """
    header = batch.header
    records = decompress(codec_of(header.codec_bits), records_of(batch), limit=limit)
    found = scanner.find_keyless(
        records, record_count=header.record_count, last_offset_delta=header.last_offset_delta
    )
    if found == NO_RECORDS:
        raise InvalidRecord(f"the batch does not hold {header.record_count} records")
    if found is not None:
        raise InvalidRecord(
            f"record {found} has no key, and the topic is compacted", record_index=found
        )


def check_size(batch: RecordBatch, config: TopicConfig) -> None:
    """The limit counts what is stored: a batch recompressed with a weaker codec may have become too large."""
    if batch.header.size > config.max_message_bytes:
        raise MessageTooLarge(
            f"the batch has {batch.header.size} bytes in the topic's codec, "
            f"max.message.bytes is {config.max_message_bytes}"
        )
