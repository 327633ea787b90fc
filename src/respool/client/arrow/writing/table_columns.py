"""Maps a table's columns to the fields of records, and checks their types before anything is sent.

| part      | column, unless another is named | accepted types                                                     |
|-----------|---------------------------------|--------------------------------------------------------------------|
| value     | `value`                         | binary or string (also large, view, fixed size, dictionary)         |
| key       | `key`                           | the same                                                            |
| timestamp | `timestamp`                     | timestamp of any unit (without a zone: UTC), date, or milliseconds   |
| headers   | `headers`                       | list of structs with `key` and `value`, or a map                    |
| partition | none                            | whole numbers                                                       |

Null means: no key; no value (a tombstone, if the topic is compacted); the current time; no headers; a partition chosen
by the partitioner. Other columns are not written.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from respool.client.arrow.errors import WrongColumn
from respool.client.kafka.errors import BadArgument
from respool.columnar.arrow_columns import HEADERS, KEY, TIMESTAMP, VALUE

# A column's name; None: the usual name, if that column exists; False: no column.
Named: TypeAlias = str | Literal[False] | None

PARTITION = "partition"
_BYTES_TEXT = "binary or string"
_TIME_TEXT = "a timestamp, a date, or whole milliseconds since 1970"
_HEADERS_TEXT = "a list of structs with a string `key` and a binary or string `value`, or a map from string to those"


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The column of a table for each part of a record."""

    value: str | None
    key: str | None
    timestamp: str | None
    headers: str | None
    partition: str | None

    @classmethod
    def of(
        cls,
        schema: pa.Schema,
        *,
        value: Named = None,
        key: Named = None,
        timestamp: Named = None,
        headers: Named = None,
        partition: str | None = None,
    ) -> "Columns":
        """Find the columns and check their types.

        Raises:
            WrongColumn: a column is missing, or cannot be written.
        """
        found = cls(
            value=_find(schema, VALUE, value),
            key=_find(schema, KEY, key),
            timestamp=_find(schema, TIMESTAMP, timestamp),
            headers=_find(schema, HEADERS, headers),
            partition=None if partition is None else _find(schema, PARTITION, partition),
        )
        if found.value is None and value is not False:
            raise WrongColumn(
                VALUE,
                f"no column is named {VALUE!r}: say which one is written, as value='{_example(schema)}', "
                "or value=False for messages without one",
            )
        _check(schema, found.value, "value", _is_bytes, _BYTES_TEXT)
        _check(schema, found.key, "key", _is_bytes, _BYTES_TEXT)
        _check(schema, found.timestamp, "timestamp", _is_time, _TIME_TEXT)
        _check(schema, found.headers, "headers", _is_headers, _HEADERS_TEXT)
        _check(schema, found.partition, "partition", pa.types.is_integer, "whole numbers")
        return found

    def records_of(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array | None]:
        """The record columns, under their usual names; and the requested partitions."""
        columns: dict[str, pa.Array] = {}
        if self.key is not None:
            columns[KEY] = batch.column(self.key)
        if self.value is not None:
            columns[VALUE] = batch.column(self.value)
        if self.timestamp is not None:
            columns[TIMESTAMP] = batch.column(self.timestamp)
        if self.headers is not None:
            columns[HEADERS] = batch.column(self.headers)
        chosen = None if self.partition is None else batch.column(self.partition)
        if not columns:
            # The batch must have rows, even if they are empty.
            columns[VALUE] = pa.nulls(batch.num_rows, pa.binary())
        return pa.RecordBatch.from_pydict(columns), chosen


def batches_of(data: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch], int | None]:
    """Accept a table, batch, reader, or any other Arrow stream; returns schema, batches, and the row count if known.

    Raises:
        BadArgument: `data` has another type.
    """
    if isinstance(data, pa.RecordBatch):
        return data.schema, iter([data]), data.num_rows
    if isinstance(data, pa.Table):
        return data.schema, iter(data.to_batches()), data.num_rows
    if isinstance(data, pa.RecordBatchReader):
        return data.schema, iter(data), None
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return reader.schema, iter(reader), None
    raise BadArgument(
        f"{type(data).__name__} is no Arrow table, record batch or reader, nor anything that becomes one "
        "(Polars and pandas frames and DuckDB results do; a LazyFrame after collect())"
    )


def _find(schema: pa.Schema, usual: str, named: Named) -> str | None:
    if named is False:
        return None
    name = usual if named is None else named
    if not isinstance(name, str):
        raise BadArgument(f"{usual} = {named!r}: the name of a column")
    count = len(schema.get_all_field_indices(name))
    if count == 1:
        return name
    if count > 1:
        raise WrongColumn(name, f"there are {count} columns named {name!r}")
    if named is None:
        return None
    raise WrongColumn(
        name, f"there is no column {name!r} for the {usual}; there are {', '.join(schema.names)}"
    )


def _check(schema: pa.Schema, name: str | None, part: str, is_right: Any, accepted: str) -> None:
    if name is None:
        return
    found = schema.field(name).type
    if not is_right(found) and not pa.types.is_null(found):
        raise WrongColumn(
            name, f"column {name!r} is {found}; a {part} is {accepted}. Cast it, or encode it first"
        )


def _example(schema: pa.Schema) -> str:
    return next((field.name for field in schema if _is_bytes(field.type)), "payload")


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_dictionary(kind):
        return _is_bytes(kind.value_type)
    return any(
        is_one(kind)
        for is_one in (
            types.is_binary,
            types.is_string,
            types.is_large_binary,
            types.is_large_string,
            types.is_binary_view,
            types.is_string_view,
            types.is_fixed_size_binary,
        )
    )


def _is_time(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_timestamp(kind) or types.is_date(kind) or types.is_integer(kind))


def _is_headers(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _is_bytes(kind.key_type) and _is_bytes(kind.item_type)
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    item = kind.value_type
    if not pa.types.is_struct(item):
        return False
    names = {item.field(at).name: item.field(at).type for at in range(item.num_fields)}
    return names.keys() == {"key", "value"} and all(
        _is_bytes(one) or pa.types.is_null(one) for one in names.values()
    )
