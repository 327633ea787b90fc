"""`ports.record_scan` in compiled kernels: about 0.1 us per record.

A call takes any number of sections, so Python's overhead is per call, not per record.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from respool.columnar.compiled import Bytes, Numbers, Words, kernel
from respool.columnar.key_table import FILL_MAX, SLOT_BYTES, filter_sections, hash_keys, put_newest
from respool.columnar.raw_memory import copy_bytes
from respool.columnar.record_match import CompiledMatcher
from respool.columnar.record_table import (
    DROP_TOMBSTONES,
    KEY_BEGIN,
    OFFSET,
    ROW_BEGIN,
    ROW_BODY,
    ROW_COLUMNS,
    ROW_END,
    ROW_TAIL,
    TIMESTAMP_DELTA,
    list_keyless,
    read_sections,
    rows_needed,
)
from respool.columnar.tag_collector import CompiledTagCollector
from respool.columnar.varint_kernels import varint_bytes, write_varint
from respool.model.where import NOT_HIDDEN, Where
from respool.ports.record_scan import (
    KEYLESS_MAX,
    Buffer,
    KeylessRecords,
    RecordMatcher,
    Section,
    SectionSummary,
)

# Maximum growth of a record by another timestamp delta: the delta, and the record's length.
RECORD_GROWTH_MAX = 15


@kernel
def copy_retained(
    data: Bytes, rows: Numbers, first: int, count: int, retained: Numbers, target: Bytes
) -> int:
    """Copy the retained rows unchanged; return the number of bytes."""
    at = 0
    number, last = first, first + count
    while number < last:
        if not retained[number]:
            number += 1
            continue
        # Adjacent rows are copied together.
        begin = rows[number, ROW_BEGIN]
        while number + 1 < last and retained[number + 1]:
            number += 1
        at = copy_bytes(data, begin, rows[number, ROW_END], target, at)
        number += 1
    return at


@kernel
def copy_retained_shifted(
    data: Bytes, rows: Numbers, first: int, count: int, retained: Numbers, shift: int, target: Bytes
) -> int:
    """As `copy_retained`, with `shift` added to each timestamp delta."""
    at = 0
    for number in range(first, first + count):
        if not retained[number]:
            continue
        delta = np.int64(rows[number, TIMESTAMP_DELTA]) + np.int64(shift)
        body, tail, end = rows[number, ROW_BODY], rows[number, ROW_TAIL], rows[number, ROW_END]
        at = write_varint(target, at, 1 + varint_bytes(delta) + end - tail)
        # The attributes.
        at = copy_bytes(data, body, body + 1, target, at)
        at = write_varint(target, at, delta)
        at = copy_bytes(data, tail, end, target, at)
    return at


_SLOTS_MIN = 16


class CompiledScanner:
    # A few thousand records, a tenth of a millisecond.
    quick_bytes_max = 256 * 1024

    def prepare(self) -> None:
        """Compile or load the kernels; otherwise the first call does."""
        offsets = self.key_offsets(bytes_max=0, keys_max=1, secret=bytes(16))
        # One record: key and value of one byte each.
        data = b"\x10\x00\x00\x00\x02k\x02v\x00"
        section = Section(0, len(data), 1, 0, 0)
        offsets.add(data, [section], begin=0)
        filtered = offsets.filter_records(data, [section], end=1)
        for shift in (0, 1):
            filtered.retained_records(0, timestamp_shift=shift)
        assert self.find_keyless(data, record_count=1, last_offset_delta=0) == (0, [])
        matched = self.matcher(NOT_HIDDEN).match(data, [section])
        assert matched.summaries[0].matched == 1
        assert bytes(matched.matching_records(0)) == data
        assert list(self.key_hasher(secret=bytes(16)).hash_keys(data, [section], begin=0)) == [0]
        collector = self.tag_collector([None, b"tag"], secret=bytes(16))
        (found,) = collector.collect(data, [section])
        assert found is not None
        assert found[1] == []

    def find_keyless(
        self, records: Buffer, *, record_count: int, last_offset_delta: int
    ) -> KeylessRecords | None:
        numbers: Numbers = np.empty(KEYLESS_MAX, dtype=np.int64)
        total = int(list_keyless(_bytes(records), record_count, last_offset_delta, numbers))
        return None if total < 0 else KeylessRecords(total, numbers[:total].tolist())

    def key_offsets(self, *, bytes_max: int, keys_max: int, secret: bytes) -> "CompiledKeyOffsets":
        slots = _SLOTS_MIN
        while slots * FILL_MAX < keys_max and 2 * slots * SLOT_BYTES <= bytes_max:
            slots *= 2
        return CompiledKeyOffsets(slots=slots, secret=secret)

    def key_hasher(self, *, secret: bytes) -> "CompiledKeyHasher":
        return CompiledKeyHasher(secret)

    def matcher(self, where: Where) -> RecordMatcher:
        return CompiledMatcher(where)

    def tag_collector(
        self, names: Sequence[bytes | None], *, secret: bytes
    ) -> CompiledTagCollector:
        return CompiledTagCollector(names, secret=secret)


class CompiledKeyOffsets:
    def __init__(self, *, slots: int, secret: bytes) -> None:
        # Untouched pages cost nothing.
        self._slots: Words = np.zeros((slots, 3), dtype=np.uint64)
        self._used = 0
        self._used_max = int(slots * FILL_MAX)
        self._secret: Words = np.frombuffer(secret[:16], dtype="<u8")
        self._table = RecordTable()

    def add(self, data: Buffer, sections: Sequence[Section], *, begin: int) -> int | None:
        table = self._table
        table.read(_bytes(data), sections, self._secret)
        self._used, row = put_newest(
            self._slots,
            self._used,
            self._used_max,
            table.rows,
            table.count,
            table.hashes,
            begin,
        )
        return int(table.rows[row, OFFSET]) if row < table.count else None

    def filter_records(
        self, data: Buffer, sections: Sequence[Section], *, end: int
    ) -> "CompiledFilteredSections":
        table = self._table
        table.read(_bytes(data), sections, self._secret)
        summaries: Numbers = np.empty((len(sections), 3), dtype=np.int64)
        filter_sections(
            self._slots,
            table.rows,
            table.hashes,
            end,
            table.sections[:, DROP_TOMBSTONES],
            table.counts,
            table.retained,
            summaries,
        )
        return CompiledFilteredSections(table, [SectionSummary(*row) for row in summaries.tolist()])


class CompiledKeyHasher:
    def __init__(self, secret: bytes) -> None:
        self._secret: Words = np.frombuffer(secret, dtype="<u8")
        self._table = RecordTable()

    def hash_keys(self, data: Buffer, sections: Sequence[Section], *, begin: int) -> dict[int, int]:
        table = self._table
        table.read(_bytes(data), sections, self._secret)
        rows = table.rows[: table.count]
        wanted = (rows[:, KEY_BEGIN] >= 0) & (rows[:, OFFSET] >= begin)
        hashes = table.hashes[: table.count, 0][wanted]
        return dict(zip(rows[wanted, OFFSET].tolist(), hashes.tolist(), strict=True))


class CompiledFilteredSections:
    def __init__(self, table: "RecordTable", summaries: Sequence[SectionSummary]) -> None:
        self._table = table
        self.summaries = summaries

    def retained_records(self, index: int, *, timestamp_shift: int) -> memoryview:
        table = self._table
        count = int(table.counts[index])
        assert count >= 0, "the records are malformed"
        first = int(table.counts[:index].clip(min=0).sum())
        if not count:
            return memoryview(b"")
        size = int(table.rows[first + count - 1, ROW_END] - table.rows[first, ROW_BEGIN])
        if timestamp_shift:
            size += count * RECORD_GROWTH_MAX
        target: Bytes = np.empty(size, dtype=np.uint8)
        if timestamp_shift:
            # The kernel adds with 64-bit wraparound, and so do readers.
            shift = (timestamp_shift + 2**63) % 2**64 - 2**63
            size = copy_retained_shifted(
                table.data, table.rows, first, count, table.retained, shift, target
            )
        else:
            size = copy_retained(table.data, table.rows, first, count, table.retained, target)
        return target[:size].data


class RecordTable:
    """The sections of one call, with rows and hashes of their records. The memory is reused."""

    def __init__(self) -> None:
        self.data: Bytes = _bytes(b"")
        self.sections: Numbers = np.empty((0, len(Section._fields)), dtype=np.int64)
        # Number of rows of each section, -1 if it does not match its header; and in total.
        self.counts: Numbers = np.empty(0, dtype=np.int64)
        self.count = 0
        self.rows: Numbers = np.empty((0, ROW_COLUMNS), dtype=np.int64)
        self.hashes: Words = np.empty((0, 2), dtype=np.uint64)
        # 1 for a retained row.
        self.retained: Numbers = np.empty(0, dtype=np.int64)

    def read(self, data: Bytes, sections: Sequence[Section], secret: Words) -> None:
        self.data = data
        # Takes a third of the time that numpy needs for a list of tuples.
        numbers = np.fromiter(chain.from_iterable(sections), dtype=np.int64)
        self.sections = numbers.reshape(-1, len(Section._fields))
        self.counts = np.empty(len(sections), dtype=np.int64)
        self._make_room(int(rows_needed(self.sections)))
        self.count = int(read_sections(data, self.sections, self.rows, self.counts))
        hash_keys(data, self.rows, self.count, secret, self.hashes)

    def _make_room(self, rows: int) -> None:
        if rows > len(self.rows):
            rows = max(rows, 2 * len(self.rows))
            self.rows = np.empty((rows, ROW_COLUMNS), dtype=np.int64)
            self.hashes = np.empty((rows, 2), dtype=np.uint64)
            self.retained = np.empty(rows, dtype=np.int64)


def _bytes(data: Buffer) -> Bytes:
    return np.frombuffer(data, dtype=np.uint8)
