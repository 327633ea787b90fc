"""Which columns are written as what, and what is said about those that cannot be."""

from typing import Any

import pyarrow as pa
import pytest

from respool.client.arrow.errors import WrongColumn
from respool.client.arrow.writing.table_columns import Columns, batches_of
from respool.client.kafka.errors import BadArgument


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def columns_of(one: pa.RecordBatch, **named: Any) -> Columns:
    return Columns.of(one.schema, **named)


def test_columns_of_the_usual_names_are_taken() -> None:
    one = batch(
        key=["a"], value=["b"], timestamp=[1], headers=pa.array([[]], pa.map_("string", "binary"))
    )
    found = columns_of(one)
    assert (found.key, found.value, found.timestamp, found.headers) == (
        "key",
        "value",
        "timestamp",
        "headers",
    )
    # What `read_table` says of where a row was is no wish for where it goes.
    assert found.partition is None


def test_named_columns_come_under_the_names_of_records() -> None:
    one = batch(id=["a"], payload=["b"], shard=[3], other=[0.5])
    records, chosen = columns_of(one, key="id", value="payload", partition="shard").records_of(one)
    assert records.to_pydict() == {"key": ["a"], "value": ["b"]}
    assert chosen is not None
    assert chosen.to_pylist() == [3]


def test_false_leaves_a_usual_column_out() -> None:
    one = batch(key=["a"], value=["b"])
    records, _ = columns_of(one, key=False).records_of(one)
    assert records.schema.names == ["value"]


def test_without_a_value_column_one_must_be_named() -> None:
    one = batch(id=[1], payload=["b"])
    with pytest.raises(WrongColumn, match=r"no column is named 'value'.*value='payload'"):
        columns_of(one)


def test_rows_of_nothing_but_keys_can_be_written() -> None:
    one = batch(key=["a", "b"])
    records, _ = columns_of(one, value=False).records_of(one)
    assert records.schema.names == ["key"]
    empty = batch(x=[1, 2, 3])
    records, _ = columns_of(empty, value=False).records_of(empty)
    assert records.num_rows == 3


def test_a_missing_column_is_named_with_those_there_are() -> None:
    with pytest.raises(
        WrongColumn, match="no column 'ride' for the key; there are id, value"
    ) as told:
        columns_of(batch(id=[1], value=["b"]), key="ride")
    assert told.value.column == "ride"


def test_a_column_that_is_there_twice_is_refused() -> None:
    one = pa.RecordBatch.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["value", "value"])
    with pytest.raises(WrongColumn, match="2 columns named 'value'"):
        columns_of(one)


@pytest.mark.parametrize(
    ("part", "column", "accepted"),
    [
        ("key", pa.array([1]), "a key is binary or string"),
        ("value", pa.array([{"a": 1}]), "a value is binary or string"),
        (
            "timestamp",
            pa.array(["now"]),
            "a timestamp is a timestamp, a date, or whole milliseconds",
        ),
        ("headers", pa.array(["a"]), "a headers is a list of structs"),
        (
            "headers",
            pa.array([[{"name": "a", "value": "b"}]]),
            "a list of structs with a string `key`",
        ),
        ("partition", pa.array(["a"]), "a partition is whole numbers"),
    ],
)
def test_a_column_of_a_wrong_type_is_named_with_its_type_and_what_is_taken(
    part: str, column: pa.Array, accepted: str
) -> None:
    one = batch(value=["b"], odd=column)
    with pytest.raises(WrongColumn, match="column 'odd' is ") as told:
        columns_of(one, **{part: "odd"})
    assert str(column.type) in str(told.value)
    assert accepted in str(told.value)


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.string(),
        pa.large_binary(),
        pa.large_string(),
        pa.binary_view(),
        pa.string_view(),
        pa.binary(3),
        pa.dictionary(pa.int32(), pa.string()),
        pa.null(),
    ],
    ids=str,
)
def test_all_kinds_of_bytes_are_taken(kind: pa.DataType) -> None:
    schema = pa.schema([("key", kind), ("value", kind)])
    assert Columns.of(schema).key == "key"


def test_tables_batches_readers_and_what_becomes_a_stream_are_taken() -> None:
    one = batch(value=["a", "b"])
    table = pa.table(one)
    reader = pa.RecordBatchReader.from_batches(one.schema, [one])
    for data, rows in ((one, 2), (table, 2), (reader, None)):
        schema, batches, known = batches_of(data)
        assert schema.names == ["value"]
        assert sum(part.num_rows for part in batches) == 2
        assert known == rows


def test_anything_else_is_refused() -> None:
    with pytest.raises(BadArgument, match="list is no Arrow table"):
        batches_of([1, 2])


def test_a_number_where_a_columns_name_belongs_is_refused() -> None:
    """`partition=0` looks as if it sent all rows there."""
    with pytest.raises(BadArgument, match="partition = 0: the name of a column"):
        columns_of(batch(value=["a"]), partition=0)
