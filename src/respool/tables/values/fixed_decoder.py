"""Avro and Protobuf with a schema that the topic's setting has: values without a prefix."""

from collections.abc import Sequence

import pyarrow as pa

from respool.model.tables.value_schema import ValueKind, ValueSchema
from respool.tables.values.message_schema import MessageSchema
from respool.tables.values.row_decoding import RowBuilder
from respool.tables.values.schema_parsing import parse_message_schema
from respool.tables.values.value_decoder import DecodedValues


class FixedDecoder:
    def __init__(self, schema: ValueSchema) -> None:
        """
        Raises:
            SchemaInvalid, DependencyMissing
        """
        kind = "AVRO" if schema.kind is ValueKind.AVRO else "PROTOBUF"
        self._schema: MessageSchema = parse_message_schema(kind, schema.text)

    def new_fields(self, values: pa.Array, fields: Sequence[pa.Field]) -> list[pa.Field]:
        del values
        known = {one.name for one in fields}
        return [one for one in self._schema.fields if one.name not in known]

    def decode(self, values: pa.Array, fields: Sequence[pa.Field]) -> DecodedValues:
        rows = RowBuilder(fields)
        for row, value in enumerate(values.to_pylist()):
            rows.add(row, value, self._schema)
        return rows.result()

    def close(self) -> None:
        """Nothing is held."""
