"""Encodes rows of Arrow columns into a record batch of a Produce request, without an object per row."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from respool.columnar import record_writer as kernels
from respool.columnar.compiled import Bytes, Numbers
from respool.columnar.errors import BatchNotEncodable, RowOutOfRange, TimestampInvalid
from respool.columnar.row_buffers import RowBuffers
from respool.model.ids import NO_LEADER_EPOCH, NO_PRODUCER_ID, LeaderEpoch, Offset
from respool.records.batch import (
    HEADER_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    crc_of,
    pack_header,
    read_header,
    seal,
)
from respool.records.compress import compress

# The length field has 31 bits, and libraries' buffer sizes too.
RECORDS_BYTES_MAX = 2**31 - 1 - HEADER_BYTES

_DELTA_BYTES_MAX = 10
_INT64_MAX = 2**63 - 1

Rows = NDArray[np.int64] | slice | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStamp:
    """The producer fields of a batch: id, epoch, sequence."""

    producer_id: int
    epoch: int
    base_sequence: int
    is_transactional: bool = False


NO_STAMP = ProducerStamp(producer_id=NO_PRODUCER_ID, epoch=-1, base_sequence=-1)


def encode(
    batch: pa.RecordBatch | RowBuffers,
    rows: Rows,
    *,
    codec: Codec,
    level: int | None = None,
    timestamp_ms: int,
    stamp: ProducerStamp | None,
) -> bytes:
    """Encode these rows, in this order, as one record batch with base offset 0 and a checksum.

    Args:
        batch: With any of the columns key, value, timestamp, headers. `RowBuffers.of(batch)` saves time if rows of one
        batch are encoded many times.
        rows: None for all.
        level: On the codec's own scale; None for the default.
        timestamp_ms: For rows without a timestamp.

    Raises:
        ColumnTypeMismatch, NullNotAllowed, TimestampInvalid: as `RowBuffers.of`.
        RowOutOfRange: the batch has no such row.
        BatchNotEncodable: there are no rows, or more bytes than a record batch can have.
    """
    source = _source(batch)
    numbers = _row_numbers(rows, source.rows)
    if not len(numbers):
        raise BatchNotEncodable("a record batch needs at least one row")
    first, earliest, latest = map(int, kernels.time_span(source.timestamps, numbers, timestamp_ms))
    room = int(_sizes(source, numbers, time_bytes=_delta_bytes(earliest, latest))[-1])
    if room > RECORDS_BYTES_MAX:
        raise BatchNotEncodable(
            f"{len(numbers)} rows take {room} bytes, a record batch can have {RECORDS_BYTES_MAX}: "
            "write fewer at once"
        )
    target: Bytes = np.empty(room, dtype=np.uint8)
    end = kernels.write_records(
        source.key,
        source.value,
        source.headers,
        source.timestamps,
        numbers,
        first,
        timestamp_ms,
        target,
    )
    records = target[:end].data
    header = _header(len(numbers), codec, base_timestamp=first, max_timestamp=latest)
    packed = records if codec is Codec.NONE else compress(codec, records, level)
    return bytes(seal(_stamped(header, stamp or NO_STAMP), packed).data)


def encoded_size(batch: pa.RecordBatch | RowBuffers, rows: Rows) -> Numbers:
    """Upper bounds of the cumulated size of the records up to each row, before compression and without the header.

    Rows i to j, both included, make a batch of at most `sizes[j] - sizes[i - 1] + HEADER_BYTES`. It will be slightly
    smaller, because deltas are relative to the batch's first row.

    Raises: as `encode`, but for sizes and for no rows.
    """
    source = _source(batch)
    numbers = _row_numbers(rows, source.rows)
    return _sizes(source, numbers, time_bytes=_delta_bytes_max(source.timestamps))


def restamp(data: bytearray, stamp: ProducerStamp) -> None:
    """Change producer id, epoch and sequence of an encoded batch in place, and its checksum.

    Raises:
        BatchNotEncodable: this is not one whole record batch.
    """
    if len(data) < HEADER_BYTES or (header := read_header(data)).size != len(data):
        raise BatchNotEncodable(f"{len(data)} bytes that are not one record batch")
    header = _stamped(header, stamp)
    data[:HEADER_BYTES] = pack_header(header)
    data[:HEADER_BYTES] = pack_header(header._replace(crc=crc_of(data)))


def _source(batch: pa.RecordBatch | RowBuffers) -> RowBuffers:
    return batch if isinstance(batch, RowBuffers) else RowBuffers.of(batch)


def _row_numbers(rows: Rows, row_count: int) -> Numbers:
    if rows is None or isinstance(rows, slice):
        return np.arange(*(rows or slice(None)).indices(row_count), dtype=np.int64)
    assert rows.dtype.kind in "iu", f"rows are {rows.dtype}: row numbers are expected, not a mask"
    numbers: Numbers = np.ascontiguousarray(rows, dtype=np.int64)
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < row_count:
        raise RowOutOfRange(
            f"rows from {numbers.min()} to {numbers.max()} of a batch that has {row_count}"
        )
    return numbers


def _sizes(source: RowBuffers, numbers: Numbers, *, time_bytes: int) -> Numbers:
    sizes: Numbers = np.empty(len(numbers), dtype=np.int64)
    kernels.add_sizes(
        source.key.lengths, source.value.lengths, source.headers, numbers, time_bytes, sizes
    )
    return sizes


def _delta_bytes(earliest: int, latest: int) -> int:
    """Varint size of the largest difference between these timestamps."""
    if latest - earliest > _INT64_MAX:
        raise TimestampInvalid(f"timestamps from {earliest} to {latest} in one batch")
    return max(1, ((2 * (latest - earliest)).bit_length() + 6) // 7)


def _delta_bytes_max(timestamps: Numbers) -> int:
    """As `_delta_bytes`, for any rows of a column, whatever timestamp the others get."""
    if not len(timestamps):
        return 1
    earliest, latest = int(timestamps.min()), int(timestamps.max())
    # If some rows have no timestamp, the differences are not known yet.
    return _DELTA_BYTES_MAX if earliest == kernels.TIME_TO_COME else _delta_bytes(earliest, latest)


def _header(
    row_count: int, codec: Codec, *, base_timestamp: int, max_timestamp: int
) -> BatchHeader:
    return BatchHeader(
        base_offset=Offset(0),
        length=0,
        leader_epoch=LeaderEpoch(NO_LEADER_EPOCH),
        magic=MAGIC,
        crc=0,
        attributes=int(codec),
        last_offset_delta=row_count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=row_count,
    )


def _stamped(header: BatchHeader, stamp: ProducerStamp) -> BatchHeader:
    attributes = header.attributes & ~TRANSACTIONAL_BIT
    return header._replace(
        attributes=attributes | (TRANSACTIONAL_BIT if stamp.is_transactional else 0),
        producer_id=stamp.producer_id,
        producer_epoch=stamp.epoch,
        base_sequence=stamp.base_sequence,
    )
