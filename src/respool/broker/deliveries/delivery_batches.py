"""Builds the batches that a leader appends for delayed records: copies that are due, and carried records."""

from collections.abc import Iterable, Iterator

from respool.model.topic_config import TimestampType, TopicConfig
from respool.records.batch import Codec, RecordBatch, read_header
from respool.records.build import NewRecord, build_batch
from respool.records.topic_codec import TopicCodec

BATCH_BYTES_MAX = 1024 * 1024
# Upper bounds for the lengths and deltas of a record, and the lengths of a header.
_RECORD_OVERHEAD = 32
_HEADER_OVERHEAD = 8


def build_batches(
    records: Iterable[NewRecord], config: TopicConfig, *, now_ms: int
) -> Iterator[tuple[RecordBatch, int]]:
    """Yield batches in the topic's codec, each with its number of records.

    None is larger than max.message.bytes, unless it is a single record: a copy has more headers than its record.
    """
    bytes_max = min(BATCH_BYTES_MAX, config.max_message_bytes)
    chosen: list[NewRecord] = []
    size = 0
    for record in records:
        record_size = size_of(record)
        if chosen and size + record_size > bytes_max:
            yield _build(chosen, config, now_ms), len(chosen)
            chosen, size = [], 0
        chosen.append(record)
        size += record_size
    if chosen:
        yield _build(chosen, config, now_ms), len(chosen)


def size_of(record: NewRecord) -> int:
    """Upper bound for the record's size in an uncompressed batch."""
    size = _RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += _HEADER_OVERHEAD + 4 * len(name) + len(value or b"")
    return size


def _build(records: list[NewRecord], config: TopicConfig, now_ms: int) -> RecordBatch:
    wanted = TopicCodec.of(config) or TopicCodec(Codec.NONE, None)
    is_append_time = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    data = build_batch(
        records,
        codec=wanted.codec,
        level=wanted.level,
        log_append_time=is_append_time,
        max_timestamp=now_ms if is_append_time else None,
    )
    return RecordBatch(read_header(data), data)
