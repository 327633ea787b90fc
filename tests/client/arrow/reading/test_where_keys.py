"""Which keys an expression of pyarrow.compute requires."""

import functools
import operator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.client.arrow.reading.where_keys import key_clauses_of
from respool.model.conditions.clauses import KeyIn
from respool.model.where import VALUES_MAX

key = pc.field("key")


@pytest.mark.parametrize(
    ("where", "required"),
    [
        (key == b"a", [(b"a",)]),
        (pc.scalar(b"a") == key, [(b"a",)]),
        (key == b"", [(b"",)]),
        (key.isin([b"b", b"a", b"b"]), [(b"a", b"b")]),
        ((pc.field("offset") > 3) & (key == b"\x00\xff"), [(b"\x00\xff",)]),
        ((key == b"a") & (pc.field("partition") == 0) & key.isin([b"a"]), [(b"a",), (b"a",)]),
        (key == pa.scalar(b"a", pa.large_binary()), [(b"a",)]),
    ],
)
def test_keys_are_found(where: pc.Expression, required: list[tuple[bytes, ...]]) -> None:
    assert key_clauses_of(where) == [KeyIn(one) for one in required]


@pytest.mark.parametrize(
    "where",
    [
        None,
        pc.scalar(True),
        key,
        key.is_null(),
        key != b"a",
        ~(key == b"a"),
        (key == b"a") | (key == b"b"),
        (key == b"a") | (pc.field("offset") > 3),
        key.isin([]),
        # It matches rows without a key.
        key.isin([b"a", None]),
        key.isin([b"%d" % number for number in range(VALUES_MAX + 1)]),
        key == "a",
        key == pa.scalar(None, pa.binary()),
        pc.field("value") == b"a",
        pc.field("headers", "key") == b"a",
        (key == b"a").is_null(),
        pc.if_else(key == b"a", pc.scalar(True), pc.scalar(False)),
        key.cast(pa.string()) == "a",
        key == pc.field("value"),
    ],
)
def test_what_requires_no_key_has_none(where: pc.Expression | None) -> None:
    assert key_clauses_of(where) == []


KEYS = st.sampled_from([b"a", b"b", b"", None])
LEAVES: st.SearchStrategy[pc.Expression] = st.one_of(
    st.sampled_from([b"a", b"b", b""]).map(lambda value: key == value),
    st.sampled_from([b"a", b"b"]).map(lambda value: key != value),
    st.lists(KEYS, max_size=3).map(lambda values: key.isin(pa.array(values, pa.binary()))),
    st.integers(0, 4).map(lambda number: pc.field("offset") > number),
    st.just(key.is_null()),
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: two[0] & two[1]),
        st.tuples(inner, inner).map(lambda two: two[0] | two[1]),
        inner.map(lambda one: ~one),
    ),
    max_leaves=6,
)
ROWS = pa.table(
    {
        "key": pa.array([b"a", b"b", b"", b"c", None] * 6, pa.binary()),
        "offset": pa.array([number // 5 for number in range(30)], pa.int64()),
    }
)


@given(where=EXPRESSIONS)
def test_every_row_for_which_the_expression_is_true_has_a_required_key(where: Any) -> None:
    clauses = key_clauses_of(where)
    for found in ROWS.filter(where).column("key").to_pylist():
        assert all(found in one.values for one in clauses)


def test_an_expression_may_have_thousands_of_levels() -> None:
    deep = functools.reduce(operator.and_, [key == b"a"] * 3000)
    assert key_clauses_of(deep) == [KeyIn((b"a",))] * 3000
