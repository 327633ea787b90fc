"""JSON Schema as columns."""

import json

import pyarrow as pa
import pytest

from respool.tables.errors import SchemaInvalid
from respool.tables.values.arrow_types import list_of
from respool.tables.values.json_schema import JsonSchema
from respool.tables.values.message_schema import ValueMalformed


def test_properties_are_columns_and_what_has_no_type_is_none() -> None:
    properties = {
        "id": {"type": ["null", "integer"]},
        "at": {"type": "object", "properties": {"lat": {"type": "number"}}},
        "tags": {"type": "array", "items": {"type": "string"}},
        "any": {},
        "either": {"type": ["string", "integer"]},
        "free": {"type": "object"},
    }
    schema = JsonSchema(json.dumps({"properties": properties}))
    assert list(schema.fields) == [
        pa.field("id", pa.int64()),
        pa.field("at", pa.struct([pa.field("lat", pa.float64())])),
        pa.field("tags", list_of(pa.string())),
    ]
    assert schema.decode(b'{"id":1}') == {"id": 1}


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"properties":1}'])
def test_a_schema_without_properties_is_refused(text: str) -> None:
    with pytest.raises(SchemaInvalid):
        JsonSchema(text)


@pytest.mark.parametrize("value", [b"null", b"[1]", b"{", b"\xff"])
def test_a_value_that_is_no_object_is_malformed(value: bytes) -> None:
    with pytest.raises(ValueMalformed):
        JsonSchema('{"properties":{}}').decode(value)
