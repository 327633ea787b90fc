"""JSON Schema: the columns of an object's properties. Values are JSON, and not validated against the schema."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from respool.tables.errors import SchemaInvalid
from respool.tables.values.arrow_types import TIME, list_of
from respool.tables.values.message_schema import ValueMalformed
from respool.tables.values.value_decoder import DEPTH_MAX

_TYPES = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
}
_FORMATS = {"date-time": TIME, "date": pa.date32()}


class JsonSchema:
    def __init__(self, text: str) -> None:
        """
        Raises:
            SchemaInvalid
        """
        try:
            schema = json.loads(text)
        except ValueError as error:
            raise SchemaInvalid(f"the JSON Schema is not JSON: {error}") from error
        if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
            raise SchemaInvalid("a JSON Schema must have properties to have columns")
        self.fields: Sequence[pa.Field] = _fields(schema["properties"], 1)

    def decode(self, value: bytes) -> Mapping[str, Any]:
        try:
            found = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueMalformed(f"not JSON: {error}") from error
        if not isinstance(found, dict):
            raise ValueMalformed("not a JSON object")
        return found


def _fields(properties: Mapping[str, Any], depth: int) -> list[pa.Field]:
    kinds = [(name, _type(one, depth)) for name, one in properties.items()]
    return [pa.field(name, kind) for name, kind in kinds if kind is not None]


def _type(schema: Any, depth: int) -> pa.DataType | None:
    """None: no column can have this type; values go to the rest."""
    if not isinstance(schema, dict) or depth > DEPTH_MAX:
        return None
    kind = schema.get("type")
    if isinstance(kind, list):
        others = [one for one in kind if one != "null"]
        kind = others[0] if len(others) == 1 else None
    if kind == "object":
        fields = _fields(schema.get("properties") or {}, depth + 1)
        return pa.struct(fields) if fields else None
    if kind == "array":
        element = _type(schema.get("items"), depth + 1)
        return None if element is None else list_of(element)
    if kind == "string":
        return _FORMATS.get(schema.get("format", ""), pa.string())
    return _TYPES.get(kind) if isinstance(kind, str) else None
