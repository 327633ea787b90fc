"""The fields of kio's message classes, in wire order.

kio has one dataclass per message and version, with Kafka's type names in the fields' metadata. Here each becomes a
tuple of `FieldSchema`, from which `walk.py` derives readers and `shape.py` builders.
"""

from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from kio.index import load_request_schema, load_response_schema

from respool.wire.newer_schemas import NEWER_REQUESTS, NEWER_RESPONSES

# A kio entity, and a kio class. kio has protocols for them, but none with fields.
Entity = Any
EntityClass = Any


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSchema:
    name: str
    # Kafka's type name (of the items, for an array): "int32", "string", ... and "struct" for a nested class.
    kind: str
    struct: EntityClass | None
    is_array: bool
    # True if it may be null (the array itself, for an array).
    is_nullable: bool
    # Tagged fields come last, only in flexible versions, and may be omitted (KIP-482).
    tag: int | None
    # `MISSING` if the schema has no default.
    default: Any

    @property
    def has_default(self) -> bool:
        return self.default is not MISSING


@cache
def schema_of(entity_class: EntityClass) -> tuple[FieldSchema, ...]:
    return tuple(_field_schema(item) for item in fields(entity_class))


def is_flexible(entity_class: EntityClass) -> bool:
    """True if lengths are varints and structs end with tagged fields."""
    return bool(entity_class.__flexible__)


# kio looks them up by name each time, which takes longer than writing a small request.
@cache
def load_request_class(key: int, version: int) -> EntityClass:
    return NEWER_REQUESTS.get((key, version)) or load_request_schema(key, version)


@cache
def response_class(key: int, version: int) -> EntityClass:
    return NEWER_RESPONSES.get((key, version)) or load_response_schema(key, version)


def _field_schema(item: Any) -> FieldSchema:
    declared, is_nullable = _without_none(item.type)
    is_array = get_origin(declared) is tuple
    if is_array:
        # Items are never null on the wire. kio declares uuid arrays so, because its zero uuid is None.
        declared, _ = _without_none(get_args(declared)[0])
    struct = declared if is_dataclass(declared) else None
    return FieldSchema(
        name=item.name,
        kind="struct" if struct is not None else item.metadata["kafka_type"],
        struct=struct,
        is_array=is_array,
        is_nullable=is_nullable,
        tag=item.metadata.get("tag"),
        default=item.default,
    )


def _without_none(declared: Any) -> tuple[Any, bool]:
    if get_origin(declared) not in {UnionType, Union}:
        return declared, False
    (rest,) = (option for option in get_args(declared) if option is not NoneType)
    return rest, True
