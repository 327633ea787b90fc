"""Values whose schema is in a registry: each value begins with its schema's id, or all have the newest schema of their
subject.

```
0x00  schema id (4 bytes, big-endian)  [Protobuf: which message, as varints]  the value
```
"""

import struct
from collections.abc import Sequence

import pyarrow as pa

from respool.tables.errors import SchemaInvalid
from respool.tables.values.arrow_types import is_same_or_wider
from respool.tables.values.message_schema import MessageSchema
from respool.tables.values.protobuf_schema import ProtobufSchema
from respool.tables.values.registry_client import RegistryClient, UnknownSchema
from respool.tables.values.row_decoding import RowBuilder
from respool.tables.values.value_decoder import COLUMNS_MAX, DecodedValues

_PREFIX = struct.Struct(">BI")


class RegistryDecoder:
    def __init__(self, url: str, topic: str, *, is_latest: bool) -> None:
        self._client = RegistryClient(url.rstrip("/"))
        self._subject = f"{topic}-value"
        self._is_latest = is_latest

    def new_fields(self, values: pa.Array, fields: Sequence[pa.Field]) -> list[pa.Field]:
        found = {one.name.lower(): one for one in fields}
        new: dict[str, pa.Field] = {}
        for schema in self._schemas(values):
            for one in schema.fields:
                name = one.name.lower()
                known = new.get(name) or found.get(name)
                if known is None and len(found) + len(new) < COLUMNS_MAX:
                    new[name] = one
                elif known is not None and known.name == one.name:
                    grown = _grown(known, one)
                    if grown is not None:
                        new[name] = grown
        return list(new.values())

    def _schemas(self, values: pa.Array) -> list[MessageSchema]:
        if self._is_latest:
            try:
                return [self._client.latest(self._subject)]
            except UnknownSchema:
                return []
        ids = {one[:5] for one in values.to_pylist() if one is not None and one[:1] == b"\0"}
        schemas = []
        for prefix in sorted(ids):
            if len(prefix) == _PREFIX.size:
                try:
                    schemas.append(self._client.schema(_PREFIX.unpack(prefix)[1]))
                except (UnknownSchema, SchemaInvalid):
                    # Its values are rejected when they are decoded.
                    continue
        return schemas

    def decode(self, values: pa.Array, fields: Sequence[pa.Field]) -> DecodedValues:
        rows = RowBuilder(fields)
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                rows.add(row, None, _NoSchema())
                continue
            try:
                schema, body = self._schema_of(value)
            except (UnknownSchema, SchemaInvalid) as error:
                rows.reject(row, str(error))
                continue
            rows.add(row, body, schema)
        return rows.result()

    def _schema_of(self, value: bytes) -> tuple[MessageSchema, bytes]:
        """
        Raises:
            UnknownSchema, SchemaInvalid: the value cannot be decoded.
            RegistryUnavailable: the registry does not answer.
        """
        if self._is_latest:
            return self._client.latest(self._subject), value
        if len(value) < _PREFIX.size or value[0] != 0:
            raise UnknownSchema("the value does not begin with 0 and a schema's id")
        schema = self._client.schema(_PREFIX.unpack_from(value)[1])
        body = value[_PREFIX.size :]
        if isinstance(schema, ProtobufSchema):
            return schema.of_index(body)
        return schema, body

    def close(self) -> None:
        """Nothing is held."""


class _NoSchema:
    fields: Sequence[pa.Field] = ()

    def decode(self, value: bytes) -> dict[str, object]:
        raise AssertionError(value)


def _grown(known: pa.Field, new: pa.Field) -> pa.Field | None:
    """The struct with fields that the new one has beyond it; None if there are none, or one is not a struct."""
    if not (pa.types.is_struct(known.type) and pa.types.is_struct(new.type)):
        return None
    inner = {known.type.field(at).name: known.type.field(at) for at in range(known.type.num_fields)}
    grown = False
    for at in range(new.type.num_fields):
        one = new.type.field(at)
        if one.name not in inner:
            inner[one.name] = one
            grown = True
        elif not is_same_or_wider(one.type, inner[one.name].type):
            deeper = _grown(inner[one.name], one)
            if deeper is not None:
                inner[one.name] = deeper
                grown = True
    return pa.field(known.name, pa.struct(list(inner.values()))) if grown else None
