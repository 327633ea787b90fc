"""`RecordMatcher` in compiled kernels: about 25 ns per record. `records/plain_match.py` is the plain form.

A condition becomes one buffer of literals and tables of numbers:

```
 literals    names and values, one after another
 names       a row per header that decides: its literal; whether it hides a record; its clauses
 clauses     a row per clause on a header: its values; what it is; one bit each in the mask of a record
 values      a row per value: its literal
 keys        a row per clause on the key: its values; what it is
```
A record's headers are walked once. Each sets the bits of the clauses that it fulfills; negation is applied at the end.
"""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from respool.columnar.compiled import Bytes, Numbers, Word, kernel, part_of_kernels, readable
from respool.columnar.raw_memory import copy_bytes
from respool.columnar.record_table import (
    BEGIN,
    END,
    LAST_OFFSET_DELTA,
    RECORD_BYTES_MIN,
    RECORD_COUNT,
    read_record,
    rows_needed,
)
from respool.columnar.varint_kernels import BROKEN, INT_BITS, read_varint
from respool.model.conditions.clauses import HeaderExists, KeyStarts
from respool.model.delay_headers import HIDING_HEADERS
from respool.model.where import Where
from respool.ports.record_scan import Buffer, MatchSummary, Section

# Columns of a name, a clause on a header, a value, a clause on the key.
NAME_BEGIN, NAME_END, HIDES, CLAUSES_FIRST, CLAUSES_END = range(5)
NAME_COLUMNS = 5
VALUES_FIRST, VALUES_END, KIND = range(3)
CLAUSE_COLUMNS = 3
VALUE_BEGIN, VALUE_END = range(2)

# Kinds of clauses.
IS_IN, IS_NOT_IN, EXISTS, STARTS = range(4)

# Columns of the condition as a whole: the mask that a record's headers must have; whether hidden records match (1),
# only others do (0), or it makes no difference (-1); and whether tombstones pass the clauses on headers.
MASK_WANTED, HIDDEN, TOMBSTONES = range(3)

# Bits of a record's mask. A text has at most 8 clauses, and combinations of conditions few more.
_CLAUSES_MAX = 62
_HIDDEN_BIT = np.int64(1) << np.int64(62)

# Columns of a section's summary, as in MatchSummary.
MATCHED, OFFSET_DELTA_LAST, TIMESTAMP_DELTA_MAX = range(3)
SUMMARY_COLUMNS = 3

# A header's key and value have a length each.
_HEADER_BYTES_MIN = 2


class Program(NamedTuple):
    """A condition for the kernels."""

    literals: Bytes
    names: Numbers
    clauses: Numbers
    values: Numbers
    keys: Numbers
    whole: Numbers


@part_of_kernels
def is_equal(
    data: Bytes, begin: int, end: int, literals: Bytes, literal: int, literal_end: int
) -> bool:
    """True if data[begin:end] is literals[literal:literal_end]."""
    if end - begin != literal_end - literal:
        return False
    for index in range(end - begin):  # noqa: SIM110 - kernels have no generators
        # An unsigned index needs no check for negative positions.
        if data[np.uint64(begin + index)] != literals[np.uint64(literal + index)]:
            return False
    return True


@part_of_kernels
def is_among(
    data: Bytes, begin: int, end: int, literals: Bytes, values: Numbers, first: int, last: int
) -> bool:
    for number in range(first, last):
        if is_equal(
            data, begin, end, literals, values[number, VALUE_BEGIN], values[number, VALUE_END]
        ):
            return True
    return False


@kernel
def key_matches(
    data: Bytes, begin: int, end: int, literals: Bytes, values: Numbers, keys: Numbers
) -> bool:
    """True if the key, null if it begins before 0, fulfills all clauses on it."""
    for number in range(keys.shape[0]):
        first, last, kind = (
            keys[number, VALUES_FIRST],
            keys[number, VALUES_END],
            keys[number, KIND],
        )
        if kind == STARTS:
            prefix, prefix_end = values[first, VALUE_BEGIN], values[first, VALUE_END]
            if begin < 0 or end - begin < prefix_end - prefix:
                return False
            cut = begin + prefix_end - prefix
            if not is_equal(data, begin, cut, literals, prefix, prefix_end):
                return False
        else:
            found = begin >= 0 and is_among(data, begin, end, literals, values, first, last)
            if found != (kind == IS_IN):
                return False
    return True


@kernel
def fulfilled(
    data: Bytes,
    at: int,
    end: int,
    literals: Bytes,
    names: Numbers,
    clauses: Numbers,
    values: Numbers,
) -> int:
    """Walk the headers of the record that ends at `end`; return the mask of what they fulfill, BROKEN if malformed."""
    count, at = read_varint(data, at, end, INT_BITS)
    if at < 0 or count < 0 or count > (end - at) // _HEADER_BYTES_MIN:
        return BROKEN
    mask: Word = np.int64(0)
    for _ in range(count):
        name_length, name = read_varint(data, at, end, INT_BITS)
        if name < 0 or name_length < 0 or name_length > end - name:
            return BROKEN
        name_end = name + name_length
        value_length, value = read_varint(data, name_end, end, INT_BITS)
        if value < 0 or value_length < -1 or value_length > end - value:
            return BROKEN
        at = value + max(value_length, 0)
        for number in range(names.shape[0]):
            if not is_equal(
                data, name, name_end, literals, names[number, NAME_BEGIN], names[number, NAME_END]
            ):
                continue
            if names[number, HIDES]:
                mask |= _HIDDEN_BIT
            for clause in range(names[number, CLAUSES_FIRST], names[number, CLAUSES_END]):
                bit = np.int64(1) << np.int64(clause)
                if mask & bit:
                    continue
                if clauses[clause, KIND] == EXISTS or (
                    value_length >= 0
                    and is_among(
                        data,
                        value,
                        at,
                        literals,
                        values,
                        clauses[clause, VALUES_FIRST],
                        clauses[clause, VALUES_END],
                    )
                ):
                    mask |= bit
    return mask if at == end else BROKEN


@kernel
def match_section(
    data: Bytes,
    sections: Numbers,
    index: int,
    literals: Bytes,
    names: Numbers,
    clauses: Numbers,
    values: Numbers,
    keys: Numbers,
    whole: Numbers,
    runs: Numbers,
    first: int,
    summaries: Numbers,
) -> int:
    """Fill the section's summary, and a run for each stretch of matching records from `first` on; return their end."""
    summaries[index, MATCHED] = -1
    summaries[index, OFFSET_DELTA_LAST] = -1
    summaries[index, TIMESTAMP_DELTA_MAX] = 0
    begin, end = sections[index, BEGIN], sections[index, END]
    count = sections[index, RECORD_COUNT]
    if count < 0 or count > (end - begin) // RECORD_BYTES_MIN:
        return first
    mask_wanted, hidden = whole[MASK_WANTED], whole[HIDDEN]
    at = begin
    delta_last: Word = np.int64(-1)
    matched = 0
    matched_last: Word = np.int64(-1)
    timestamp_delta_max: Word = np.int64(0)
    run = first
    for _ in range(count):
        record = read_record(data, at, end)
        delta = record[4]
        if record[0] < 0 or delta <= delta_last or delta > sections[index, LAST_OFFSET_DELTA]:
            return first
        delta_last = delta
        # Walked in any case: a record with malformed headers is malformed, whatever the condition asks.
        mask = fulfilled(data, record[8], record[0], literals, names, clauses, values)
        if mask == BROKEN:
            return first
        is_hidden = np.int64(mask >= _HIDDEN_BIT)
        passes_headers = (mask & (_HIDDEN_BIT - 1)) == mask_wanted or (
            whole[TOMBSTONES] and record[5] >= 0 and record[7] < 0
        )
        if (
            passes_headers
            and (hidden < 0 or hidden == is_hidden)
            and key_matches(data, record[5], record[6], literals, values, keys)
        ):
            if not matched or record[3] > timestamp_delta_max:
                timestamp_delta_max = record[3]
            matched += 1
            matched_last = delta
            if run > first and runs[run - 1, 1] == at:
                # Adjacent records are copied together.
                runs[run - 1, 1] = record[0]
            else:
                runs[run, 0] = at
                runs[run, 1] = record[0]
                run += 1
        at = record[0]
    if at != end:
        return first
    summaries[index, MATCHED] = matched
    summaries[index, OFFSET_DELTA_LAST] = matched_last
    summaries[index, TIMESTAMP_DELTA_MAX] = timestamp_delta_max
    return run


@kernel
def match_sections(
    data: Bytes,
    sections: Numbers,
    literals: Bytes,
    names: Numbers,
    clauses: Numbers,
    values: Numbers,
    keys: Numbers,
    whole: Numbers,
    runs: Numbers,
    run_ends: Numbers,
    summaries: Numbers,
) -> None:
    """Match all sections; `run_ends` gets the end of each one's runs."""
    run = 0
    for index in range(sections.shape[0]):
        run = match_section(
            data, sections, index, literals, names, clauses, values, keys, whole, runs, run,
            summaries,
        )  # fmt: skip
        run_ends[index] = run


@kernel
def copy_runs(data: Bytes, runs: Numbers, first: int, last: int, target: Bytes) -> None:
    at = 0
    for run in range(first, last):
        at = copy_bytes(data, runs[run, 0], runs[run, 1], target, at)


class CompiledMatcher:
    def __init__(self, where: Where) -> None:
        self._program = _compile(where)
        # Reused by each call.
        self._runs: Numbers = np.empty((0, 2), dtype=np.int64)

    def match(self, data: Buffer, sections: Sequence[Section]) -> "CompiledMatchedSections":
        # Takes a third of the time that numpy needs for a list of tuples.
        numbers = np.fromiter(chain.from_iterable(sections), dtype=np.int64)
        table: Numbers = numbers.reshape(-1, len(Section._fields))
        needed = int(rows_needed(table))
        if needed > len(self._runs):
            self._runs = np.empty((max(needed, 2 * len(self._runs)), 2), dtype=np.int64)
        run_ends: Numbers = np.empty(len(sections), dtype=np.int64)
        summaries: Numbers = np.empty((len(sections), SUMMARY_COLUMNS), dtype=np.int64)
        records = readable(data)
        match_sections(records, table, *self._program, self._runs, run_ends, summaries)
        return CompiledMatchedSections(records, self._runs, run_ends, summaries)


class CompiledMatchedSections:
    def __init__(self, data: Bytes, runs: Numbers, run_ends: Numbers, summaries: Numbers) -> None:
        self._data = data
        self._runs = runs
        self._run_ends = run_ends
        self.summaries = [MatchSummary(*row) for row in summaries.tolist()]

    def matching_records(self, index: int) -> memoryview:
        first = int(self._run_ends[index - 1]) if index else 0
        last = int(self._run_ends[index])
        runs = self._runs[first:last]
        target: Bytes = np.empty(int((runs[:, 1] - runs[:, 0]).sum()), dtype=np.uint8)
        copy_runs(self._data, self._runs, first, last, target)
        return target.data


def _compile(where: Where) -> Program:
    literals, values = bytearray(), list[tuple[int, int]]()

    def literal(text: bytes) -> tuple[int, int]:
        begin = len(literals)
        literals.extend(text)
        return begin, len(literals)

    def values_of(given: Sequence[bytes]) -> tuple[int, int]:
        first = len(values)
        values.extend(map(literal, given))
        return first, len(values)

    names, clauses = list[tuple[int, ...]](), list[tuple[int, ...]]()
    mask_wanted = 0
    for name in where.header_names:
        first = len(clauses)
        for clause in where.header_clauses:
            if clause.name != name:
                continue
            if not clause.is_negated:
                mask_wanted |= 1 << len(clauses)
            if isinstance(clause, HeaderExists):
                clauses.append((0, 0, EXISTS))
            else:
                clauses.append((*values_of(clause.values), IS_IN))
        names.append((*literal(name.encode()), 0, first, len(clauses)))
    assert len(clauses) <= _CLAUSES_MAX, where
    if where.hidden is not None:
        names.extend((*literal(name.encode()), 1, 0, 0) for name in HIDING_HEADERS)
    keys = [
        (*values_of([one.prefix]), STARTS)
        if isinstance(one, KeyStarts)
        else (*values_of(one.values), IS_NOT_IN if one.is_negated else IS_IN)
        for one in where.key_clauses
    ]
    hidden = -1 if where.hidden is None else int(where.hidden)
    return Program(
        readable(bytes(literals)),
        _table(names, NAME_COLUMNS),
        _table(clauses, CLAUSE_COLUMNS),
        _table(values, 2),
        _table(keys, CLAUSE_COLUMNS),
        np.array((mask_wanted, hidden, where.include_tombstones), dtype=np.int64),
    )


def _table(rows: Sequence[tuple[int, ...]], columns: int) -> Numbers:
    return np.array(rows, dtype=np.int64).reshape(-1, columns)
