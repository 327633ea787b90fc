"""Which columns a frame must have."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from respool.spark.sink.sink_columns import SinkColumns, WrongFrame

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "ints": ArrayType(IntegerType()),
    "strings": ArrayType(StringType()),
    "map": MapType(StringType(), BinaryType()),
    "headers": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


def find(schema: str, *, has_topic: bool = True, include_headers: bool = True) -> SinkColumns:
    named = [one.split() for one in schema.split(",")]
    fields = [StructField(name, TYPES[kind]) for name, kind in named]
    return SinkColumns.of(StructType(fields), has_topic=has_topic, include_headers=include_headers)


def test_a_value_is_enough_where_the_topic_is_an_option() -> None:
    found = find("value string, other int")
    assert found == SinkColumns(value="value", key=None, topic=None, partition=None, headers=None)


def test_the_option_wins_over_the_column() -> None:
    assert find("value binary, topic string").topic is None
    assert find("value binary, topic string", has_topic=False).topic == "topic"


def test_names_are_found_in_any_case_as_spark_does() -> None:
    found = find("Value binary, KEY string, Partition int, headers headers")
    assert (found.value, found.key, found.partition) == ("Value", "KEY", "Partition")
    assert found.headers == "headers"


def test_headers_may_be_left_out() -> None:
    assert find("value binary, headers headers", include_headers=False).headers is None


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("key string", "no column 'value'"),
        ("value int", "'value' is int; it must be binary or string"),
        ("value string, key ints", "'key' is array<int>"),
        ("value string, partition bigint", "'partition' is bigint; it must be integer"),
        ("value string, headers map", "it must be array"),
        ("value string, headers strings", "it must be array<struct<key:string"),
        ("value string, VALUE binary", "2 columns named 'value'"),
    ],
)
def test_what_is_missing_or_of_another_type_is_told(schema: str, told: str) -> None:
    with pytest.raises(WrongFrame, match=told):
        find(schema)


def test_without_a_topic_anywhere_it_is_told_how_to_say_one() -> None:
    with pytest.raises(WrongFrame, match="set the option 'topic'"):
        find("value string", has_topic=False)
    with pytest.raises(WrongFrame, match="'topic' is int"):
        find("value string, topic int", has_topic=False)
