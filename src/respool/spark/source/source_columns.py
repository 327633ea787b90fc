"""The columns of Spark's Kafka connector, and the corresponding columns of the client.

A schema given by the user (`spark.read.schema("value binary, offset long")`) selects the columns to read: others are
neither decoded nor sent to Spark.
"""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from respool.spark.option_values import BadOption

# Name, type, and the client's name.
_COLUMNS: tuple[tuple[str, DataType, str], ...] = (
    ("key", BinaryType(), "key"),
    ("value", BinaryType(), "value"),
    ("topic", StringType(), "topic"),
    ("partition", IntegerType(), "partition"),
    ("offset", LongType(), "offset"),
    ("timestamp", TimestampType(), "timestamp"),
    ("timestampType", IntegerType(), "timestamp_type"),
)
_HEADERS = (
    "headers",
    ArrayType(StructType().add("key", StringType()).add("value", BinaryType())),
    "headers",
)
_NULLABLE = ("key", "value", "headers")


def full_schema(*, include_headers: bool) -> StructType:
    schema = StructType()
    for name, kind, _ in (*_COLUMNS, _HEADERS) if include_headers else _COLUMNS:
        schema = schema.add(name, kind)
    return schema


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The client's columns for this schema, in its order.

    Raises:
        BadOption: the schema has unknown columns, or wrong types.
    """
    known = {name.lower(): (kind, ours) for name, kind, ours in (*_COLUMNS, _HEADERS)}
    chosen: list[str] = []
    for one in schema.fields:
        if one.name.lower() not in known:
            names = ", ".join(name for name, _, _ in (*_COLUMNS, _HEADERS))
            raise BadOption(f"the schema has a column {one.name!r}; there are {names}")
        kind, ours = known[one.name.lower()]
        if one.dataType.simpleString() != kind.simpleString():
            raise BadOption(
                f"the schema has {one.name} as {one.dataType.simpleString()}; it is {kind.simpleString()}: "
                "cast it afterwards"
            )
        if not one.nullable and ours in _NULLABLE:
            raise BadOption(f"the schema has {one.name} as NOT NULL, and messages may have none")
        if ours in chosen:
            raise BadOption(f"the schema has the column {one.name!r} twice")
        chosen.append(ours)
    if not chosen:
        raise BadOption("the schema has no columns")
    return tuple(chosen)
