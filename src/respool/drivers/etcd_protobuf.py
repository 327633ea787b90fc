"""Protocol buffers for the few messages of etcd: dataclasses whose fields have tags. No I/O.

```
message  = field*                 field = key, value
key      = varint: tag * 8 + kind
value    = kind 0: varint                        numbers and flags; negative ones as 64-bit two's complement
           kind 2: varint length, that many      bytes, text, messages inside; repeated ones as one field each
           kind 1: 8 bytes, kind 5: 4 bytes      not used by the messages here; skipped
```
Default values are not sent, as in proto3. Unknown fields are skipped, so newer servers are understood.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, cast

M = TypeVar("M")

_VARINT, _FIXED_64, _SIZED, _FIXED_32 = 0, 1, 2, 5
_UINT64 = (1 << 64) - 1
_INT64_SIGN = 1 << 63


class MessageDamaged(ValueError):
    """The bytes are not a message of this type."""


# -- declaring ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Field:
    tag: int
    name: str
    kind: type
    is_repeated: bool


def number(tag: int) -> int:
    return field(default=0, metadata={"tag": tag, "kind": int})


def flag(tag: int) -> bool:
    return field(default=False, metadata={"tag": tag, "kind": bool})


def raw(tag: int) -> bytes:
    return field(default=b"", metadata={"tag": tag, "kind": bytes})


def text(tag: int) -> str:
    return field(default="", metadata={"tag": tag, "kind": str})


def one(tag: int, kind: type[M]) -> M | None:
    """A nested message. None is not sent; an empty one is."""
    return cast(M, field(default=None, metadata={"tag": tag, "kind": kind}))


def many(tag: int, kind: type[M]) -> tuple[M, ...]:
    return cast(
        tuple[M, ...],
        field(default=(), metadata={"tag": tag, "kind": kind, "is_repeated": True}),
    )


_LAYOUTS: dict[type, Mapping[int, _Field]] = {}


def _layout(message_type: type) -> Mapping[int, _Field]:
    known = _LAYOUTS.get(message_type)
    if known is not None:
        return known
    found = (
        _Field(
            each.metadata["tag"],
            each.name,
            each.metadata["kind"],
            each.metadata.get("is_repeated", False),
        )
        for each in fields(message_type)
    )
    layout = {each.tag: each for each in sorted(found, key=lambda each: each.tag)}
    _LAYOUTS[message_type] = layout
    return layout


# -- writing -----------------------------------------------------------------------------------------------------------


def encode(message: object) -> bytes:
    out = bytearray()
    for each in _layout(type(message)).values():
        value = getattr(message, each.name)
        for item in value if each.is_repeated else (value,):
            _write_field(out, each, item)
    return bytes(out)


def _write_field(out: bytearray, each: _Field, value: Any) -> None:
    if each.kind is int or each.kind is bool:
        if value:
            _write_varint(out, each.tag << 3 | _VARINT)
            _write_varint(out, int(value) & _UINT64)
        return
    if value is None or (not value and each.kind in {bytes, str} and not each.is_repeated):
        return
    if each.kind is str:
        value = value.encode()
    elif each.kind is not bytes:
        value = encode(value)
    _write_varint(out, each.tag << 3 | _SIZED)
    _write_varint(out, len(value))
    out += value


def _write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# -- reading -----------------------------------------------------------------------------------------------------------


def decode(data: bytes, message_type: type[M]) -> M:
    """Decode a whole message.

    Raises:
        MessageDamaged: the bytes are incomplete or malformed.
    """
    values: dict[str, Any] = {}
    layout = _layout(message_type)
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        known = layout.get(key >> 3)
        value, position = _read_value(data, position, key & 7)
        if known is None:
            continue
        parsed = _parse(known, value)
        if known.is_repeated:
            values.setdefault(known.name, []).append(parsed)
        else:
            values[known.name] = parsed
    return message_type(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
        }
    )


def _parse(known: _Field, value: int | bytes) -> Any:
    if isinstance(value, int):
        if known.kind is bool:
            return bool(value)
        if known.kind is int:
            return value - (1 << 64) if value & _INT64_SIGN else value
    elif known.kind is bytes:
        return value
    elif known.kind is str:
        return value.decode(errors="replace")
    elif known.kind not in {int, bool}:
        return decode(value, known.kind)
    raise MessageDamaged(f"field {known.tag} ({known.name}) is not of its kind")


def _read_value(data: bytes, position: int, kind: int) -> tuple[int | bytes, int]:
    if kind == _VARINT:
        return _read_varint(data, position)
    if kind == _SIZED:
        size, position = _read_varint(data, position)
    elif kind in {_FIXED_64, _FIXED_32}:
        size = 8 if kind == _FIXED_64 else 4
    else:
        raise MessageDamaged(f"field of kind {kind} at byte {position}")
    end = position + size
    if end > len(data):
        raise MessageDamaged(f"field of {size} bytes at byte {position} of {len(data)}")
    return data[position:end], end


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise MessageDamaged(f"number incomplete at byte {position} of {len(data)}")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _UINT64, position
        shift += 7
