"""Batches come to Spark with exactly its types, in the columns that were asked for, in sizes it likes."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from respool.client.arrow.reading.projection import Projection
from respool.spark.option_values import BadOption
from respool.spark.source.shaping import ROWS_MAX, as_spark_wants
from respool.spark.source.source_columns import columns_of, full_schema


def schema_of(ddl: str) -> StructType:
    made = StructType()
    for one in ddl.split(","):
        name, kind = one.split()
        made = made.add(name, kind)
    return made


def clients_batch(rows: int, first: int = 0) -> pa.RecordBatch:
    """As the client gives it."""
    schema = Projection("rides", None, None).schema
    headers = [[{"key": "h", "value": b"1"}] if row % 3 == 0 else [] for row in range(rows)]
    columns = {
        "topic": pa.array(["rides"] * rows).dictionary_encode(),
        "partition": [3] * rows,
        "key": [None if row % 2 else b"k" for row in range(rows)],
        "value": [b"v%d" % row for row in range(rows)],
        "offset": list(range(first, first + rows)),
        "timestamp": pa.array(
            [1_700_000_000_000 + row for row in range(rows)], schema.field("timestamp").type
        ),
        "timestamp_type": [1] * rows,
        "headers": headers,
    }
    arrays = [
        pa.array(columns[one.name]).cast(one.type) if one.name != "topic" else columns["topic"]
        for one in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def test_the_columns_are_those_of_sparks_kafka_connector() -> None:
    assert full_schema(include_headers=True).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert full_schema(include_headers=False).fieldNames()[-1] == "timestampType"


@pytest.mark.parametrize("begin", [0, 3])
def test_every_column_keeps_its_values_and_gets_sparks_type(begin: int) -> None:
    schema = full_schema(include_headers=True)
    whole = clients_batch(8).slice(begin)
    given = whole.select(list(columns_of(schema)))
    (made,) = as_spark_wants([given], schema)
    assert made.schema == to_arrow_schema(schema, timezone="UTC")
    made.validate(full=True)
    before, after = given.to_pylist(), made.to_pylist()
    for old, new in zip(before, after, strict=True):
        assert new["timestamp"] == old["timestamp"]
        assert new["timestampType"] == old["timestamp_type"]
        assert new["headers"] == (old["headers"] or None)
        for name in ("key", "value", "topic", "partition", "offset"):
            assert new[name] == old[name]


def test_a_schema_says_which_columns_are_read_in_any_case_and_order() -> None:
    assert columns_of(schema_of("Offset long,value binary")) == ("offset", "value")
    assert columns_of(schema_of("TIMESTAMPTYPE integer")) == ("timestamp_type",)


@pytest.mark.parametrize(
    ("ddl", "named"),
    [
        ("fare long", "'fare'"),
        ("offset integer", "offset as int; it is bigint"),
        ("offset long,OFFSET long", "twice"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(ddl: str, named: str) -> None:
    with pytest.raises(BadOption, match=named):
        columns_of(schema_of(ddl))


def test_a_schema_that_forbids_nulls_where_messages_have_them_is_refused() -> None:
    with pytest.raises(BadOption, match="value as NOT NULL"):
        columns_of(StructType().add("value", "binary", nullable=False))
    assert columns_of(StructType().add("offset", "long", nullable=False)) == ("offset",)


@given(st.lists(st.integers(1, 220_000), max_size=4))
def test_batches_are_gathered_and_cut_and_no_row_is_lost(sizes: list[int]) -> None:
    schema = schema_of("offset long")
    kind = to_arrow_schema(schema, timezone="UTC")
    total = sum(sizes)
    numbers = pa.array(range(total), pa.int64())
    given, at = [], 0
    for size in sizes:
        given.append(pa.RecordBatch.from_arrays([numbers.slice(at, size)], schema=kind))
        at += size
    made = list(as_spark_wants(given, schema))
    assert [one for batch in made for one in batch.column(0).to_pylist()] == list(range(total))
    assert all(batch.num_rows <= ROWS_MAX for batch in made)
    assert all(batch.num_rows >= 10_000 for batch in made[:-1])
