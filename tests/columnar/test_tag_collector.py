import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from records.match_contract import NAMES, tagged, tagged_records
from records.record_examples import FUZZ_EXAMPLES
from records.scan_contract import SECRET, joined, section_of
from respool.columnar.tag_collector import CompiledTagCollector
from respool.ports.record_scan import NULL_TAG, TAG_VALUES_MAX, Section
from respool.records.build import NewRecord
from respool.records.plain_tags import PlainTagCollector
from respool.records.siphash import siphash

MakeCollector = type[PlainTagCollector] | type[CompiledTagCollector]
COLLECTORS: list[MakeCollector] = [PlainTagCollector, CompiledTagCollector]
ALL_NAMES = [None, *(name.encode() for name in NAMES)]


def both_find_the_same(data: bytes, sections: list[Section]) -> None:
    told = [
        [
            None if one is None else [None if hashes is None else sorted(hashes) for hashes in one]
            for one in collector(ALL_NAMES, secret=SECRET).collect(data, sections)
        ]
        for collector in COLLECTORS
    ]
    assert told[0] == told[1]


@pytest.mark.parametrize("collector", COLLECTORS)
def test_each_value_of_each_name_is_found_once(collector: MakeCollector) -> None:
    records = [
        tagged(("tag", b"a"), ("tag", b"b"), key=b"k"),
        tagged(("tag", b"a"), ("tags", b"c")),
        tagged(("tag", None), key=b""),
    ]
    data, section = section_of(records)
    (found,) = collector([None, b"tag", b"x"], secret=SECRET).collect(data, [section])
    assert found is not None
    keys, tags, none = found
    assert keys is not None
    assert tags is not None
    assert sorted(keys) == sorted([siphash(b"k", SECRET), siphash(b"", SECRET)])
    assert sorted(tags) == sorted([siphash(b"a", SECRET), siphash(b"b", SECRET), NULL_TAG])
    assert none == []


@pytest.mark.parametrize("collector", COLLECTORS)
@pytest.mark.parametrize("more", [0, 1])
def test_of_very_many_values_nothing_is_told(collector: MakeCollector, more: int) -> None:
    records = [tagged(("tag", b"%d" % number)) for number in range(TAG_VALUES_MAX + more)]
    full, section = section_of(records)
    small, small_section = section_of([tagged(("tag", b"0"))])
    data, sections = joined((full, section), (small, small_section))
    both = collector([b"tag"], secret=SECRET).collect(data, sections)
    assert None not in both
    first, second = (one[0] for one in both if one is not None)
    assert (first is None) == bool(more)
    assert first is None or len(set(first)) == TAG_VALUES_MAX
    # What the last section had is forgotten.
    assert second == [siphash(b"0", SECRET)]


@given(batches=st.lists(tagged_records, max_size=3))
def test_plain_and_compiled_find_the_same(batches: list[list[NewRecord]]) -> None:
    both_find_the_same(*joined(*[section_of(records) for records in batches]))


@given(
    records=tagged_records,
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=3),
    count=st.integers(-1, 1),
)
@settings(max_examples=FUZZ_EXAMPLES)
def test_of_damaged_records_both_find_the_same(
    records: list[NewRecord], flips: list[tuple[int, int]], count: int
) -> None:
    body, section = section_of(records)
    data = bytearray(b"xx" + body + b"yy")
    for position, value in flips:
        data[position % len(data)] = value
    damaged = section._replace(
        begin=2, end=2 + len(body), record_count=section.record_count + count
    )
    both_find_the_same(bytes(data), [damaged, Section(0, len(data), 2, 0, 9)])
