"""Filters narrow what is read, never what is right: with what is given back, the same rows are left."""

import pickle
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from respool.spark.source.filters import Narrowing, narrow
from respool.spark.source.reading import where_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = dict[str, Any]


def time_at(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


rows = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from(["a", "b"]),
            "partition": st.integers(0, 3),
            "offset": st.integers(0, 30),
            "timestamp": st.integers(-1, 10).map(lambda ms: time_at(1000 * ms)),
            "key": st.none() | st.sampled_from([b"", b"x", b"y"]),
            "value": st.none() | st.sampled_from([b"1", b"2"]),
        }
    ),
    max_size=20,
)
values = {
    "topic": st.sampled_from(["a", "b", "c"]),
    "partition": st.integers(-1, 4),
    "offset": st.integers(-1, 31),
    "timestamp": st.integers(-3000, 11_000).map(time_at),
    "key": st.sampled_from([b"", b"x", b"y"]),
    "value": st.sampled_from([b"1", b"2"]),
}
COMPARING = [EqualTo, EqualNullSafe, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual]


@st.composite
def some_filter(draw: st.DrawFn) -> Filter:
    column = draw(st.sampled_from(sorted(values)))
    value = draw(values[column])
    made: Filter = draw(
        st.sampled_from(
            [
                *(kind((column,), value) for kind in COMPARING),
                In((column,), tuple(draw(st.lists(values[column], max_size=3)))),
                In((column,), (value, None)),
                EqualNullSafe((column,), None),
                IsNull((column,)),
                IsNotNull((column,)),
            ]
        )
    )
    return Not(made) if draw(st.booleans()) else made


def holds(one: Filter, row: Row) -> bool | None:  # noqa: PLR0911
    """As SQL has it; None: nobody knows."""
    if isinstance(one, Not):
        inner = holds(one.child, row)
        return None if inner is None else not inner
    value = row[one.attribute[0]]  # type: ignore[attr-defined]
    match one:
        case IsNull():
            return value is None
        case IsNotNull():
            return value is not None
        case EqualNullSafe():
            return bool(value == one.value)
        case In():
            if value is None:
                return None if one.value else False
            return True if value in one.value else None if None in one.value else False
    if value is None:
        return None
    asked = one.value  # type: ignore[attr-defined]
    return bool(
        {
            EqualTo: value == asked,
            LessThan: value < asked,
            LessThanOrEqual: value <= asked,
            GreaterThan: value > asked,
            GreaterThanOrEqual: value >= asked,
        }[type(one)]
    )


def read_with(narrowing: Narrowing, rows: Sequence[Row]) -> list[Row]:
    """What is left of these rows when they are read so."""
    left = []
    for row in rows:
        begin, end = narrowing.range_of(0, 100)
        ms = (row["timestamp"] - EPOCH) // timedelta(milliseconds=1)
        if (
            narrowing.wants(row["topic"], row["partition"])
            and begin <= row["offset"] < end
            and (narrowing.since_ms is None or ms >= narrowing.since_ms)
            and (narrowing.until_ms is None or ms < narrowing.until_ms)
        ):
            left.append(row)
    where = where_of(narrowing.rows)
    if where is None or not left:
        return left
    columns = {
        "offset": pa.array([row["offset"] for row in left], pa.int64()),
        "key": pa.array([row["key"] for row in left], pa.binary()),
        "value": pa.array([row["value"] for row in left], pa.binary()),
        "at": pa.array(range(len(left))),
    }
    return [left[at] for at in pa.table(columns).filter(where)["at"].to_pylist()]


@given(rows, st.lists(some_filter(), max_size=4))
def test_what_is_read_and_then_filtered_by_spark_is_what_was_asked_for(
    rows: list[Row], filters: list[Filter]
) -> None:
    narrowing, left = narrow(filters)
    wanted = [row for row in rows if all(holds(one, row) for one in filters)]
    got = read_with(pickle.loads(pickle.dumps(narrowing)), rows)
    assert [row for row in got if all(holds(one, row) for one in left)] == wanted


def test_filters_that_are_decided_here_do_not_come_back() -> None:
    filters = [
        EqualTo(("partition",), 1),
        GreaterThanOrEqual(("offset",), 5),
        LessThan(("offset",), 9),
        GreaterThan(("timestamp",), time_at(2_000)),
        EqualTo(("key",), b"x"),
        IsNotNull(("key",)),
        IsNotNull(("timestamp",)),
        In(("topic",), ("a", "b")),
    ]
    narrowing, left = narrow(filters)
    assert left == []
    assert (narrowing.offset_min, narrowing.offset_end, narrowing.since_ms) == (5, 9, 3)
    assert not narrowing.wants("a", 0)
    assert narrowing.wants("b", 1)


def test_what_is_not_understood_goes_back_to_spark() -> None:
    filters = [
        StringContains(("topic",), "r"),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("timestampType",), 0),
        EqualTo(("partition",), True),
        GreaterThan(("key",), b"x"),
        LessThan(("timestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001
    ]
    narrowing, left = narrow(filters)
    assert left == filters
    assert narrowing == Narrowing()
