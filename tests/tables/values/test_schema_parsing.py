"""Schemas by their type, as registries name it."""

import pytest

from respool.tables.errors import SchemaInvalid
from respool.tables.values.schema_parsing import parse_message_schema


def test_a_type_that_is_not_known_is_refused() -> None:
    with pytest.raises(SchemaInvalid, match="schemas of type XML are not supported"):
        parse_message_schema("XML", "<schema/>")


def test_each_type_makes_columns() -> None:
    avro = '{"type":"record","name":"A","fields":[{"name":"x","type":"int"}]}'
    proto = "message A { optional int32 x = 1; }"
    schema = '{"properties":{"x":{"type":"integer"}}}'
    for kind, text in (("AVRO", avro), ("PROTOBUF", proto), ("JSON", schema)):
        assert [one.name for one in parse_message_schema(kind, text).fields] == ["x"]
