"""Declared columns: text that is parsed, and printed as text that means the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.model.errors import InvalidConfig
from respool.model.tables.column_types import (
    ArrayOf,
    Column,
    ColumnType,
    Decimal,
    Primitive,
    StructOf,
    columns_text,
    parse_columns,
)

_names = st.text(
    st.characters(exclude_characters=" ,;{}()\n\t=", exclude_categories=("C", "Z")),
    min_size=1,
    max_size=9,
)
_primitives = st.sampled_from(
    ["boolean", "int", "long", "double", "string", "binary", "date", "timestamp"]
).map(Primitive)
_decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: Decimal(p, s)))


def _columns(types: st.SearchStrategy[ColumnType]) -> st.SearchStrategy[tuple[Column, ...]]:
    columns = st.lists(
        st.builds(Column, _names, types),
        min_size=1,
        max_size=4,
        unique_by=lambda one: one.name.lower(),
    )
    return columns.map(tuple)


_types: st.SearchStrategy[ColumnType] = st.recursive(
    _primitives | _decimals,
    lambda inner: st.builds(ArrayOf, inner) | st.builds(StructOf, _columns(inner)),
    max_leaves=5,
)


@given(_columns(_types))
def test_columns_are_printed_as_text_that_parses_to_them(columns: tuple[Column, ...]) -> None:
    assert parse_columns(columns_text(columns)) == columns


def test_types_have_the_names_that_users_of_sql_know() -> None:
    found = parse_columns(
        "id bigint, name varchar, at struct<lat: double, lon: double>, tags array<text>"
    )
    assert columns_text(found) == (
        "id long, name string, at struct<lat double, lon double>, tags array<string>"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the name of a column was expected"),
        ("id", "a type was expected"),
        ("id long,", "the name of a column was expected"),
        ("id long name string", "',' was expected"),
        ("id uuid", "there is no type 'uuid'"),
        ("id long, ID string", "'id' is declared twice"),
        ("at array<long", "'>' was expected"),
        ("at struct<>", "the name of a column was expected"),
        ("price decimal(39,2)", "1 to 38 digits"),
        ("`a b` long", "cannot be a column"),
        ("id long; drop", "neither a name nor a type"),
        ("x " + "array<" * 40 + "long" + ">" * 40, "nested more than 32 deep"),
        (", ".join(f"c{n} long" for n in range(2001)), "the limit is 2000"),
    ],
)
def test_other_text_is_refused_with_what_was_expected(text: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        parse_columns(text)
