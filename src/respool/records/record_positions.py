"""Finds each record of a section and its key, without copying.

`record.py` shows the layout; `columnar/record_table.py` is the compiled form.
"""

from collections.abc import Iterator
from typing import NamedTuple

from respool.model.errors import CorruptMessage
from respool.ports.record_scan import Section
from respool.records.varint import LONG_BITS, read_varint


class RecordAt(NamedTuple):
    begin: int
    # After the length, at the attributes.
    body: int
    # After the timestamp delta.
    tail: int
    end: int
    timestamp_delta: int
    offset_delta: int
    # The key's position; -1 if there is none.
    key_begin: int
    key_end: int
    has_value: bool
    # The headers follow it.
    value_end: int


def walk_records(data: bytes, section: Section) -> Iterator[RecordAt]:
    """Yield each record of the section, reading only what filtering by key needs.

    Raises:
        CorruptMessage: these are not `record_count` records that end with the section.
    """
    if section.record_count < 0:
        raise CorruptMessage(f"{section.record_count} records")
    position, offset_delta_last = section.begin, -1
    for _ in range(section.record_count):
        record = _read(data, position, section.end)
        if not offset_delta_last < record.offset_delta <= section.last_offset_delta:
            raise CorruptMessage(
                f"offset delta {record.offset_delta} after {offset_delta_last}, "
                f"the batch's last is {section.last_offset_delta}"
            )
        yield record
        position, offset_delta_last = record.end, record.offset_delta
    if position != section.end:
        raise CorruptMessage(
            f"{section.record_count} records end at byte {position} of {section.end}"
        )


def _read(data: bytes, begin: int, section_end: int) -> RecordAt:
    length, body = read_varint(data, begin, end=section_end)
    end = body + length
    # At least an attributes byte.
    if length < 1 or end > section_end:
        raise CorruptMessage(f"a record of {length} bytes at byte {begin} of {section_end}")
    timestamp_delta, tail = read_varint(data, body + 1, end=end, bits=LONG_BITS)
    offset_delta, at = read_varint(data, tail, end=end)
    key_length, key_begin = read_varint(data, at, end=end)
    key_end = key_begin + max(key_length, 0)
    if key_length < -1 or key_end > end:
        raise CorruptMessage(f"a key of {key_length} bytes at byte {key_begin} of {end}")
    value_length, at = read_varint(data, key_end, end=end)
    # The header count takes at least a byte.
    if value_length < -1 or at + max(value_length, 0) >= end:
        raise CorruptMessage(f"a value of {value_length} bytes at byte {at} of {end}")
    return RecordAt(
        begin=begin,
        body=body,
        tail=tail,
        end=end,
        timestamp_delta=timestamp_delta,
        offset_delta=offset_delta,
        key_begin=key_begin if key_length >= 0 else -1,
        key_end=key_end,
        has_value=value_length >= 0,
        value_end=at + max(value_length, 0),
    )
