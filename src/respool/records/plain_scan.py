"""`ports.record_scan` in plain Python: for tests, for the simulator, and without numba.

`columnar/record_table.py` is the compiled form; `record.py` shows the layout.
"""

from collections.abc import Sequence
from hashlib import blake2b

from respool.model.errors import CorruptMessage
from respool.model.where import Where
from respool.ports.record_scan import (
    KEYLESS_MAX,
    Buffer,
    KeylessRecords,
    Section,
    SectionSummary,
)
from respool.records.plain_match import PlainMatcher
from respool.records.plain_tags import PlainTagCollector
from respool.records.record_positions import RecordAt, walk_records
from respool.records.varint import append_varint

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

    def key_hasher(self, *, secret: bytes) -> "PlainKeyHasher":
        return PlainKeyHasher(secret)

    def matcher(self, where: Where) -> PlainMatcher:
        return PlainMatcher(where)

    def tag_collector(self, names: Sequence[bytes | None], *, secret: bytes) -> PlainTagCollector:
        return PlainTagCollector(names, secret=secret)


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


class PlainKeyHasher:
    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def hash_keys(self, data: Buffer, sections: Sequence[Section], *, begin: int) -> dict[int, int]:
        data = bytes(data)
        return {
            section.base_offset + record.offset_delta: self._hash(
                data[record.key_begin : record.key_end]
            )
            for section in sections
            for record in _records(data, section) or ()
            if record.key_begin >= 0 and section.base_offset + record.offset_delta >= begin
        }

    def _hash(self, key: bytes) -> int:
        return int.from_bytes(blake2b(key, digest_size=8, key=self._secret).digest())


def _records(data: bytes, section: Section) -> list[RecordAt] | None:
    """All records of the section, before the first one is used; None if they are malformed."""
    try:
        return list(walk_records(data, section))
    except CorruptMessage:
        return None


def _wrapped(number: int) -> int:
    """Wrap to 64 bits, as readers' additions do: only an implausible timestamp overflows."""
    return (number + 2**63) % 2**64 - 2**63
