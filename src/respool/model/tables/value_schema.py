"""How values of messages are decoded: the text of `respool.table.schema`, and of `schema=` in reads. Pure.

raw                     bytes, as they were sent
infer                   JSON; the columns are those of the first messages, and of new fields later
declared:<columns>      JSON, with these columns
registry                each value names its schema: Avro, Protobuf or JSON Schema, from a schema registry
registry:latest         values without a name in front; the newest schema of the subject <topic>-value
avro:<schema>           Avro with this schema, in Avro's JSON, without anything in front
protobuf:<text>         Protobuf, with the first message of this .proto text
"""

import json
from dataclasses import dataclass
from enum import StrEnum

from respool.model.errors import InvalidConfig
from respool.model.tables.column_types import Column, parse_columns


class ValueKind(StrEnum):
    RAW = "raw"
    INFER = "infer"
    DECLARED = "declared"
    REGISTRY = "registry"
    LATEST = "registry:latest"
    AVRO = "avro"
    PROTOBUF = "protobuf"


_WITH_TEXT = (ValueKind.DECLARED, ValueKind.AVRO, ValueKind.PROTOBUF)


@dataclass(frozen=True, slots=True)
class ValueSchema:
    kind: ValueKind = ValueKind.RAW
    # The declaration, for the kinds that have one.
    text: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.text}" if self.text else str(self.kind)

    @property
    def is_raw(self) -> bool:
        return self.kind is ValueKind.RAW

    @property
    def uses_registry(self) -> bool:
        return self.kind in {ValueKind.REGISTRY, ValueKind.LATEST}

    @property
    def evolves(self) -> bool:
        """True if fields that appear later become columns."""
        return self.kind in {ValueKind.INFER, ValueKind.REGISTRY, ValueKind.LATEST}

    @property
    def columns(self) -> tuple[Column, ...]:
        assert self.kind is ValueKind.DECLARED
        return parse_columns(self.text)


def parse_value_schema(text: str) -> ValueSchema:
    """
    Raises:
        InvalidConfig: the text has none of these forms, or an invalid declaration.
    """
    said = text.strip()
    for kind in (ValueKind.RAW, ValueKind.INFER, ValueKind.REGISTRY, ValueKind.LATEST):
        if said == kind:
            return ValueSchema(kind)
    word, _colon, rest = said.partition(":")
    for kind in _WITH_TEXT:
        if word.strip() == kind and rest.strip():
            found = ValueSchema(kind, rest.strip())
            _check(found)
            return found
    known = (
        "raw, infer, declared:<columns>, registry, registry:latest, avro:<schema>, protobuf:<text>"
    )
    raise InvalidConfig(f"{said[:60]!r} is not one of: {known}")


def _check(schema: ValueSchema) -> None:
    """The rules of Avro and Protobuf are checked when a table is created, since that needs their libraries."""
    if schema.kind is ValueKind.DECLARED:
        parse_columns(schema.text)
    if schema.kind is ValueKind.AVRO:
        try:
            json.loads(schema.text)
        except ValueError as error:
            raise InvalidConfig(f"avro: the schema is not JSON: {error}") from None
    if schema.kind is ValueKind.PROTOBUF and "message" not in schema.text:
        raise InvalidConfig("protobuf: the text declares no message")
