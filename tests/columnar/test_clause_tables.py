"""Conditions in the decoder. `test_record_match.py` has the broker's side of the same tables."""

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from columnar.columns_reference import Unreadable, plain_decode, rows_of
from records.match_contract import conditions, is_shown, tagged, tagged_records
from records.record_examples import CODECS, FUZZ_EXAMPLES, LIMIT
from respool.columnar.arrow_columns import ALL_COLUMNS
from respool.columnar.clause_tables import clause_tables
from respool.columnar.decode_columns import decode
from respool.columnar.errors import BatchUnreadable, CorruptBatch
from respool.model.where import Where, parse_where, where_of_tags
from respool.records.build import NewRecord, build_batch


def as_record(row: dict[str, Any]) -> NewRecord:
    return NewRecord(key=row["key"], value=row["value"], headers=tuple(row["headers"]))


@st.composite
def tagged_data(draw: st.DrawFn) -> bytes:
    """Batches of records that conditions tell apart, some of aborted transactions."""
    data, offset = b"", draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 3))):
        records = draw(tagged_records)
        if not records:
            continue
        data += build_batch(
            records,
            codec=draw(st.sampled_from(CODECS)),
            base_offset=offset,
            producer_id=draw(st.integers(-1, 1)),
            is_transactional=draw(st.booleans()),
        )
        offset += len(records) + draw(st.integers(0, 2))
    return data


@given(
    data=tagged_data(),
    where=conditions,
    begin=st.integers(0, 10),
    end=st.none() | st.integers(0, 20),
    since_ms=st.none() | st.integers(0, 2**42),
    aborted=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 20)), max_size=2, unique=True),
    columns=st.permutations(ALL_COLUMNS).flatmap(
        lambda names: st.integers(1, len(names)).map(lambda count: tuple(names[:count]))
    ),
)
@settings(max_examples=FUZZ_EXAMPLES, deadline=None)
def test_exactly_the_matching_rows_come_out_and_the_position_passes_the_others(
    data: bytes, where: Where, **choices: Any
) -> None:
    expected = plain_decode(data, is_wanted=lambda row: is_shown(where, as_record(row)), **choices)
    decoded = decode(data, clauses=clause_tables(where), **choices)
    assert (rows_of(decoded), decoded.next_offset) == expected
    assert decoded.next_offset == decode(data, **choices).next_offset


@pytest.mark.long
@given(
    data=tagged_data(),
    where=conditions,
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=4),
)
@settings(max_examples=FUZZ_EXAMPLES, deadline=None)
def test_of_damaged_batches_it_says_what_plain_python_says(
    data: bytes, where: Where, flips: list[tuple[int, int]]
) -> None:
    broken = bytearray(data)
    for position, value in flips:
        if broken:
            broken[position % len(broken)] = value
    # Checksums would find nearly all of it, and hide what the kernels do.
    choices: dict[str, Any] = {"begin": 0, "check_crc": False}
    clauses = clause_tables(where)
    try:
        expected = plain_decode(
            bytes(broken), is_wanted=lambda row: is_shown(where, as_record(row)), **choices
        )
    except Unreadable:
        with pytest.raises(BatchUnreadable):
            decode(bytes(broken), clauses=clauses, decompressed_max=LIMIT, **choices)
        return
    decoded = decode(bytes(broken), clauses=clauses, decompressed_max=LIMIT, **choices)
    assert (rows_of(decoded), decoded.next_offset) == expected


def test_headers_decide_without_being_returned() -> None:
    data = build_batch([tagged(("tag", b"a"), key=b"1"), tagged(("tag", b"b"), key=b"2")])
    decoded = decode(
        data, begin=0, columns=("key",), clauses=clause_tables(where_of_tags({"tag": "b"}))
    )
    assert rows_of(decoded) == [{"key": b"2"}]


def test_malformed_headers_of_a_record_that_does_not_match_are_an_error() -> None:
    (record,) = [NewRecord(key=b"k", value=b"v")]
    good = build_batch([record])
    # The header count is the last byte: one header, and no bytes for it.
    broken = good[:-1] + b"\x02"
    for text in ("tag = 'a'", "key = 'other'", "not hidden"):
        with pytest.raises(CorruptBatch, match="headers"):
            decode(broken, begin=0, clauses=clause_tables(parse_where(text)), check_crc=False)


def test_few_rows_of_many_keep_little_memory() -> None:
    records = [tagged(("tag", b"rare" if n == 500 else b"often")) for n in range(10_000)]
    data, clauses = build_batch(records), clause_tables(where_of_tags({"tag": "rare"}))
    decode(data, begin=0, clauses=clauses)
    tracemalloc.start()
    try:
        decoded = decode(data, begin=0, clauses=clauses)
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert decoded.rows == 1
    # A number for each of the 10,000 records would take 80,000 bytes.
    assert held_bytes < 20_000


def test_no_condition_has_no_clauses() -> None:
    assert clause_tables(None).is_empty
    assert not clause_tables(parse_where("exists(tag)")).is_empty
