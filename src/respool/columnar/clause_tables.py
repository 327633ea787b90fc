"""A condition as tables for kernels, and the kernel that evaluates it for one record.

`records/plain_match.py` evaluates the same in plain Python; `model/where.py` explains conditions.

A clause is a bit. Tests on the key and on each header set the bits of the clauses that they make hold; a clause may
have several tests. In the end the bits of all clauses must be set, and those of negated ones must not.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from respool.columnar.compiled import Bytes, Numbers, Word, kernel, part_of_kernels, readable
from respool.columnar.record_table import HEADER_BYTES_MIN
from respool.columnar.varint_kernels import INT_BITS, read_varint
from respool.model.conditions.clauses import HeaderExists, KeyStarts
from respool.model.delays.delay_headers import HIDING_HEADERS
from respool.model.where import Where

# A row of tests: its clause's bit; the range of `values`, and for tests of headers the name's range of `text`.
BIT, KIND, NAME_BEGIN, NAME_END, VALUE_FIRST, VALUE_END = range(6)
_TEST_COLUMNS = 6
# Tests of the key come first.
KEY_EQUALS, KEY_STARTS, HEADER_EXISTS, HEADER_EQUALS = range(4)

# The masks: all clauses, negated clauses, clauses that tombstones need not fulfil, and the number of tests of the key.
ALL_CLAUSES, NEGATED_CLAUSES, NOT_OF_TOMBSTONES, KEY_TESTS = range(4)

# A bit is of 64, and signed.
CLAUSES_MAX = 62

# The verdict on a record; 1 if it matches.
MALFORMED = -1


class ClauseTables(NamedTuple):
    tests: Numbers
    # Begin and end in `text`.
    values: Numbers
    # Names and values.
    text: Bytes
    masks: Numbers

    @property
    def is_empty(self) -> bool:
        """True if all records match."""
        return not self.masks[ALL_CLAUSES]


def clause_tables(where: Where | None) -> ClauseTables:
    """The tables of a condition; all records match None."""
    if where is None:
        return _TableBuilder().built()
    assert len(where.clauses) <= CLAUSES_MAX, where
    builder = _TableBuilder()
    for number, key_clause in enumerate(where.key_clauses):
        bit = 1 << number
        if isinstance(key_clause, KeyStarts):
            builder.add_test(bit, KEY_STARTS, values=[key_clause.prefix])
        else:
            builder.add_test(bit, KEY_EQUALS, values=key_clause.values)
        builder.add_clause(bit, is_negated=getattr(key_clause, "is_negated", False))
    builder.masks[KEY_TESTS] = len(builder.tests)
    for number, clause in enumerate(where.header_clauses, len(where.key_clauses)):
        bit = 1 << number
        name = clause.name.encode()
        if isinstance(clause, HeaderExists):
            builder.add_test(bit, HEADER_EXISTS, name=name)
        else:
            builder.add_test(bit, HEADER_EQUALS, name=name, values=clause.values)
        builder.add_clause(bit, is_negated=clause.is_negated)
        if where.include_tombstones:
            builder.masks[NOT_OF_TOMBSTONES] |= bit
    if where.hidden is not None:
        bit = 1 << len(where.clauses)
        for header in HIDING_HEADERS:
            builder.add_test(bit, HEADER_EXISTS, name=header.encode())
        builder.add_clause(bit, is_negated=not where.hidden)
    return builder.built()


class _TableBuilder:
    def __init__(self) -> None:
        self.tests: list[tuple[int, ...]] = []
        self.masks = [0, 0, 0, 0]
        self._values: list[tuple[int, int]] = []
        self._text = bytearray()

    def add_clause(self, bit: int, *, is_negated: bool) -> None:
        self.masks[ALL_CLAUSES] |= bit
        if is_negated:
            self.masks[NEGATED_CLAUSES] |= bit

    def add_test(
        self, bit: int, kind: int, *, name: bytes = b"", values: Iterable[bytes] = ()
    ) -> None:
        name_begin, name_end = self._add_text(name)
        first = len(self._values)
        self._values += map(self._add_text, values)
        self.tests.append((bit, kind, name_begin, name_end, first, len(self._values)))

    def _add_text(self, text: bytes) -> tuple[int, int]:
        begin = len(self._text)
        self._text += text
        return begin, len(self._text)

    def built(self) -> ClauseTables:
        return ClauseTables(
            tests=_numbers(self.tests, _TEST_COLUMNS),
            values=_numbers(self._values, 2),
            text=readable(bytes(self._text)),
            masks=np.array(self.masks, dtype=np.int64),
        )


def _numbers(rows: list[tuple[int, ...]] | list[tuple[int, int]], columns: int) -> Numbers:
    return np.array(rows, dtype=np.int64).reshape(-1, columns)


@part_of_kernels
def is_equal(
    data: Bytes, begin: int, end: int, text: Bytes, text_begin: int, text_end: int
) -> bool:
    size = end - begin
    if size != text_end - text_begin:
        return False
    for index in range(size):  # noqa: SIM110  Not a generator, in a kernel.
        if data[np.uint64(begin + index)] != text[np.uint64(text_begin + index)]:
            return False
    return True


@part_of_kernels
def is_one_of(
    data: Bytes, begin: int, end: int, values: Numbers, first: int, last: int, text: Bytes
) -> bool:
    """Whether data[begin:end] is one of these values."""
    for value in range(first, last):  # noqa: SIM110  The same.
        if is_equal(data, begin, end, text, values[value, 0], values[value, 1]):
            return True
    return False


@part_of_kernels
def bits_of_key(
    data: Bytes, begin: int, end: int, tests: Numbers, values: Numbers, text: Bytes, count: int
) -> Word:
    """The bits of the first `count` tests, which are those of the key, that succeed."""
    held = np.int64(0)
    for test in range(count):
        first, last = tests[test, VALUE_FIRST], tests[test, VALUE_END]
        stop = end
        if tests[test, KIND] == KEY_STARTS:
            stop = min(end, begin + values[first, 1] - values[first, 0])
        if is_one_of(data, begin, stop, values, first, last, text):
            held |= tests[test, BIT]
    return held


@kernel
def match_record(
    data: Bytes,
    key_begin: int,
    key_end: int,
    value_begin: int,
    headers_begin: int,
    end: int,
    tests: Numbers,
    values: Numbers,
    text: Bytes,
    masks: Numbers,
) -> int:
    """Return 1 if all clauses hold for this record, else 0; MALFORMED if it does not end with its headers.

    Key and value begin at -1 if they are null. The tables are those of `ClauseTables`, one by one: taking them out of
    the tuple for each record would take longer than the rest.
    """
    held = np.int64(0)
    key_tests = masks[KEY_TESTS]
    if key_begin >= 0:
        held = bits_of_key(data, key_begin, key_end, tests, values, text, key_tests)
    # Read in any case: a record with malformed headers is malformed, whatever the condition is.
    count, at = read_varint(data, headers_begin, end, INT_BITS)
    if at < 0 or count < 0 or count > (end - at) // HEADER_BYTES_MIN:
        return MALFORMED
    for _ in range(count):
        # Not by `record_columns.read_header`: its call takes a quarter of the time.
        name_bytes, name = read_varint(data, at, end, INT_BITS)
        if name < 0 or name_bytes < 0 or name_bytes > end - name:
            return MALFORMED
        name_end = name + name_bytes
        value_bytes, value = read_varint(data, name_end, end, INT_BITS)
        if value < 0 or value_bytes < -1 or value_bytes > end - value:
            return MALFORMED
        at = value + max(value_bytes, 0)
        for test in range(key_tests, tests.shape[0]):
            if not is_equal(
                data, name, name_end, text, tests[test, NAME_BEGIN], tests[test, NAME_END]
            ):
                continue
            first, last = tests[test, VALUE_FIRST], tests[test, VALUE_END]
            if tests[test, KIND] == HEADER_EXISTS or (
                value_bytes >= 0 and is_one_of(data, value, at, values, first, last, text)
            ):
                held |= tests[test, BIT]
    if at != end:
        return MALFORMED
    required = masks[ALL_CLAUSES]
    if key_begin >= 0 and value_begin < 0:
        required &= ~masks[NOT_OF_TOMBSTONES]
    return 1 if ((held ^ masks[NEGATED_CLAUSES]) & required) == required else 0
