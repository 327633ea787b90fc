"""`ports.record_scan` in plain Python: for tests, for the simulator, and without numba.

`columnar/record_table.py` is the compiled form; `record.py` shows the layout.
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from respool.model.errors import CorruptMessage
from respool.ports.record_scan import (
    KEYLESS_MAX,
    Buffer,
    KeylessRecords,
    Section,
    SectionSummary,
)
from respool.records.varint import LONG_BITS, append_varint, read_varint


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
    )


HASH_BYTES = 16
# The memory of a key: hash and offset as objects, and their slots in a dict that has just doubled.
KEY_BYTES = 300

_NOT_RECORDS = SectionSummary(-1, 0, 0)


class PlainScanner:
    # About ten records, a tenth of a millisecond.
    quick_bytes_max = 4 * 1024

    def prepare(self) -> None:
        """Nothing to prepare."""

    def find_keyless(
        self, records: Buffer, *, record_count: int, last_offset_delta: int
    ) -> KeylessRecords | None:
        data = bytes(records)
        total, numbers = 0, []
        try:
            section = Section(0, len(data), record_count, 0, last_offset_delta)
            for number, record in enumerate(walk_records(data, section)):
                if record.key_begin < 0:
                    total += 1
                    if total <= KEYLESS_MAX:
                        numbers.append(number)
        except CorruptMessage:
            return None
        return KeylessRecords(total, numbers)

    def key_offsets(self, *, bytes_max: int, keys_max: int, secret: bytes) -> "PlainKeyOffsets":
        return PlainKeyOffsets(keys_max=min(keys_max, bytes_max // KEY_BYTES), secret=secret)


class PlainKeyOffsets:
    def __init__(self, *, keys_max: int, secret: bytes) -> None:
        self._keys_max = max(1, keys_max)
        self._secret = secret
        self._offsets: dict[bytes, int] = {}

    def add(self, data: Buffer, sections: Sequence[Section], *, begin: int) -> int | None:
        data = bytes(data)
        for section in sections:
            records = _records(data, section)
            if records is None:
                continue
            for record in records:
                offset = section.base_offset + record.offset_delta
                if offset < begin or record.key_begin < 0:
                    continue
                key = self._hash(data[record.key_begin : record.key_end])
                if len(self._offsets) == self._keys_max and key not in self._offsets:
                    return offset
                self._offsets[key] = offset
        return None

    def filter_records(
        self, data: Buffer, sections: Sequence[Section], *, end: int
    ) -> "PlainFilteredSections":
        data = bytes(data)
        retained: list[list[RecordAt]] = []
        summaries: list[SectionSummary] = []
        for section in sections:
            records = _records(data, section)
            if records is None:
                retained.append([])
                summaries.append(_NOT_RECORDS)
                continue
            stay = [one for one in records if self._stays(data, section, one, end)]
            retained.append(stay)
            summaries.append(
                SectionSummary(
                    len(stay),
                    sum(one.key_begin >= 0 and not one.has_value for one in stay),
                    max((one.timestamp_delta for one in stay), default=0),
                )
            )
        return PlainFilteredSections(data, retained, summaries)

    def _stays(self, data: bytes, section: Section, record: RecordAt, end: int) -> bool:
        offset = section.base_offset + record.offset_delta
        if offset >= end:
            return True
        if record.key_begin < 0 or (section.drop_tombstones and not record.has_value):
            return False
        key = self._hash(data[record.key_begin : record.key_end])
        return offset >= self._offsets.get(key, -1)

    def _hash(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=HASH_BYTES, key=self._secret).digest()


class PlainFilteredSections:
    def __init__(
        self, data: bytes, retained: list[list[RecordAt]], summaries: Sequence[SectionSummary]
    ) -> None:
        self._data = data
        self._retained = retained
        self.summaries = summaries

    def retained_records(self, index: int, *, timestamp_shift: int) -> bytes:
        data, out = self._data, bytearray()
        for record in self._retained[index]:
            if not timestamp_shift:
                out += data[record.begin : record.end]
                continue
            body = bytearray([data[record.body]])
            append_varint(body, _wrapped(record.timestamp_delta + timestamp_shift))
            body += data[record.tail : record.end]
            append_varint(out, len(body))
            out += body
        return bytes(out)


def _records(data: bytes, section: Section) -> list[RecordAt] | None:
    """All records of the section, before the first one is used; None if they are malformed."""
    try:
        return list(walk_records(data, section))
    except CorruptMessage:
        return None


def _wrapped(number: int) -> int:
    """Wrap to 64 bits, as readers' additions do: only an implausible timestamp overflows."""
    return (number + 2**63) % 2**64 - 2**63
