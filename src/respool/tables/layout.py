"""The columns of a table: the message's position, its metadata, and its value.

```
_partition _offset _timestamp _timestamp_type _key _headers | _value | the value's fields | _rest | _date
                                                              raw      typed                typed   by day
```
A field with the name of one of our columns becomes `value_<name>`. `_rest` has the fields without a column, as JSON.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from respool.model.tables.table_settings import PartitionBy, TableLayout, TableSettings

PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE = (
    "_partition",
    "_offset",
    "_timestamp",
    "_timestamp_type",
)
KEY, HEADERS, VALUE, REST, DATE, REASON = "_key", "_headers", "_value", "_rest", "_date", "_reason"
# The column of all fields, in the layout `struct`.
STRUCT = "value"
OWN = frozenset(
    (PARTITION, OFFSET, TIMESTAMP, TIMESTAMP_TYPE, KEY, HEADERS, VALUE, REST, DATE, REASON)
)

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_COMMON = (
    pa.field(PARTITION, pa.int32()),
    pa.field(OFFSET, pa.int64()),
    pa.field(TIMESTAMP, pa.timestamp("us", "UTC")),
    # 0: the producer's time, 1: the broker's at the append.
    pa.field(TIMESTAMP_TYPE, pa.int32()),
    pa.field(KEY, pa.binary()),
    pa.field(HEADERS, pa.list_(pa.field("element", _HEADER))),
)
RAW = pa.field(VALUE, pa.binary())
REST_FIELD = pa.field(REST, pa.string())
DATE_FIELD = pa.field(DATE, pa.date32())


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a table's columns are arranged, from its topic's settings."""

    is_typed: bool
    keeps_raw: bool
    is_struct: bool
    by_day: bool
    # The columns of rejected records: the bytes and the reason.
    is_rejected: bool = False

    @classmethod
    def of(cls, settings: TableSettings) -> "Layout":
        is_raw = settings.respool_table_schema.is_raw
        return cls(
            is_typed=not is_raw,
            keeps_raw=is_raw or settings.respool_table_keep_raw,
            is_struct=settings.respool_table_layout is TableLayout.STRUCT and not is_raw,
            by_day=settings.respool_table_partition_by is PartitionBy.DAY,
        )

    @classmethod
    def of_rejected(cls) -> "Layout":
        return cls(is_typed=False, keeps_raw=True, is_struct=False, by_day=False, is_rejected=True)

    def schema(self, fields: Sequence[pa.Field]) -> pa.Schema:
        """The table's schema with these fields of the value."""
        columns = list(_COMMON)
        if self.keeps_raw:
            columns.append(RAW)
        if self.is_rejected:
            columns.append(pa.field(REASON, pa.string()))
        if self.is_typed:
            if self.is_struct:
                columns += [pa.field(STRUCT, pa.struct(list(fields)))] if fields else []
            else:
                columns += [one.with_name(column_of(one.name)) for one in fields]
            columns.append(REST_FIELD)
        if self.by_day:
            columns.append(DATE_FIELD)
        return pa.schema(columns)

    def new_columns(self, known: Sequence[pa.Field], new: Sequence[pa.Field]) -> list[pa.Field]:
        """The columns to add to a table with the fields `known`, or to replace, for these new fields of the value."""
        if not self.is_struct:
            return [one.with_name(column_of(one.name)) for one in new]
        names = {one.name for one in new}
        return [
            pa.field(STRUCT, pa.struct([*(one for one in known if one.name not in names), *new]))
        ]

    def value_fields(self, schema: pa.Schema) -> list[pa.Field]:
        """The fields of the value, under their own names, in a table's schema."""
        if not self.is_typed:
            return []
        if self.is_struct:
            found = schema.field(STRUCT) if STRUCT in schema.names else None
            return (
                []
                if found is None
                else [found.type.field(at) for at in range(found.type.num_fields)]
            )
        return [one.with_name(field_of(one.name)) for one in schema if one.name not in OWN]


def column_of(field: str) -> str:
    """The column of a field. Readers ignore case, so `_KEY` would be `_key`."""
    return f"value_{field}" if field.lower() in OWN else field


def field_of(column: str) -> str:
    name = column.removeprefix("value_")
    return name if name != column and name.lower() in OWN else column
