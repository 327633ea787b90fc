"""Protobuf: the columns of a message, and its values decoded with Google's library."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from respool.tables.errors import SchemaInvalid
from respool.tables.values.arrow_types import TIME, list_of
from respool.tables.values.avro_schema import missing
from respool.tables.values.message_schema import ValueMalformed

# Messages may be recursive: fields become columns down to this depth, and deeper ones go to the rest.
_DEPTH_MAX = 5
_TIMESTAMP = "google.protobuf.Timestamp"
_KINDS = {
    "double": pa.float64(),
    "float": pa.float32(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "int32": pa.int32(),
    "sint32": pa.int32(),
    "sfixed32": pa.int32(),
    "int64": pa.int64(),
    "sint64": pa.int64(),
    "sfixed64": pa.int64(),
    "uint32": pa.int64(),
    "fixed32": pa.int64(),
    # Beyond a long: as a decimal with the digits of an unsigned one.
    "uint64": pa.decimal128(20, 0),
    "fixed64": pa.decimal128(20, 0),
}


class ProtobufSchema:
    def __init__(self, text: str, references: Mapping[str, str]) -> None:
        """
        Raises:
            SchemaInvalid, DependencyMissing
        """
        try:
            from google.protobuf import descriptor_pool, message_factory
            from google.protobuf.descriptor_pb2 import FieldDescriptorProto
        except ModuleNotFoundError as error:
            raise missing(error) from error
        from respool.tables.values.proto_text import parse_proto

        pool = descriptor_pool.DescriptorPool()
        try:
            for name, each in {**references, "value.proto": text}.items():
                parsed = parse_proto(name, each)
                for one in parsed.dependency:
                    _add_well_known(pool, one)
                pool.Add(parsed)
            self._file = pool.FindFileByName("value.proto")
        except (TypeError, KeyError) as error:
            raise SchemaInvalid(f"the Protobuf schema is invalid: {error}") from error
        if not self._file.message_types_by_name:
            raise SchemaInvalid("the Protobuf schema declares no message")
        self._class_of = message_factory.GetMessageClass
        prefix = "TYPE_"
        self._kinds = {
            number: name.removeprefix(prefix).lower()
            for name, number in FieldDescriptorProto.Type.items()
        }
        self._messages = list(self._file.message_types_by_name.values())
        self._choose(self._messages[0])

    def _choose(self, message: Any) -> None:
        self._message = message
        self._class = self._class_of(message)
        self.fields: Sequence[pa.Field] = self._fields(message, 1)

    def of_index(self, body: bytes) -> "tuple[ProtobufSchema, bytes]":
        """The schema of the message that the indexes in front of a value name, and the value.

        Raises:
            SchemaInvalid: there is no such message.
        """
        indexes, at = _indexes(body)
        message = self._messages[0]
        for depth, index in enumerate(indexes):
            among = self._messages if depth == 0 else list(message.nested_types)
            if not 0 <= index < len(among):
                raise SchemaInvalid(f"the schema has no message {indexes}")
            message = among[index]
        if message is self._message or message.full_name == self._message.full_name:
            return self, body[at:]
        other = object.__new__(ProtobufSchema)
        other.__dict__.update(self.__dict__)
        other._choose(message)
        return other, body[at:]

    def _fields(self, message: Any, depth: int) -> list[pa.Field]:
        kinds = [(one.name, self._type(one, depth)) for one in message.fields]
        return [pa.field(name, kind) for name, kind in kinds if kind is not None]

    def _type(self, field: Any, depth: int) -> pa.DataType | None:
        """None: no column can have this type, as of maps; values go to the rest."""
        kind = self._scalar(field, depth)
        if kind is not None and field.is_repeated:
            return None if _is_map(field) else list_of(kind)
        return kind

    def _scalar(self, field: Any, depth: int) -> pa.DataType | None:
        if field.enum_type is not None:
            return pa.string()
        if field.message_type is None:
            return _KINDS.get(self._kinds[field.type])
        if field.message_type.full_name == _TIMESTAMP:
            return TIME
        inner = self._fields(field.message_type, depth + 1) if depth < _DEPTH_MAX else []
        return pa.struct(inner) if inner else None

    def decode(self, value: bytes) -> Mapping[str, Any]:
        message = self._class()
        try:
            message.ParseFromString(value)
            return _object(message)
        except Exception as error:
            # Malformed bytes, invalid UTF-8 and deep nesting raise different classes.
            raise ValueMalformed(f"not Protobuf of this schema: {error}") from error


def _object(message: Any) -> dict[str, Any]:
    """A message's fields; one that is absent, where that differs from zero, is null."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if _is_map(field):
            # An empty one has no information.
            found[field.name] = {
                str(name): _plain(one, field) for name, one in value.items()
            } or None
        elif field.is_repeated:
            found[field.name] = [_plain(one, field) for one in value]
        else:
            found[field.name] = _plain(value, field)
    return found


def _plain(value: Any, field: Any) -> Any:
    if field.enum_type is not None and not _is_map(field):
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if not hasattr(value, "DESCRIPTOR"):
        return value
    if value.DESCRIPTOR.full_name == _TIMESTAMP:
        return value.ToDatetime(tzinfo=_utc())
    return _object(value)


def _utc() -> Any:
    from datetime import UTC

    return UTC


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _add_well_known(pool: Any, name: str) -> None:
    """Google's own files, such as google/protobuf/timestamp.proto, come with its library."""
    from google.protobuf import (  # noqa: F401 - importing them adds them to the default pool
        any_pb2,
        descriptor_pool,
        duration_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    try:
        pool.FindFileByName(name)
    except KeyError:
        try:
            known = descriptor_pool.Default().FindFileByName(name)
        except KeyError:
            return
        copied = FileDescriptorProto()
        known.CopyToProto(copied)
        pool.Add(copied)


def _indexes(body: bytes) -> tuple[list[int], int]:
    """The message's indexes, and where the value begins; a single 0 stands for the first message.

    Raises:
        SchemaInvalid: they are malformed.
    """
    count, at = _varint(body, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= 32:
        raise SchemaInvalid("the indexes of the message are malformed")
    found = []
    for _ in range(count):
        index, at = _varint(body, at)
        found.append(index)
    return found, at


def _varint(body: bytes, at: int) -> tuple[int, int]:
    """A zigzag number."""
    value = shift = 0
    while at < len(body) and shift < 35:
        byte = body[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise SchemaInvalid("the indexes of the message are malformed")
