"""Random kio entities, whole requests around them, and ways to spoil their bytes: for this room's property tests."""

import datetime as dt
import io
import os
import struct
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from respool.wire.api_table import API_TABLE
from respool.wire.schema import FieldSchema, is_flexible, schema_of
from respool.wire.schema_extensions import request_class

IS_LONG = os.environ.get("RESPOOL_FUZZ") == "long"

SERVED = [
    (spec.key, version)
    for spec in API_TABLE.values()
    for version in range(spec.version_min, spec.version_max + 1)
]


def examples(default: int, *, long: int) -> int:
    """How many examples a property test runs: few by default, many under RESPOOL_FUZZ=long."""
    return long if IS_LONG else default


def _signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _seconds_since_1970(value: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(value, tz=dt.UTC)


_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "int8": _signed(8),
    "int16": _signed(16),
    "int32": _signed(32),
    "int64": _signed(64),
    "uint16": st.integers(0, 2**16 - 1),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "bool": st.booleans(),
    "string": st.text(max_size=12),
    "bytes": st.binary(max_size=200),
    "records": st.binary(max_size=200),
    "uuid": st.none() | st.uuids(),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": _signed(32).map(lambda ms: dt.timedelta(milliseconds=ms)),
    "timedelta_i64": _signed(40).map(lambda ms: dt.timedelta(milliseconds=ms)),
    "datetime_i64": st.integers(0, 2**32).map(_seconds_since_1970),
}

_strategies: dict[type, st.SearchStrategy[Any]] = {}


def entities(entity_class: Any) -> st.SearchStrategy[Any]:
    """Entities of one kio class with any values its schema allows."""
    if entity_class not in _strategies:
        _strategies[entity_class] = st.builds(
            entity_class, **{item.name: _values(item) for item in schema_of(entity_class)}
        )
    return _strategies[entity_class]


def _values(item: FieldSchema) -> st.SearchStrategy[Any]:
    values = entities(item.struct) if item.struct is not None else _PLAIN[item.kind]
    if item.is_array:
        values = st.lists(values, max_size=3).map(tuple)
    if item.is_nullable:
        values = st.none() | values
    if item.tag is not None:
        values = st.just(item.default) | values.filter(lambda value: value is not None)
    return values


def encode(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def header(
    key: int, version: int, *, client_id: str | None = "tester", correlation_id: int = 7
) -> bytes:
    """A request's header as kio's class for it says."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    tags = b"\0" if is_flexible(request_class(key, version).__header_schema__) else b""
    return struct.pack(">hhih", key, version, correlation_id, length) + name + tags


def request_frame(body: Any, **kwargs: Any) -> bytes:
    cls = type(body)
    return header(cls.__api_key__, cls.__version__, **kwargs) + encode(body)


# Counts and lengths nobody has the memory for, as a varint and as an int32, and values around the edges.
_NASTY = [
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x01",
    b"\x80\x80\x80\x08",
    b"\x80\x00",
    b"\x7f\xff\xff\xff",
    b"\x7f\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x80\x00\x00\x00",
    b"\x10\x00\x00\x00",
    b"\x00",
    b"\x01",
    b"\x02",
    b"\xff",
]


@st.composite
def spoiled(draw: st.DrawFn, raw: bytes) -> bytes:
    """The bytes after one to four accidents: flipped, cut, doubled, stretched, or with a monstrous length in them."""
    data = bytearray(raw)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 5)):
            case 0 if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                del data[at:]
            case 2:
                nasty = draw(st.sampled_from(_NASTY))
                data[at : at + len(nasty)] = nasty
            case 3:
                data[at:at] = draw(st.sampled_from(_NASTY))
            case 4:
                data[at:at] = data[at : at + draw(st.integers(1, 16))]
            case _:
                data[at:at] = draw(st.binary(max_size=8))
    return bytes(data)


_SMALL: dict[str, Any] = {
    "float64": 0.0,
    "bool": False,
    "string": "ab",
    "bytes": b"abc",
    "records": b"abc",
    "uuid": None,
    "error_code": ErrorCode.none,
    "timedelta_i32": dt.timedelta(0),
    "timedelta_i64": dt.timedelta(0),
    "datetime_i64": _seconds_since_1970(0),
}


def small(entity_class: Any) -> Any:
    """An entity with one item in every array, nothing null and no tagged fields."""
    values = {}
    for item in schema_of(entity_class):
        if item.tag is None:
            one = small(item.struct) if item.struct is not None else _SMALL.get(item.kind, 0)
            values[item.name] = (one,) if item.is_array else one
    return entity_class(**values)
