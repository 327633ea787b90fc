"""`RecordMatcher` in compiled kernels: about 25 ns per record. `records/plain_match.py` is the plain form.

`clause_tables.py` evaluates the condition for each record; here sections are walked, and their matching records copied.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np

from respool.columnar.clause_tables import ClauseTables, clause_tables, match_record
from respool.columnar.compiled import Bytes, Numbers, Word, kernel, readable
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
from respool.model.where import Where
from respool.ports.record_scan import Buffer, MatchSummary, Section

# Columns of a section's summary, as in MatchSummary.
MATCHED, OFFSET_DELTA_LAST, TIMESTAMP_DELTA_MAX = range(3)
SUMMARY_COLUMNS = 3
# A broker keeps a few matchers of each condition: this is 64 KiB in each.
KEPT_RUNS_MAX = 4096


@kernel
def match_section(
    data: Bytes,
    sections: Numbers,
    index: int,
    clauses: ClauseTables,
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
    tests, values, text, masks = clauses.tests, clauses.values, clauses.text, clauses.masks
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
        verdict = match_record(
            data,
            record[5],
            record[6],
            record[7],
            record[8],
            record[0],
            tests,
            values,
            text,
            masks,
        )
        if verdict < 0:
            return first
        if verdict:
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
    clauses: ClauseTables,
    runs: Numbers,
    run_ends: Numbers,
    summaries: Numbers,
) -> None:
    """Match all sections; `run_ends` gets the end of each one's runs."""
    run = 0
    for index in range(sections.shape[0]):
        run = match_section(data, sections, index, clauses, runs, run, summaries)
        run_ends[index] = run


@kernel
def copy_runs(data: Bytes, runs: Numbers, first: int, last: int, target: Bytes) -> None:
    at = 0
    for run in range(first, last):
        at = copy_bytes(data, runs[run, 0], runs[run, 1], target, at)


class CompiledMatcher:
    def __init__(self, where: Where) -> None:
        self._clauses = clause_tables(where)
        # Reused by each call that needs no more.
        self._runs: Numbers = np.empty((0, 2), dtype=np.int64)

    def match(self, data: Buffer, sections: Sequence[Section]) -> "CompiledMatchedSections":
        # Takes a third of the time that numpy needs for a list of tuples.
        numbers = np.fromiter(chain.from_iterable(sections), dtype=np.int64)
        table: Numbers = numbers.reshape(-1, len(Section._fields))
        needed = int(rows_needed(table))
        runs = self._runs
        if needed > len(runs):
            runs = np.empty((max(needed, 2 * len(runs)), 2), dtype=np.int64)
            if len(runs) <= KEPT_RUNS_MAX:
                self._runs = runs
        run_ends: Numbers = np.empty(len(sections), dtype=np.int64)
        summaries: Numbers = np.empty((len(sections), SUMMARY_COLUMNS), dtype=np.int64)
        records = readable(data)
        match_sections(records, table, self._clauses, runs, run_ends, summaries)
        return CompiledMatchedSections(records, runs, run_ends, summaries)


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
