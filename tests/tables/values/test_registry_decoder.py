"""Avro, Protobuf and JSON by a schema registry; and by a schema in the setting."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from respool.model.tables.value_schema import parse_value_schema
from respool.tables.errors import RegistryUnavailable, SchemaInvalid
from respool.tables.values.arrow_types import TIME, list_of
from respool.tables.values.decoding import first_fields, make_decoder
from respool.tables.values.protobuf_schema import ProtobufSchema
from respool.tables.values.registry_decoder import RegistryDecoder
from respool.tables.values.value_decoder import ValueDecoder
from tables.values.registry import Registry

RIDE_1: dict[str, Any] = {
    "type": "record",
    "name": "Ride",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "city", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "extra", "type": {"type": "map", "values": "int"}},
    ],
}
RIDE_2 = {**RIDE_1, "fields": [*RIDE_1["fields"][:2], {"name": "fare", "type": "double"}]}
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PROTO = """
syntax = "proto3";
package company; // of rides
import "google/protobuf/timestamp.proto";
enum State { OPEN = 0; PAID = 1; }
message Other { int32 x = 1; message Inner { string y = 1; } }
message Ride {
  reserved 9, 10 to 12;
  int64 id = 1;
  optional string city = 2 [deprecated = true];
  google.protobuf.Timestamp at = 3;
  State state = 4;
  repeated string tags = 5;
  map<string, int32> extra = 6;
  oneof payment { double cash = 7; string card = 8; }
  Ride before = 13;
  uint64 big = 14;
  /* comment } */
}
"""


@pytest.fixture
def registry() -> Iterator[Registry]:
    found = Registry()
    yield found
    found.close()


def avro(schema: dict[str, Any], value: dict[str, Any], schema_id: int | None = 1) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), value)
    prefix = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")
    return prefix + sink.getvalue()


def ride(number: int) -> dict[str, Any]:
    return {"id": number, "city": None, "at": AT, "tags": ["a"], "extra": {"x": number}}


def decoded(
    decoder: ValueDecoder, *values: bytes | None, fields: list[pa.Field] | None = None
) -> tuple[list[pa.Field], list[Any], list[Any], dict[int, str]]:
    array = pa.array(list(values), pa.binary())
    known = fields or []
    new = decoder.new_fields(array, known)
    known = [*(one for one in known if one.name not in {each.name for each in new}), *new]
    found = decoder.decode(array, known)
    reasons = {one.row: one.reason for one in found.rejected}
    return known, found.rows.to_pylist(), found.rest.to_pylist(), reasons


def test_each_value_is_decoded_by_the_schema_that_it_names(registry: Registry) -> None:
    registry.add(1, "AVRO", json.dumps(RIDE_1))
    registry.by_id[2] = {"schema": json.dumps(RIDE_2)}  # Avro is what a registry does not name.
    decoder = RegistryDecoder(registry.url, "rides", is_latest=False)
    fields, rows, rest, rejected = decoded(
        decoder,
        avro(RIDE_1, ride(1)),
        b"\0\0\0\0\x09unknown",
        avro(RIDE_2, {"id": 2, "city": "Oslo", "fare": 1.5}, 2),
        b"{}",
        None,
        avro(RIDE_1, ride(3)) + b"more",
        avro(RIDE_1, ride(4))[:-2],
    )
    assert [(one.name, one.type) for one in fields] == [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("at", TIME),
        ("tags", list_of(pa.string())),
        ("fare", pa.float64()),
    ]
    assert [(one["id"], one["city"], one["at"], one["fare"]) for one in rows] == [
        (1, None, AT, None),
        (2, "Oslo", None, 1.5),
        (None, None, None, None),
    ]
    assert rest == ['{"extra":{"x":1}}', None, None]
    assert sorted(rejected) == [1, 3, 5, 6]
    assert "no /schemas/ids/9" in rejected[1]
    assert "does not begin with 0" in rejected[3]
    assert "4 bytes are left over" in rejected[5]
    # An id is asked for once.
    decoded(decoder, avro(RIDE_1, ride(5)))
    assert registry.requests.count("/schemas/ids/1") == 1


def test_a_registry_that_is_away_is_waited_for_and_nothing_is_guessed(registry: Registry) -> None:
    registry.add(1, "AVRO", json.dumps(RIDE_1))
    decoder = RegistryDecoder(registry.url, "rides", is_latest=False)
    for status in (500, 299, 401):
        registry.status = status
        with pytest.raises(RegistryUnavailable, match="cannot be used"):
            decoded(decoder, avro(RIDE_1, ride(1)))
    registry.status = 200
    assert decoded(decoder, avro(RIDE_1, ride(1)))[1][0]["id"] == 1
    registry.close()
    # What is known needs no registry.
    assert decoded(decoder, avro(RIDE_1, ride(1)))[1][0]["id"] == 1
    with pytest.raises(RegistryUnavailable):
        decoded(decoder, avro(RIDE_1, ride(1), 7))
    registry.__init__()  # type: ignore[misc]


def test_protobuf_by_a_registry_has_its_message_named_in_front(registry: Registry) -> None:
    registry.add(1, "PROTOBUF", PROTO)
    schema = ProtobufSchema(PROTO, {})
    (other, inner, kind) = (
        schema.of_index(b"\x02\x00")[0],
        schema.of_index(b"\x04\x00\x00")[0],
        schema.of_index(b"\x02\x02")[0],
    )
    message = kind._class(id=7, state=1, tags=["a"], extra={"x": 1}, card="visa", big=2**64 - 1)
    message.at.FromDatetime(AT)
    message.before.id = 6
    prefix = b"\0\0\0\0\x01"
    decoder = RegistryDecoder(registry.url, "rides", is_latest=False)
    # The first message of the schema is Other; the fields of Ride are its own.
    fields = list(kind.fields)
    _fields, rows, rest, rejected = decoded(
        decoder,
        prefix + b"\x02\x02" + message.SerializeToString(),
        prefix + b"\x02\x08",
        prefix + b"\x02\x02\xff\xff",
        prefix,
        fields=fields,
    )
    row = rows[0]
    assert (row["id"], row["city"], row["at"], row["state"], row["tags"]) == (
        7,
        None,
        AT,
        "PAID",
        ["a"],
    )
    assert (row["cash"], row["card"], int(row["big"]), row["before"]["id"]) == (
        None,
        "visa",
        2**64 - 1,
        6,
    )
    assert json.loads(rest[0])["extra"] == {"x": 1}
    assert sorted(rejected) == [1, 2, 3]
    assert [one.name for one in other.fields] == ["x"]
    assert [one.name for one in inner.fields] == ["y"]


def test_schemas_may_refer_to_others(registry: Registry) -> None:
    place = {"type": "record", "name": "Place", "fields": [{"name": "lat", "type": "double"}]}
    trip = {"type": "record", "name": "Trip", "fields": [{"name": "start", "type": "Place"}]}
    registry.by_subject["place"] = {"schema": json.dumps(place)}
    registry.add(
        1,
        "AVRO",
        json.dumps(trip),
        references=[{"name": "Place", "subject": "place", "version": 1}],
    )
    whole = {**trip, "fields": [{"name": "start", "type": place}]}
    decoder = RegistryDecoder(registry.url, "rides", is_latest=False)
    _fields, rows, _rest, rejected = decoded(decoder, avro(whole, {"start": {"lat": 1.5}}))
    assert (rows, rejected) == ([{"start": {"lat": 1.5}}], {})


def test_json_schema_makes_columns_and_the_newest_of_a_subject_needs_no_id(
    registry: Registry,
) -> None:
    schema = {
        "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}}
    }
    registry.by_subject["rides-value"] = {"schemaType": "JSON", "schema": json.dumps(schema)}
    decoder = RegistryDecoder(registry.url, "rides", is_latest=True)
    fields, rows, rest, rejected = decoded(
        decoder, b'{"id":1,"at":"2026-01-02T03:04:05Z","x":2}', b"null"
    )
    assert [one.name for one in fields] == ["id", "at"]
    assert (rows, rest) == ([{"id": 1, "at": AT}], ['{"x":2}'])
    assert rejected == {1: "not a JSON object"}


def test_a_schema_in_the_setting_needs_no_registry() -> None:
    decoder = make_decoder(parse_value_schema(f"avro:{json.dumps(RIDE_2)}"), topic="rides")
    assert decoder is not None
    assert [one.name for one in first_fields(decoder)] == ["id", "city", "fare"]
    value = avro(RIDE_2, {"id": 2, "city": "Oslo", "fare": 1.5}, None)
    assert decoded(decoder, value, b"\xff")[1:] == (
        [{"id": 2, "city": "Oslo", "fare": 1.5}],
        [None],
        {1: decoded(decoder, b"\xff")[3][0]},
    )
    decoder = make_decoder(
        parse_value_schema("protobuf:message A { optional int32 x = 1; }"), topic="rides"
    )
    assert decoder is not None
    assert decoded(decoder, b"\x08\x05")[1] == [{"x": 5}]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("avro", '"long"'),
        ("avro", '{"type":"record","name":"A","fields":[{"name":"x","type":"Missing"}]}'),
        ("protobuf", "message A { Missing x = 1; }"),
        ("protobuf", "message A { int32 x = ; }"),
        ("protobuf", "message A { int32 x"),
        ("protobuf", "message A { int32 x = 1; int32 y = 1; }"),
    ],
)
def test_an_invalid_schema_is_refused(kind: str, text: str) -> None:
    with pytest.raises(SchemaInvalid):
        make_decoder(parse_value_schema(f"{kind}:{text}"), topic="rides")
