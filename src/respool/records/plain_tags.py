"""`TagCollector` in plain Python. `columnar/tag_collector.py` is the compiled form."""

from collections.abc import Sequence

from respool.model.errors import CorruptMessage
from respool.ports.record_scan import NULL_TAG, TAG_VALUES_MAX, Buffer, Section, TagHashes
from respool.records.record_headers import read_record_headers
from respool.records.record_positions import RecordAt, walk_records
from respool.records.siphash import siphash

# Values whose hashes are remembered.
_REMEMBERED_MAX = 10_000


class PlainTagCollector:
    def __init__(self, names: Sequence[bytes | None], *, secret: bytes) -> None:
        self._names = tuple(names)
        self._secret = secret
        self._remembered: dict[bytes | None, int] = {None: NULL_TAG}

    def collect(self, data: Buffer, sections: Sequence[Section]) -> list[list[TagHashes] | None]:
        whole = bytes(data)
        found: list[list[TagHashes] | None] = []
        for section in sections:
            try:
                found.append(self._collect(whole, section))
            except CorruptMessage:
                found.append(None)
        return found

    def _collect(self, data: bytes, section: Section) -> list[TagHashes]:
        found: list[set[bytes | None]] = [set() for _ in self._names]
        for record in walk_records(data, section):
            headers = read_record_headers(data, record)
            for name, values in zip(self._names, found, strict=True):
                values.update(_values(data, record, headers, name))
        return [
            None if len(values) > TAG_VALUES_MAX else [self._hash(value) for value in values]
            for values in found
        ]

    def _hash(self, value: bytes | None) -> int:
        known = self._remembered.get(value)
        if known is None:
            assert value is not None
            if len(self._remembered) > _REMEMBERED_MAX:
                self._remembered = {None: NULL_TAG}
            known = self._remembered[value] = siphash(value, self._secret)
        return known


def _values(
    data: bytes,
    record: RecordAt,
    headers: Sequence[tuple[bytes, bytes | None]],
    name: bytes | None,
) -> Sequence[bytes | None]:
    if name is not None:
        return [value for other, value in headers if other == name]
    return [data[record.key_begin : record.key_end]] if record.key_begin >= 0 else []
