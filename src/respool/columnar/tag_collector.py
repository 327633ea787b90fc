"""`TagCollector` in compiled kernels: some 50 ns per record. `records/plain_tags.py` is the plain form.

Each section's values are entered into a hash set per name. The sets are not cleared between sections: a slot counts
only if its stamp is that of the section.
"""

from collections.abc import Sequence

import numpy as np

from respool.columnar.clause_tables import is_equal
from respool.columnar.compiled import Bytes, Numbers, Word, Words, kernel, readable
from respool.columnar.key_table import hash_bytes
from respool.columnar.record_table import HEADER_BYTES_MIN, RECORD_BYTES_MIN, read_record
from respool.columnar.varint_kernels import INT_BITS, read_varint
from respool.ports.record_scan import NULL_TAG, TAG_VALUES_MAX, Buffer, Section, TagHashes

# Columns of a name: its range of the literals.
NAME_BEGIN, NAME_END = range(2)
# Never more than half full.
SLOTS = 2 * TAG_VALUES_MAX
_NULL = np.uint64(NULL_TAG)


@kernel
def add_hash(
    slots: Words, stamps: Numbers, stamp: int, column: int, found: Words, counts: Numbers, new: Word
) -> None:
    """Add a value's hash to its column, unless it is there; a count above TAG_VALUES_MAX says that there are more."""
    if counts[column] > TAG_VALUES_MAX:
        return
    slot = np.int64(new & np.uint64(SLOTS - 1))
    while stamps[column, slot] == stamp:
        if slots[column, slot] == new:
            return
        slot = (slot + 1) & (SLOTS - 1)
    if counts[column] < TAG_VALUES_MAX:
        slots[column, slot] = new
        stamps[column, slot] = stamp
        found[column, counts[column]] = new
    counts[column] += 1


@kernel
def collect_headers(
    data: Bytes,
    at: int,
    end: int,
    literals: Bytes,
    names: Numbers,
    secret: Words,
    slots: Words,
    stamps: Numbers,
    stamp: int,
    found: Words,
    counts: Numbers,
) -> bool:
    """Collect the hashes of the headers of the record that ends at `end`; return False if they are malformed."""
    count, at = read_varint(data, at, end, INT_BITS)
    if at < 0 or count < 0 or count > (end - at) // HEADER_BYTES_MIN:
        return False
    for _ in range(count):
        name_length, name = read_varint(data, at, end, INT_BITS)
        if name < 0 or name_length < 0 or name_length > end - name:
            return False
        name_end = name + name_length
        value_length, value = read_varint(data, name_end, end, INT_BITS)
        if value < 0 or value_length < -1 or value_length > end - value:
            return False
        at = value + max(value_length, 0)
        for column in range(names.shape[0]):
            # The key's name begins before 0.
            if names[column, NAME_BEGIN] >= 0 and is_equal(
                data, name, name_end, literals, names[column, NAME_BEGIN], names[column, NAME_END]
            ):
                new = hash_bytes(data, value, at, secret)[0] if value_length >= 0 else _NULL
                add_hash(slots, stamps, stamp, column, found, counts, new)
    return at == end


@kernel
def collect_section(
    data: Bytes,
    begin: int,
    end: int,
    record_count: int,
    last_offset_delta: int,
    literals: Bytes,
    names: Numbers,
    secret: Words,
    slots: Words,
    stamps: Numbers,
    stamp: int,
    found: Words,
    counts: Numbers,
) -> bool:
    """Collect the hashes of one section; return False if it is malformed."""
    if record_count < 0 or record_count > (end - begin) // RECORD_BYTES_MIN:
        return False
    at = begin
    delta_last: Word = np.int64(-1)
    for _ in range(record_count):
        record = read_record(data, at, end)
        delta = record[4]
        if record[0] < 0 or delta <= delta_last or delta > last_offset_delta:
            return False
        delta_last = delta
        at = record[0]
        if not collect_headers(
            data, record[8], at, literals, names, secret, slots, stamps, stamp, found, counts
        ):
            return False
        if record[5] >= 0:
            for column in range(names.shape[0]):
                if names[column, NAME_BEGIN] < 0:
                    new = hash_bytes(data, record[5], record[6], secret)[0]
                    add_hash(slots, stamps, stamp, column, found, counts, new)
    return at == end


class CompiledTagCollector:
    def __init__(self, names: Sequence[bytes | None], *, secret: bytes) -> None:
        literals = b"".join(name or b"" for name in names)
        rows, at = [], 0
        for name in names:
            rows.append((-1, -1) if name is None else (at, at + len(name)))
            at += len(name or b"")
        self._literals = readable(literals)
        self._names: Numbers = np.array(rows, dtype=np.int64).reshape(-1, 2)
        self._secret: Words = np.frombuffer(secret, dtype="<u8")
        self._slots: Words = np.empty((len(rows), SLOTS), dtype=np.uint64)
        self._stamps: Numbers = np.zeros((len(rows), SLOTS), dtype=np.int64)
        self._stamp = 0
        self._found: Words = np.empty((len(rows), TAG_VALUES_MAX), dtype=np.uint64)

    def collect(self, data: Buffer, sections: Sequence[Section]) -> list[list[TagHashes] | None]:
        records = readable(data)
        return [self._collect(records, section) for section in sections]

    def _collect(self, data: Bytes, section: Section) -> list[TagHashes] | None:
        self._stamp += 1
        counts: Numbers = np.zeros(len(self._names), dtype=np.int64)
        is_sound = collect_section(
            data,
            section.begin,
            section.end,
            section.record_count,
            section.last_offset_delta,
            self._literals,
            self._names,
            self._secret,
            self._slots,
            self._stamps,
            self._stamp,
            self._found,
            counts,
        )
        if not is_sound:
            return None
        return [
            None if count > TAG_VALUES_MAX else self._found[column, :count].tolist()
            for column, count in enumerate(counts.tolist())
        ]
