"""Schemas as registries have them, by their type: Avro, Protobuf, JSON Schema."""

from collections.abc import Mapping

from respool.tables.errors import SchemaInvalid
from respool.tables.values.message_schema import MessageSchema


def parse_message_schema(
    kind: str, text: str, *, references: Mapping[str, str] | None = None
) -> MessageSchema:
    """`kind` is AVRO, PROTOBUF or JSON, as registries name them; `references` are schemas that this one imports.

    Raises:
        SchemaInvalid: it is malformed, or has no columns.
        DependencyMissing: a package is missing.
    """
    known = references or {}
    match kind:
        case "AVRO":
            from respool.tables.values.avro_schema import AvroSchema

            return AvroSchema(text, known)
        case "PROTOBUF":
            from respool.tables.values.protobuf_schema import ProtobufSchema

            return ProtobufSchema(text, known)
        case "JSON":
            from respool.tables.values.json_schema import JsonSchema

            return JsonSchema(text)
    raise SchemaInvalid(f"schemas of type {kind} are not supported: use AVRO, PROTOBUF or JSON")
