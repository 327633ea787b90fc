"""`RecordMatcher` in plain Python. `columnar/record_match.py` is the compiled form."""

from collections.abc import Sequence
from dataclasses import dataclass

from respool.model.conditions.clauses import (
    HeaderExists,
    HeaderIn,
    KeyIn,
    KeyStarts,
)
from respool.model.delays.delay_headers import HIDING_HEADERS
from respool.model.errors import CorruptMessage
from respool.model.where import Where
from respool.ports.record_scan import Buffer, MatchSummary, Section
from respool.records.record_headers import RecordHeaders, read_record_headers
from respool.records.record_positions import RecordAt, walk_records

_NOT_RECORDS = MatchSummary(-1, -1, 0)
_HIDING = frozenset(name.encode() for name in HIDING_HEADERS)


@dataclass(frozen=True, slots=True)
class RecordCondition:
    """A condition for records that are decoded anyway; names are bytes, as in records."""

    headers: tuple[tuple[bytes, HeaderIn | HeaderExists], ...]
    keys: tuple[KeyIn | KeyStarts, ...]
    hidden: bool | None
    include_tombstones: bool

    @classmethod
    def of(cls, where: Where) -> "RecordCondition":
        return cls(
            headers=tuple((one.name.encode(), one) for one in where.header_clauses),
            keys=where.key_clauses,
            hidden=where.hidden,
            include_tombstones=where.include_tombstones,
        )

    def holds(self, key: bytes | None, headers: RecordHeaders, *, has_value: bool) -> bool:
        if self.hidden is not None and self.hidden != any(name in _HIDING for name, _ in headers):
            return False
        if not all(_key_holds(clause, key) for clause in self.keys):
            return False
        if self.include_tombstones and key is not None and not has_value:
            return True
        return all(_header_holds(name, clause, headers) for name, clause in self.headers)


class PlainMatcher:
    def __init__(self, where: Where) -> None:
        self._condition = RecordCondition.of(where)

    def match(self, data: Buffer, sections: Sequence[Section]) -> "PlainMatchedSections":
        whole = bytes(data)
        summaries: list[MatchSummary] = []
        matching: list[list[RecordAt]] = []
        for section in sections:
            try:
                found = [one for one in walk_records(whole, section) if self._matches(whole, one)]
            except CorruptMessage:
                summaries.append(_NOT_RECORDS)
                matching.append([])
                continue
            matching.append(found)
            summaries.append(
                MatchSummary(
                    len(found),
                    found[-1].offset_delta if found else -1,
                    max((one.timestamp_delta for one in found), default=0),
                )
            )
        return PlainMatchedSections(whole, matching, summaries)

    def _matches(self, data: bytes, record: RecordAt) -> bool:
        key = None if record.key_begin < 0 else data[record.key_begin : record.key_end]
        # Read in any case: a record with malformed headers is malformed, whatever the condition asks.
        headers = read_record_headers(data, record)
        return self._condition.holds(key, headers, has_value=record.has_value)


class PlainMatchedSections:
    def __init__(
        self, data: bytes, matching: list[list[RecordAt]], summaries: Sequence[MatchSummary]
    ) -> None:
        self._data = data
        self._matching = matching
        self.summaries = summaries

    def matching_records(self, index: int) -> bytes:
        return b"".join(self._data[one.begin : one.end] for one in self._matching[index])


def _key_holds(clause: KeyIn | KeyStarts, key: bytes | None) -> bool:
    if isinstance(clause, KeyStarts):
        return key is not None and key.startswith(clause.prefix)
    return (key is not None and key in clause.values) != clause.is_negated


def _header_holds(name: bytes, clause: HeaderIn | HeaderExists, headers: RecordHeaders) -> bool:
    named = [value for other, value in headers if other == name]
    if isinstance(clause, HeaderExists):
        return bool(named) != clause.is_negated
    return any(value in clause.values for value in named) != clause.is_negated
