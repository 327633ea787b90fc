"""Creates the decoder for a topic's values."""

from typing import TYPE_CHECKING

from respool.model.tables.value_schema import ValueKind, ValueSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from respool.tables.values.value_decoder import ValueDecoder


def make_decoder(schema: ValueSchema, *, topic: str, registry: str = "") -> "ValueDecoder | None":
    """None for raw values.

    Raises:
        SchemaInvalid: the schema cannot be used.
        DependencyMissing: a package is missing that this kind of value needs.
        RegistryUnavailable: the schema registry does not answer.
    """
    match schema.kind:
        case ValueKind.RAW:
            return None
        case ValueKind.INFER | ValueKind.DECLARED:
            from respool.tables.values.arrow_types import fields_of
            from respool.tables.values.json_decoder import JsonDecoder

            if schema.kind is ValueKind.INFER:
                return JsonDecoder(infers=True)
            return JsonDecoder(fields_of(schema.columns), infers=False)
        case ValueKind.AVRO | ValueKind.PROTOBUF:
            from respool.tables.values.fixed_decoder import FixedDecoder

            return FixedDecoder(schema)
    from respool.tables.values.registry_decoder import RegistryDecoder

    return RegistryDecoder(registry, topic, is_latest=schema.kind is ValueKind.LATEST)


def first_fields(decoder: "ValueDecoder | None") -> "Sequence[pa.Field]":
    """The fields that are known before the first value."""
    import pyarrow as pa

    return [] if decoder is None else decoder.new_fields(pa.array([], pa.binary()), [])
