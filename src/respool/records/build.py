"""Builds batches from records, for tests, benchmarks and tools. Simple rather than fast: producers build their own."""

from collections.abc import Sequence
from dataclasses import dataclass

from respool.model.ids import NO_LEADER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, LeaderEpoch, Offset
from respool.records.batch import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    seal,
)
from respool.records.compress import compress
from respool.records.record import Headers
from respool.records.varint import append_varint


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    key: bytes | None = None
    value: bytes | None = None
    timestamp_ms: int = NO_TIMESTAMP
    headers: Headers = ()


def build_batch(
    records: Sequence[NewRecord],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time: bool = False,
    max_timestamp: int | None = None,
) -> bytes:
    """Build one batch; its max timestamp is the records' largest, unless one is given."""
    assert records, "a batch has at least one record; only compaction leaves empty ones"
    base_timestamp = records[0].timestamp_ms
    if max_timestamp is None:
        max_timestamp = max(record.timestamp_ms for record in records)
    body = bytearray()
    for offset_delta, record in enumerate(records):
        append_record(body, record, offset_delta=offset_delta, base_timestamp=base_timestamp)
    header = BatchHeader(
        base_offset=Offset(base_offset),
        length=0,
        leader_epoch=LeaderEpoch(leader_epoch),
        magic=MAGIC,
        crc=0,
        attributes=codec
        | (LOG_APPEND_TIME_BIT if log_append_time else 0)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0),
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return bytes(seal(header, compress(codec, body, level)).data)


def append_record(
    out: bytearray, record: NewRecord, *, offset_delta: int, base_timestamp: int
) -> None:
    """Append one record to `out`; `record.py` shows the layout."""
    # No attributes; nearly always the first record of its batch.
    timestamp_delta = record.timestamp_ms - base_timestamp
    if timestamp_delta or offset_delta:
        body = bytearray(1)
        append_varint(body, timestamp_delta)
        append_varint(body, offset_delta)
    else:
        body = bytearray(3)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    if not record.headers:
        body.append(0)
        append_varint(out, len(body))
        out += body
        return
    append_varint(body, len(record.headers))
    for key, value in record.headers:
        _append_bytes(body, key.encode())
        _append_bytes(body, value)
    append_varint(out, len(body))
    out += body


def _append_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)
        return
    append_varint(out, len(data))
    out += data
