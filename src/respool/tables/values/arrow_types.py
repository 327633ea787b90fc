"""Declared columns as Arrow's types, and which Arrow types are equal as columns of a table."""

from collections.abc import Sequence

import pyarrow as pa

from respool.model.tables.column_types import (
    ArrayOf,
    Column,
    ColumnType,
    Decimal,
    Primitive,
    StructOf,
)

TIME = pa.timestamp("us", "UTC")
_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIME,
}
_WIDER = {
    (pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
    (pa.int32(), pa.float64()),
}


def fields_of(columns: Sequence[Column]) -> list[pa.Field]:
    return [pa.field(one.name, type_of(one.type)) for one in columns]


def type_of(kind: ColumnType) -> pa.DataType:
    match kind:
        case Primitive(name):
            return _PRIMITIVES[name]
        case Decimal(precision, scale):
            return pa.decimal128(precision, scale)
        case ArrayOf(element):
            return list_of(type_of(element))
        case StructOf(fields):
            return pa.struct(fields_of(fields))


def list_of(element: pa.DataType) -> pa.DataType:
    # The name of this field in Parquet, Iceberg and Delta.
    return pa.list_(pa.field("element", element))


def is_same_or_wider(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """True if a column of type `wanted` takes every value of `kind`."""
    return bool(kind == wanted) or (kind, wanted) in _WIDER


def has_type(kinds: Sequence[pa.Field], unwanted: pa.DataType) -> bool:
    """True if a field, or a part of it, has this type."""
    return any(_has(one.type, unwanted) for one in kinds)


def _has(kind: pa.DataType, unwanted: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has(kind.field(at).type, unwanted) for at in range(kind.num_fields))
    if pa.types.is_list(kind):
        return _has(kind.value_type, unwanted)
    return bool(kind == unwanted)
