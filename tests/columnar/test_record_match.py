import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from records.match_contract import MatcherContract, conditions, tagged, tagged_records
from records.record_examples import FUZZ_EXAMPLES
from records.scan_contract import section_of
from respool.columnar.record_match import CompiledMatcher
from respool.model.where import CLAUSES_MAX, VALUES_MAX, Where, parse_where, where_of_tags
from respool.ports.record_scan import Section
from respool.records.build import NewRecord
from respool.records.plain_match import PlainMatcher


class TestCompiledMatcher(MatcherContract):
    matcher = CompiledMatcher


def both_say_the_same(where: Where, data: bytes, sections: list[Section]) -> None:
    told = []
    for matcher in (PlainMatcher(where), CompiledMatcher(where)):
        matched = matcher.match(data, sections)
        told.append(
            [
                (summary, bytes(matched.matching_records(index)) if summary.matched > 0 else b"")
                for index, summary in enumerate(matched.summaries)
            ]
        )
    assert told[0] == told[1]


@given(
    where=conditions,
    records=tagged_records,
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3),
    count=st.integers(-1, 1),
    cut=st.integers(0, 2),
)
@settings(max_examples=FUZZ_EXAMPLES)
def test_of_damaged_records_it_says_what_plain_python_says(
    where: Where,
    records: list[NewRecord],
    flips: list[tuple[int, int]],
    count: int,
    cut: int,
) -> None:
    body, section = section_of(records, base_offset=7)
    data = bytearray(b"xx" + body + b"yy" + body)
    for position, value in flips:
        data[position % len(data)] = value
    damaged = section._replace(
        begin=2,
        end=2 + len(body) - min(cut, len(body)),
        record_count=section.record_count + count,
    )
    second = section._replace(begin=4 + len(body), end=len(data))
    both_say_the_same(where, bytes(data), [damaged, second])


@given(
    where=conditions,
    data=st.binary(max_size=60),
    count=st.integers(-3, 9),
    last=st.integers(-3, 2**31 - 1),
)
@settings(max_examples=FUZZ_EXAMPLES)
def test_of_any_bytes_it_says_what_plain_python_says(
    where: Where, data: bytes, count: int, last: int
) -> None:
    both_say_the_same(where, data, [Section(0, len(data), count, 0, last)])


@pytest.mark.parametrize("announced", [2**31 - 1, 2**62])
def test_a_huge_announced_count_takes_no_memory(announced: int) -> None:
    data, section = section_of([tagged(("tag", b"a"))])
    both_say_the_same(
        parse_where("tag = 'a'"), data, [section._replace(record_count=announced), section]
    )


def test_as_many_clauses_and_values_as_a_condition_may_have() -> None:
    each = VALUES_MAX // CLAUSES_MAX
    where = where_of_tags(
        {f"name-{n}": [b"%d" % value for value in range(each)] for n in range(CLAUSES_MAX)}
    )
    last = b"%d" % (each - 1)
    fits = tagged(*[(f"name-{n}", last) for n in range(CLAUSES_MAX)])
    lacks_one = tagged(*fits.headers[:-1])
    data, section = section_of([lacks_one, fits, lacks_one, fits])
    both_say_the_same(where, data, [section])
    assert CompiledMatcher(where).match(data, [section]).summaries[0].matched == 2


def test_a_result_outlives_the_bytes_it_was_made_of() -> None:
    """The rebuilt batch is made after the next buffer is read into the same memory."""
    data, section = section_of([tagged(("tag", b"a"))])
    matcher = CompiledMatcher(parse_where("tag = 'a'"))
    first = matcher.match(data, [section]).matching_records(0)
    matcher.match(b"", [])
    assert bytes(first) == data


def test_a_large_section_leaves_no_memory_taken() -> None:
    """A broker keeps matchers of each condition. A small compressed batch may hold 128 MiB of records."""
    data, section = section_of([tagged(("tag", b"a"))] * 200_000)
    matcher = CompiledMatcher(parse_where("tag = 'a'"))
    small, one = section_of([tagged(("tag", b"a"))])
    matcher.match(small, [one])
    tracemalloc.start()
    try:
        matcher.match(data, [section])
        assert tracemalloc.get_traced_memory()[0] < 1024 * 1024
    finally:
        tracemalloc.stop()
