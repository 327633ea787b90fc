"""Whether a produced batch may enter a topic: the format's rules, then the topic's."""

from respool.model.errors import (
    InvalidRecord,
    InvalidTransactionState,
    MessageTooLarge,
    UnsupportedCompressionType,
)
from respool.model.topic_config import CompressionType, TimestampType, TopicConfig
from respool.records.batch import Codec, RecordBatch
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
    if header.is_transactional:
        raise InvalidTransactionState(
            f"producer {header.producer_id} has no open transaction in this partition"
        )
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


def check_size(batch: RecordBatch, config: TopicConfig) -> None:
    """The limit counts what is stored: a batch recompressed with a weaker codec may have become too large."""
    if batch.header.size > config.max_message_bytes:
        raise MessageTooLarge(
            f"the batch has {batch.header.size} bytes in the topic's codec, "
            f"max.message.bytes is {config.max_message_bytes}"
        )
