"""What every `RecordMatcher` must do: the tests of both, the plain one and the compiled."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from records.record_examples import NOON_MS
from records.scan_contract import joined, records_in, section_of
from respool.model.conditions.clauses import (
    Clause,
    HeaderExists,
    HeaderIn,
    Hidden,
    KeyIn,
    KeyStarts,
    in_order,
)
from respool.model.conditions.contradictions import contradiction
from respool.model.delays.delay_headers import HIDING_HEADERS, TIMES
from respool.model.where import NOT_HIDDEN, Where, parse_where
from respool.ports.record_scan import MatchSummary, RecordMatcher, Section
from respool.records.build import NewRecord

MakeMatcher = Callable[[Where], RecordMatcher]

# Few, so that they meet.
NAMES = ["tag", "ta", "region", "größe", "", HIDING_HEADERS[0], HIDING_HEADERS[-1], TIMES]
VALUES = [b"paid", b"pai", b"paid!", b"", b"\x00\xff", b"v" * 20, b"v" * 19 + b"w"]

names = st.sampled_from(NAMES)
values = st.sampled_from(VALUES)
value_lists = st.lists(values, min_size=1, max_size=4).map(in_order)
clauses: st.SearchStrategy[Clause] = st.one_of(
    st.builds(HeaderIn, names, value_lists, st.booleans()),
    st.builds(HeaderExists, names, st.booleans()),
    st.builds(KeyIn, value_lists, st.booleans()),
    st.builds(KeyStarts, values),
    st.builds(Hidden, st.booleans()),
)
conditions = (
    st.lists(clauses, min_size=1, max_size=4)
    .map(lambda found: tuple(dict.fromkeys(found)))
    .filter(lambda found: not contradiction(found))
    .flatmap(lambda found: st.builds(Where, st.just(found), st.booleans()))
)
tagged_records = st.lists(
    st.builds(
        NewRecord,
        key=st.none() | values,
        value=st.none() | values,
        timestamp_ms=st.integers(NOON_MS - 2**40, NOON_MS + 2**40),
        headers=st.lists(st.tuples(names, st.none() | values), max_size=4).map(tuple),
    ),
    max_size=8,
)


def is_shown(where: Where, record: NewRecord) -> bool:
    """The language's meaning, as its documentation states it."""

    def holds(clause: Clause) -> bool:
        match clause:
            case HeaderIn(name, among, is_negated):
                return any(key == name and value in among for key, value in record.headers) != (
                    is_negated
                )
            case HeaderExists(name, is_negated):
                return (name in dict(record.headers)) != is_negated
            case KeyIn(among, is_negated):
                return (record.key in among) != is_negated
            case KeyStarts(prefix):
                return record.key is not None and record.key[: len(prefix)] == prefix
            case Hidden(is_negated):
                return any(name in HIDING_HEADERS for name, _ in record.headers) != is_negated

    is_tombstone = record.key is not None and record.value is None
    return all(
        (where.include_tombstones and is_tombstone and isinstance(one, HeaderIn | HeaderExists))
        or holds(one)
        for one in where.clauses
    )


def tagged(*headers: tuple[str, bytes | None], key: bytes | None = None) -> NewRecord:
    return NewRecord(key=key, value=b"v", timestamp_ms=NOON_MS, headers=headers)


def summary_of(where: Where, records: Sequence[NewRecord]) -> MatchSummary:
    shown = [number for number, one in enumerate(records) if is_shown(where, one)]
    return MatchSummary(
        len(shown),
        shown[-1] if shown else -1,
        max((records[number].timestamp_ms - NOON_MS for number in shown), default=0),
    )


class MatcherContract:
    matcher: MakeMatcher

    def matching(self, text: str, records: Sequence[NewRecord]) -> list[int]:
        data, section = section_of(records)
        matched = type(self).matcher(parse_where(text)).match(data, [section])
        count = matched.summaries[0].matched
        found = records_in(matched.matching_records(0), section, count=count)
        return [int(one.offset) for one in found]

    @pytest.mark.parametrize(
        ("text", "matching"),
        [
            ("tag = 'a'", [1, 2, 3]),
            ("tag in ('a', 'b')", [1, 2, 3, 4]),
            ("tag != 'a'", [0, 4, 5, 6]),
            ("exists(tag)", [1, 2, 3, 4, 5]),
            ("absent(tag)", [0, 6]),
            ("tag = ''", []),
            ("tag = 'a' and tag = 'b'", [3]),
            ("tag = 'a' and region = 'eu'", [2]),
            ("key = 'k'", [2]),
            ("key != 'k'", [0, 1, 3, 4, 5, 6]),
            ("key starts ''", [2, 6]),
            ("key starts 'kk'", [6]),
        ],
    )
    def test_clauses(self, text: str, matching: list[int]) -> None:
        records = [
            tagged(),
            tagged(("tag", b"a")),
            tagged(("region", b"eu"), ("tag", b"a"), key=b"k"),
            tagged(("tag", b"a"), ("tag", b"b")),
            tagged(("tag", b"b"), ("Tag", b"a")),
            tagged(("tag", None)),
            tagged(("tagg", b"a"), key=b"kk"),
        ]
        assert self.matching(text, records) == matching

    def test_a_null_value_equals_nothing_and_exists_holds(self) -> None:
        records = [tagged(("tag", None)), tagged(("tag", b""))]
        assert self.matching("tag = ''", records) == [1]
        assert self.matching("tag != ''", records) == [0]
        assert self.matching("exists(tag)", records) == [0, 1]

    def test_names_and_values_are_bytes_and_equal_if_all_are(self) -> None:
        records = [tagged(("größe", b"\x00\xff")), tagged(("grosse", b"\x00\xff"))]
        assert self.matching("\"größe\" = x'00ff'", records) == [0]
        assert self.matching("\"größe\" = x'00'", records) == []

    def test_hidden_records_are_those_with_a_header_that_delays(self) -> None:
        records = [tagged((name, b"x")) for name in (*HIDING_HEADERS, TIMES)]
        assert self.matching("not hidden", records) == [len(HIDING_HEADERS)]
        assert self.matching("hidden", records) == list(range(len(HIDING_HEADERS)))
        header = f"{HIDING_HEADERS[0]} = 'x' and hidden"
        assert self.matching(header, records) == [0]

    def test_tombstones_pass_the_clauses_on_headers_if_they_are_included(self) -> None:
        records = [
            NewRecord(key=b"k", value=None),
            NewRecord(key=None, value=None),
            NewRecord(key=b"l", value=None),
            NewRecord(key=b"k", value=b""),
        ]
        assert self.matching("tag = 'a'", records) == []
        assert self.matching("tag = 'a' include tombstones", records) == [0, 2]
        assert self.matching("tag = 'a' and key = 'k' include tombstones", records) == [0]

    def test_sections_that_are_no_records_match_nothing_and_spoil_no_others(self) -> None:
        good, section = section_of([tagged(("tag", b"a"))] * 3)
        broken = [
            (good[:-1], section),
            (good + b"\0", section),
            (good, section._replace(record_count=4)),
            (good, section._replace(record_count=-1)),
            (good, section._replace(last_offset_delta=1)),
            (b"", section),
        ]
        data, sections = joined((good, section), *broken, (good, section))
        matched = type(self).matcher(parse_where("tag = 'a'")).match(data, sections)
        counts = [one.matched for one in matched.summaries]
        assert counts == [3, *[-1] * len(broken), 3]
        assert bytes(matched.matching_records(0)) == good
        assert bytes(matched.matching_records(7)) == good

    @pytest.mark.parametrize(
        "headers",
        [
            b"\x01",  # -1 of them
            b"\x04\x00\x00",  # 2, and room for one
            b"\x02\x01\x00",  # the name is null
            b"\x02\x00\x03",  # the value has -2 bytes
            b"\x02\x00\x02",  # the value has one byte too many
            b"\x02\x00\x01\x00",  # a byte is left over
            b"\x80",  # the count is cut off
        ],
    )
    @pytest.mark.parametrize("text", ["tag = 'a'", "key = 'k'", "not hidden"])
    def test_malformed_headers_make_a_section_malformed_whatever_is_asked(
        self, headers: bytes, text: str
    ) -> None:
        body = b"\x00\x00\x00\x02k\x02v" + headers
        data = bytes([2 * len(body)]) + body
        matcher = type(self).matcher(parse_where(text))
        matched = matcher.match(data, [Section(0, len(data), 1, 0, 0)])
        assert matched.summaries == [MatchSummary(-1, -1, 0)]

    def test_no_sections_and_empty_sections(self) -> None:
        matcher = type(self).matcher(NOT_HIDDEN)
        assert list(matcher.match(b"", []).summaries) == []
        matched = matcher.match(b"", [Section(0, 0, 0, 5, 3)])
        assert list(matched.summaries) == [MatchSummary(0, -1, 0)]
        assert bytes(matched.matching_records(0)) == b""

    # One contract, two matchers: that is what "differing executors" means here.
    @settings(suppress_health_check=[HealthCheck.differing_executors])
    @given(where=conditions, batches=st.lists(tagged_records, max_size=3))
    def test_it_matches_what_the_language_means(
        self, where: Where, batches: list[list[NewRecord]]
    ) -> None:
        data, sections = joined(*[section_of(records) for records in batches])
        matched = type(self).matcher(where).match(data, sections)
        assert list(matched.summaries) == [summary_of(where, records) for records in batches]
        for index, records in enumerate(batches):
            found = records_in(
                matched.matching_records(index),
                sections[index],
                count=matched.summaries[index].matched,
            )
            shown = [(n, one) for n, one in enumerate(records) if is_shown(where, one)]
            assert [
                (int(one.offset), one.key, one.value, one.timestamp, one.headers) for one in found
            ] == [(n, one.key, one.value, one.timestamp_ms, one.headers) for n, one in shown]
