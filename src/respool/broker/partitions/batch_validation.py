"""Validation of produced batches: the format's rules, then the topic's.

All rules but one read only the header. A compacted topic accepts no record without a key, so its batches are decoded:
immediately if that is quick, else off the event loop. A batch that is refused for a timestamp is decoded, too, to name
the records at fault (KIP-467).
"""

from itertools import islice

from respool.model.errors import (
    InvalidRecord,
    MessageTooLarge,
    RecordsRefused,
    RequestError,
    TimestampOutOfRange,
    UnsupportedCompressionType,
)
from respool.model.ids import NO_TIMESTAMP
from respool.model.quantities import counted
from respool.model.topic_config import TimestampType, TopicConfig
from respool.ports.record_scan import RecordScanner
from respool.records.batch import Codec, RecordBatch, read_header, records_of
from respool.records.compress import codec_of, decompress
from respool.records.record import iterate_times
from respool.records.topic_codec import TopicCodec
from respool.records.validate import (
    check_produced,
    check_timestamps,
    with_create_time,
    with_log_append_time,
)

# How much of a refused batch is read to name the records that are at fault.
NAMING_BYTES_MAX = 1024 * 1024
NAMING_RECORDS_MAX = 10_000
# Clients of older versions cannot read zstd, so they must not produce it either.
ZSTD_FROM_PRODUCE_VERSION = 7


def admit(records: bytes | None, config: TopicConfig, *, now_ms: int, version: int) -> RecordBatch:
    """Return the batch as it will be stored, except for its offsets.

    Raises:
        RequestError: a rule is broken; the batch is refused as a whole.
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


def recompression_for(batch: RecordBatch, config: TopicConfig) -> TopicCodec | None:
    """Return the codec to which the topic requires the batch to be recompressed; None if its bytes stay unchanged."""
    wanted = TopicCodec.of(config)
    return None if wanted is None or wanted.codec == batch.header.codec_bits else wanted


def check_keys_quickly(batch: RecordBatch, config: TopicConfig, scanner: RecordScanner) -> bool:
    """Run `check_keys` if the topic requires it and the batch is small. Return False if it is still to be done.

    Raises:
        InvalidRecord, CorruptMessage: see `check_keys`.
    """
    if not config.is_compacted:
        return True
    limit = scanner.quick_bytes_max
    if batch.header.size > limit:
        return False
    try:
        check_keys(batch, scanner, limit=limit)
    except MessageTooLarge:
        # Small compressed, but too large uncompressed.
        return False
    return True


def check_keys(batch: RecordBatch, scanner: RecordScanner, *, limit: int) -> None:
    """Refuse records without a key: in a compacted topic they could never be superseded.

    Raises:
        InvalidRecord: records have no key, or the batch does not match its header.
        CorruptMessage: the batch cannot be decompressed.
        MessageTooLarge: the batch is larger than `limit` bytes uncompressed.
    """
    header = batch.header
    records = decompress(codec_of(header.codec_bits), records_of(batch), limit=limit)
    found = scanner.find_keyless(
        records, record_count=header.record_count, last_offset_delta=header.last_offset_delta
    )
    if found is None:
        raise InvalidRecord(f"the batch does not hold {header.record_count} records")
    if found.total:
        have = "has" if found.total == 1 else "have"
        raise InvalidRecord(
            f"{found.total:,} of {counted(header.record_count, 'record')} {have} no key, and the topic is compacted",
            records=tuple(
                (number, "the record has no key, and the topic is compacted")
                for number in found.numbers
            ),
        )


def name_late_and_early(error: TimestampOutOfRange, records: bytes) -> None:
    """Add the records to the error whose timestamps are outside the allowed range, as far as that is quick to find.

    Otherwise the error stays as it is: it is about the batch, and its message names one timestamp.
    """
    try:
        # Without the LogAppendTime bit: the records' own timestamps count.
        batch = with_create_time(RecordBatch(read_header(records), records))
        times = islice(iterate_times(batch, limit=NAMING_BYTES_MAX), NAMING_RECORDS_MAX)
        found = tuple(
            islice(
                (
                    (offset, f"timestamp {time} is outside {error.oldest} to {error.newest}")
                    for offset, time in times
                    if time != NO_TIMESTAMP and not error.oldest <= time <= error.newest
                ),
                RecordsRefused.RECORDS_MAX,
            )
        )
    except RequestError:
        return
    error.records = found


def check_size(batch: RecordBatch, config: TopicConfig) -> None:
    """Check the stored size: a batch that was recompressed with a weaker codec may have become too large."""
    if batch.header.size > config.max_message_bytes:
        raise MessageTooLarge(
            f"the batch has {batch.header.size} bytes in the topic's codec, "
            f"max.message.bytes is {config.max_message_bytes}"
        )
