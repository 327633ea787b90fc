"""Parses single records of a batch, strictly. For tools, time lookups and tests; not on the produce or fetch path.

```
 | length | attributes | timestamp delta | offset delta | key | value | headers
   varint   1 byte       varlong           varint         length (varint, -1 for none) and bytes
 headers: | count | then for each: key length, key, value length (-1 for none), value
```
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from respool.model.errors import CorruptMessage
from respool.model.ids import Offset
from respool.records.batch import BatchHeader, RecordBatch, records_of
from respool.records.compress import codec_of, decompress
from respool.records.time_search import DeltaMinimums, UnusualRecords, find_delta
from respool.records.varint import LONG_BITS, read_varint

# Every field of a record takes at least a byte: fewer bytes cannot contain this many records.
RECORD_BYTES_MIN = 7
TIMESTAMP_MAX = 2**63 - 1

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    offset: Offset
    # -1 for none. With LogAppendTime, the broker's time.
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def read_records(batch: RecordBatch, *, limit: int) -> list[Record]:
    """Return all records of a batch of at most `limit` bytes when decompressed.

    Raises:
        CorruptMessage: the batch is inconsistent; no record is returned.
        MessageTooLarge: there are more than `limit` bytes.
        UnsupportedCompressionType: there is no such codec.
    """
    return list(iterate_records(batch, limit=limit))


def iterate_records(batch: RecordBatch, *, limit: int) -> Iterator[Record]:
    """Yield the records one by one, so that many tiny ones are not all in memory. Raises as `read_records`."""
    data = _records_data(batch, limit)
    for offset, timestamp, at, end in _walk(data, batch.header):
        yield _read_rest(data, at, end, offset, timestamp)


def iterate_times(batch: RecordBatch, *, limit: int) -> Iterator[tuple[Offset, int]]:
    """Yield the records' offsets and timestamps only. Raises as `read_records`."""
    for offset, timestamp, _, _ in _walk(_records_data(batch, limit), batch.header):
        yield offset, timestamp


def find_time(
    batch: RecordBatch, timestamp_ms: int, *, from_offset: Offset, limit: int
) -> tuple[Offset, int] | None:
    """Return the first record at or after `from_offset` with that time or a later one, and its time.

    Raises as `read_records`, for what comes before that record.
    """
    data = _records_data(batch, limit)
    header = batch.header
    if not header.is_log_append_time and abs(header.base_timestamp) < TIMESTAMP_MAX // 2:
        try:
            found = find_delta(
                data,
                DeltaMinimums(
                    timestamp_ms - header.base_timestamp, from_offset - header.base_offset
                ),
                record_count=header.record_count,
                offset_delta_max=header.last_offset_delta,
            )
        except (UnusualRecords, IndexError):
            # The strict way finds it too, or says what is wrong.
            pass
        else:
            if found is None:
                return None
            return (
                Offset(header.base_offset + found.offset_delta),
                header.base_timestamp + found.timestamp_delta,
            )
    for offset, timestamp, _, _ in _walk(data, header):
        if offset >= from_offset and timestamp >= timestamp_ms:
            return offset, timestamp
    return None


def _walk(data: bytes, header: BatchHeader) -> Iterator[tuple[Offset, int, int, int]]:
    """Yield offset, timestamp, start of the key and end of each record."""
    position = 0
    offset_delta_last = -1
    for _ in range(header.record_count):
        length, start = read_varint(data, position, end=len(data))
        position = start + length
        if length < 0 or position > len(data):
            raise CorruptMessage(
                f"a record of {length} bytes at byte {start}, the records end at {len(data)}"
            )
        # The attributes byte is unused; Kafka ignores it too.
        timestamp_delta, at = read_varint(data, start + 1, end=position, bits=LONG_BITS)
        offset_delta, at = read_varint(data, at, end=position)
        # Compaction leaves gaps. Without them the count, checked below, makes this 0, 1, 2 …
        if not offset_delta_last < offset_delta <= header.last_offset_delta:
            raise CorruptMessage(
                f"offset delta {offset_delta} after {offset_delta_last}, "
                f"the batch's last is {header.last_offset_delta}"
            )
        offset_delta_last = offset_delta
        timestamp = (
            header.max_timestamp
            if header.is_log_append_time
            else header.base_timestamp + timestamp_delta
        )
        if not -TIMESTAMP_MAX - 1 <= timestamp <= TIMESTAMP_MAX:
            raise CorruptMessage(f"timestamp {timestamp} does not fit 64 bits")
        yield Offset(header.base_offset + offset_delta), timestamp, at, position
    if position != len(data):
        raise CorruptMessage(f"{header.record_count} records end at byte {position} of {len(data)}")


def _records_data(batch: RecordBatch, limit: int) -> bytes:
    header = batch.header
    if len(batch.data) != header.size:
        raise CorruptMessage(f"batch announces {header.size} bytes and has {len(batch.data)}")
    compressed = records_of(batch)
    codec = codec_of(header.codec_bits)
    if header.record_count == 0 and not compressed:
        # Compaction removed every record; it leaves no empty compressed stream.
        return b""
    data = decompress(codec, compressed, limit=limit)
    if not 0 <= header.record_count <= len(data) // RECORD_BYTES_MIN:
        raise CorruptMessage(f"{header.record_count} records in {len(data)} bytes")
    return data


def _read_rest(data: bytes, at: int, end: int, offset: Offset, timestamp: int) -> Record:
    key, at = _read_bytes(data, at, end)
    value, at = _read_bytes(data, at, end)
    headers, at = _read_headers(data, at, end)
    if at != end:
        raise CorruptMessage(f"a record's fields end at byte {at}, the record at {end}")
    return Record(offset=offset, timestamp=timestamp, key=key, value=value, headers=headers)


def _read_headers(data: bytes, at: int, end: int) -> tuple[Headers, int]:
    count, at = read_varint(data, at, end=end)
    # At least two bytes each.
    if not 0 <= count <= (end - at) // 2:
        raise CorruptMessage(f"{count} headers in {end - at} bytes")
    headers = []
    for _ in range(count):
        key, at = _read_bytes(data, at, end)
        if key is None:
            raise CorruptMessage(f"a header without a key before byte {at}")
        value, at = _read_bytes(data, at, end)
        # Java's client decodes invalid UTF-8 this way too; the record is still readable.
        headers.append((key.decode("utf-8", errors="replace"), value))
    return tuple(headers), at


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    if at < end and data[at] < 0x80:
        # The common case, without a call: a record with headers has dozens of short texts.
        length = (data[at] >> 1) ^ -(data[at] & 1)
        at += 1
    else:
        length, at = read_varint(data, at, end=end)
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise CorruptMessage(f"{length} bytes at byte {at}, the record ends at {end}")
    return data[at : at + length], at + length


def read_records_at(batch: RecordBatch, offsets: Sequence[Offset], *, limit: int) -> list[Record]:
    """Return the records at these offsets, which are in order, reading only lengths of the others.

    The batch was not compacted: its records have the offsets from its first one on. Missing parts are left out.
    Raises as `read_records`.
    """
    header = batch.header
    data = _records_data(batch, limit)
    size, position, number = len(data), 0, 0
    single = header._replace(record_count=1)
    found: list[Record] = []
    for offset in offsets:
        wanted = offset - header.base_offset
        if not number <= wanted < header.record_count:
            continue
        try:
            position = _skip(data, position, wanted - number)
        except IndexError:
            raise CorruptMessage(f"fewer than {wanted} records in {size} bytes") from None
        length, start = read_varint(data, position, end=size)
        end = start + max(0, length)
        section = data[position:end]
        for at_offset, timestamp, at, record_end in _walk(section, single):
            if at_offset == offset:
                found.append(_read_rest(section, at, record_end, at_offset, timestamp))
        position, number = end, wanted + 1
    return found


def _skip(data: bytes, position: int, count: int) -> int:
    """Return the position after `count` records, whose lengths are decoded in place.

    Raises:
        CorruptMessage, IndexError: they do not end within the data.
    """
    for _ in range(count):
        folded = data[position]
        position += 1
        if folded > 0x7F:
            byte = data[position]
            position += 1
            folded = folded & 0x7F | (byte & 0x7F) << 7
            if byte > 0x7F:
                # Three bytes or more: rare, and long.
                length, position = read_varint(data, position - 2, end=len(data))
                folded = length * 2
        if folded & 1:
            raise CorruptMessage(f"a record of a negative length before byte {position}")
        position += folded >> 1
    return position
