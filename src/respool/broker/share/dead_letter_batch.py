"""Builds the dead letters of records that a share group cannot handle."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from respool.broker.deliveries.delivery_batches import size_of
from respool.broker.share.stored_batches import DECOMPRESSED_BYTES_MAX, SharedBatch
from respool.coordination.share.share_machine import DyingRecords
from respool.model.errors import CorruptMessage, MessageTooLarge, UnsupportedCompressionType
from respool.model.ids import TopicPartition
from respool.model.retry.failure_headers import FailureRecord, own_headers
from respool.records.batch import RecordBatch, read_header
from respool.records.build import NewRecord
from respool.records.record import Record, iterate_records

# Kafka's words.
REJECTED = "Offset rejected by client."
DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."


def records_among(batches: Iterable[SharedBatch], first: int, last: int) -> dict[int, Record]:
    """The records of these offsets; those that cannot be read, or are gone, are left out."""
    found: dict[int, Record] = {}
    for batch in batches:
        data = b"".join(batch.buffers)
        stored = RecordBatch(read_header(data), data)
        try:
            for record in iterate_records(stored, limit=DECOMPRESSED_BYTES_MAX):
                if first <= record.offset <= last:
                    found[record.offset] = record
        except (CorruptMessage, MessageTooLarge, UnsupportedCompressionType):
            continue
    return found


def letters(
    dying: DyingRecords,
    records: Mapping[int, Record],
    *,
    source: TopicPartition,
    group: str,
    copies_record: bool,
    bytes_max: int,
    now_ms: int,
) -> list[NewRecord]:
    """A letter for each offset; of a record that is gone, one that only says which it was."""
    found = []
    for offset in range(dying.first, dying.last + 1):
        record = records.get(offset)
        failure = FailureRecord(
            topic=source.topic,
            partition=source.partition,
            offset=offset,
            group=group,
            deliveries=dying.delivery_count,
            error_text=REJECTED if dying.is_rejected else DELIVERED_TOO_OFTEN,
            origin_timestamp_ms=None if record is None else record.timestamp,
        )
        if not copies_record:
            found.append(NewRecord(timestamp_ms=now_ms, headers=failure.to_headers()))
        else:
            found.append(_copy(record, failure, bytes_max=bytes_max, now_ms=now_ms))
    return found


def _copy(
    record: Record | None, failure: FailureRecord, *, bytes_max: int, now_ms: int
) -> NewRecord:
    """The record with its headers; without its value, or without all of it, if that is too large for the topic."""
    if record is not None:
        own = own_headers(record.headers)
        whole = NewRecord(
            key=record.key,
            value=record.value,
            timestamp_ms=now_ms,
            headers=(*own, *failure.to_headers()),
        )
        if size_of(whole) <= bytes_max:
            return whole
        headers = replace(failure, truncated="value").to_headers()
        without_value = NewRecord(key=record.key, timestamp_ms=now_ms, headers=(*own, *headers))
        if size_of(without_value) <= bytes_max:
            return without_value
    headers = replace(failure, truncated="record").to_headers()
    return NewRecord(timestamp_ms=now_ms, headers=headers)
