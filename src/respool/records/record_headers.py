"""Reads the headers of one record. `record.py` shows the layout."""

from respool.model.errors import CorruptMessage
from respool.records.record_positions import RecordAt
from respool.records.varint import read_varint

# The lengths of a header's key and value.
_HEADER_BYTES_MIN = 2

RecordHeaders = list[tuple[bytes, bytes | None]]


def read_record_headers(data: bytes, record: RecordAt) -> RecordHeaders:
    """
    Raises:
        CorruptMessage: the record does not end with its headers.
    """
    at, end = record.value_end, record.end
    count, at = read_varint(data, at, end=end)
    if not 0 <= count <= (end - at) // _HEADER_BYTES_MIN:
        raise CorruptMessage(f"{count} headers in {end - at} bytes")
    headers: RecordHeaders = []
    for _ in range(count):
        name, at = _read_bytes(data, at, end)
        if name is None:
            raise CorruptMessage(f"a header without a key before byte {at}")
        value, at = _read_bytes(data, at, end)
        headers.append((name, value))
    if at != end:
        raise CorruptMessage(f"a record's headers end at byte {at}, the record at {end}")
    return headers


def _read_bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    length, at = read_varint(data, at, end=end)
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise CorruptMessage(f"{length} bytes at byte {at}, the record ends at {end}")
    return data[at : at + length], at + length
