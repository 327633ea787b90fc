"""Encodes a reply that contains only an error, for any request: for faults that tests inject.

Only the schemas are known here, so the reply follows the request: every error code is the given one, and an array has
one item per item of the request's array that it answers. Such arrays are at the same depth and name their items alike
(`name`, `topic`, `partition_index` ...). Other fields have their default, or a meaningless value: -1, "", no items.
"""

from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any

from respool.wire.codec import Request, encode_reply
from respool.wire.reply_errors import FrameWithErrors
from respool.wire.schema import EntityClass, FieldSchema, response_class, schema_of

# Fields that correspond under different names.
_SAME = {
    "partition_index": ("index", "partition"),
    "index": ("partition_index",),
    "topic": ("name",),
    "key": (),
}
_NEUTRAL: Mapping[str, Any] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": None,
    "uuid": None,
    "error_code": 0,
    "timedelta_i32": 0,
    "timedelta_i64": 0,
    "datetime_i64": 0,
    "float64": 0.0,
}


class NoPlaceForError(Exception):
    """The reply to this request has no error code."""


def encode_error_reply(request: Request, code: int) -> bytes:
    """Encode the whole reply frame.

    Raises:
        NoPlaceForError: the reply has no error code for this request.
    """
    reply_class = response_class(request.api.key, request.version)
    fields = _fields_of(reply_class, request.body, code)
    frame = encode_reply(request, fields)
    if not isinstance(frame, FrameWithErrors):
        raise NoPlaceForError(
            f"a reply to {request.api.name} v{request.version} has no place for an error"
        )
    return frame


def _fields_of(reply_class: EntityClass, asked: Any, code: int) -> dict[str, Any]:
    return {
        item.name: value
        for item in schema_of(reply_class)
        if (value := _value_of(item, asked, code)) is not MISSING
    }


def _value_of(item: FieldSchema, asked: Any, code: int) -> Any:
    """The value of this field of the reply; MISSING: the schema's default."""
    if item.is_array:
        return _items_of(item, asked, code)
    if item.kind == "error_code":
        return code
    if item.struct is not None and not item.has_default and not item.is_nullable:
        return _fields_of(item.struct, asked, code)
    echoed = MISSING if item.struct is not None else _echo_of(item, asked)
    if echoed is MISSING and not item.has_default:
        return None if item.is_nullable else _NEUTRAL.get(item.kind, -1)
    return echoed


def _echo_of(item: FieldSchema, asked: Any) -> Any:
    """The request's value under this name; MISSING if there is none that fits."""
    if asked is None or item.tag is not None:
        return MISSING
    if isinstance(asked, str):
        return (
            asked if item.kind == "string" and item.name in {"key", "name", "group_id"} else MISSING
        )
    for name in (item.name, *_SAME.get(item.name, ())):
        for asked_item in _schema_of(asked):
            if asked_item.name == name and asked_item.kind == item.kind and not asked_item.is_array:
                value = getattr(asked, name)
                return MISSING if value is None and not item.is_nullable else value
    return MISSING


def _items_of(item: FieldSchema, asked: Any, code: int) -> Any:
    """An item per requested item, if the items have an error code; else none."""
    if item.struct is None or not _has_code(item.struct) or item.has_default:
        return MISSING if item.has_default else ()
    return [_fields_of(item.struct, one, code) for one in _asked_items(item, asked)]


def _asked_items(item: FieldSchema, asked: Any) -> Any:
    """The request's array that this array of the reply answers."""
    if asked is None or isinstance(asked, str):
        return ()
    candidates = [
        one
        for one in _schema_of(asked)
        if one.is_array and one.tag is None and (one.struct is not None or one.kind == "string")
    ]
    same_name = [one for one in candidates if one.name == item.name]
    found = (same_name or candidates)[:1]
    return (getattr(asked, found[0].name) or ()) if found else ()


def _schema_of(entity: Any) -> tuple[FieldSchema, ...]:
    entity_class: EntityClass = type(entity)
    return schema_of(entity_class)


def _has_code(struct: EntityClass) -> bool:
    return any(
        one.kind == "error_code" or (one.struct is not None and _has_code(one.struct))
        for one in schema_of(struct)
    )
