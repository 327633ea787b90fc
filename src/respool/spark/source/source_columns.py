"""The columns that Spark's Kafka connector taught people, and which of the client's they are.

A schema that the user gives (`spark.read.schema("value binary, offset long")`) says which columns are read: others
are not decoded, and not carried to Spark.
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

from respool.spark.options import BadOption

# Name, type, and what the client calls it.
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
    """What the client is to read for this schema, in its order.

    Raises:
        BadOption: it has columns that there are not, or of other types.
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
