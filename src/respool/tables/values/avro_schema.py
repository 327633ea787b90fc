"""Avro: a schema's columns, and its values decoded with fastavro."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from respool.tables.errors import DependencyMissing, SchemaInvalid
from respool.tables.values.arrow_types import TIME, list_of
from respool.tables.values.message_schema import ValueMalformed
from respool.tables.values.value_decoder import DEPTH_MAX

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": TIME,
    "timestamp-micros": TIME,
    "uuid": pa.string(),
}


class AvroSchema:
    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        """
        Raises:
            SchemaInvalid, DependencyMissing
        """
        try:
            import fastavro
        except ModuleNotFoundError as error:
            raise missing(error) from error
        self._read = fastavro.schemaless_reader
        named: dict[str, Any] = {}
        try:
            for one in references.values():
                fastavro.parse_schema(json.loads(one), named_schemas=named)
            self._schema = fastavro.parse_schema(json.loads(text), named_schemas=named)
        except Exception as error:
            # fastavro raises errors of any class.
            raise SchemaInvalid(f"the Avro schema is invalid: {error!r}") from error
        if not isinstance(self._schema, dict) or self._schema.get("type") != "record":
            raise SchemaInvalid("an Avro schema must be a record to have columns")
        self._named = named
        self.fields: Sequence[pa.Field] = [
            pa.field(one["name"], kind)
            for one in self._schema["fields"]
            if (kind := self._type(one["type"], 1)) is not None
        ]

    def _type(self, schema: Any, depth: int) -> pa.DataType | None:  # noqa: PLR0911 - a return for each kind
        """None: no column can have this type, as of maps, and unions of several types; values go to the rest."""
        if depth > DEPTH_MAX:
            return None
        if isinstance(schema, list):
            others = [one for one in schema if one != "null"]
            return self._type(others[0], depth) if len(others) == 1 else None
        if isinstance(schema, str):
            found = self._named.get(schema)
            return _PRIMITIVES.get(schema) if found is None else self._type(found, depth + 1)
        if logical := schema.get("logicalType"):
            if logical == "decimal":
                return pa.decimal128(int(schema["precision"]), int(schema.get("scale", 0)))
            if logical in _LOGICAL:
                return _LOGICAL[logical]
        match schema["type"]:
            case "record":
                return self._struct(schema, depth)
            case "array":
                element = self._type(schema["items"], depth + 1)
                return None if element is None else list_of(element)
            case str(kind):
                return _PRIMITIVES.get(kind)
        return self._type(schema["type"], depth + 1)

    def _struct(self, schema: Any, depth: int) -> pa.DataType | None:
        kinds = [(one["name"], self._type(one["type"], depth + 1)) for one in schema["fields"]]
        fields = [pa.field(name, kind) for name, kind in kinds if kind is not None]
        return pa.struct(fields) if fields else None

    def decode(self, value: bytes) -> Mapping[str, Any]:
        source = io.BytesIO(value)
        try:
            found = self._read(source, self._schema, None)
        except Exception as error:
            # Malformed bytes raise errors of many classes.
            raise ValueMalformed(f"not Avro of this schema: {error!r}") from error
        if source.tell() != len(value):
            raise ValueMalformed(
                f"not Avro of this schema: {len(value) - source.tell()} bytes are left over"
            )
        plain = _plain(found)
        assert isinstance(plain, dict)
        return plain


def _plain(value: Any) -> Any:
    """fastavro's values as those of a column: uuids are text."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return str(value) if type(value).__name__ == "UUID" else value


def missing(error: ModuleNotFoundError) -> DependencyMissing:
    from respool.model.extras import how_to_install

    return DependencyMissing(
        f"values of this kind need {error.name}, which is not installed",
        hint=how_to_install("schemas"),
    )
