"""What `decode` should return, in plain Python: record after record, slow and easy to believe."""

from collections.abc import Callable, Sequence
from typing import Any

from respool.columnar.arrow_columns import ALL_COLUMNS
from respool.columnar.decode_columns import Decoded
from respool.model.errors import RequestError
from respool.records.batch import LENGTH_BYTES, RecordBatch, crc_of, read_header
from respool.records.markers import read_marker
from respool.records.record import read_records

LIMIT = 1 << 20


class Unreadable(Exception):
    """The reference cannot read it; `decode` must not either."""


def plain_decode(
    data: bytes,
    *,
    begin: int,
    end: int | None = None,
    columns: Sequence[str] = ALL_COLUMNS,
    since_ms: int | None = None,
    until_ms: int | None = None,
    is_wanted: Callable[[dict[str, Any]], bool] = lambda row: True,
    aborted: Sequence[tuple[int, int]] = (),
    check_crc: bool = True,
) -> tuple[list[dict[str, Any]], int]:
    """The rows, and the next offset."""
    rows: list[dict[str, Any]] = []
    next_offset = begin
    after = -1
    # Of each producer in an aborted transaction: where that began. It ends with the next marker of the producer.
    void: dict[int, int] = {}
    starts = sorted((first, producer) for producer, first in aborted)
    while (batch := _first_batch(data)) is not None:
        header = batch.header
        data = data[header.size :]
        if not after < header.base_offset <= header.last_offset < 2**63 - 1:
            raise Unreadable
        after = header.last_offset
        if end is not None and header.base_offset >= end:
            next_offset = max(next_offset, header.base_offset)
            break
        is_needed = header.last_offset >= begin
        if check_crc and is_needed and crc_of(batch.data) != header.crc:
            raise Unreadable
        while starts and starts[0][0] <= header.last_offset:
            first, producer = starts.pop(0)
            void[producer] = first
        is_void = header.is_transactional and header.producer_id in void
        if header.is_control:
            if read_marker(batch) is not None:
                void.pop(header.producer_id, None)
        elif is_needed and not is_void:
            rows += _rows(batch)
        next_offset = max(next_offset, header.next_offset)
    shown = [
        {name: row[name] for name in columns}
        for row in rows
        if begin <= row["offset"]
        and (end is None or row["offset"] < end)
        and (since_ms is None or since_ms <= row["timestamp"])
        and (until_ms is None or row["timestamp"] < until_ms)
        and is_wanted(row)
    ]
    return shown, next_offset


def _first_batch(data: bytes) -> RecordBatch | None:
    if len(data) < LENGTH_BYTES:
        return None
    length = int.from_bytes(data[8:12], signed=True)
    if (len(data) > 16 and data[16] != 2) or length < 49:
        raise Unreadable
    if length + LENGTH_BYTES > len(data):
        return None
    whole = data[: length + LENGTH_BYTES]
    return RecordBatch(read_header(whole), whole)


def _rows(batch: RecordBatch) -> list[dict[str, Any]]:
    try:
        records = read_records(batch, limit=LIMIT)
    except RequestError as error:
        raise Unreadable from error
    return [
        {
            "key": record.key,
            "value": record.value,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "timestamp_type": int(batch.header.is_log_append_time),
            "headers": list(record.headers),
        }
        for record in records
    ]


def rows_of(decoded: Decoded) -> list[dict[str, Any]]:
    """What was decoded, as the reference says it."""
    rows: list[dict[str, Any]] = []
    for each in decoded.batches:
        batch = each
        batch.validate(full=True)
        names = batch.schema.names
        if "timestamp" in names:
            index = names.index("timestamp")
            batch = batch.set_column(index, "timestamp", batch.column(index).cast("int64"))
        rows += batch.to_pylist()
    for row in rows:
        if "headers" in row:
            row["headers"] = [(one["key"], one["value"]) for one in row["headers"]]
    return rows
