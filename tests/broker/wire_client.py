"""What a client does with bytes: requests made by kio, replies read by kio. None of the broker's own encoders.

A request is given in one vocabulary for all versions: names of any version, nested dicts, durations in milliseconds.
What the asked-for version does not have is left out.
"""

from datetime import timedelta
from functools import cache
from io import BytesIO
from typing import Any

from kio.serial import entity_reader, entity_writer

from respool.wire.api_table import API_TABLE, Api
from respool.wire.schema import response_class, schema_of
from respool.wire.schema_extensions import request_class

CORRELATION_ID = 77


def versions(api: Api) -> range:
    """Every version the broker says it serves."""
    spec = API_TABLE[api]
    return range(spec.version_min, spec.version_max + 1)


def encode_request(api: Api, version: int, **fields: Any) -> memoryview:
    """A request's frame, without its size."""
    body_class = request_class(api, version)
    header_class = body_class.__header_schema__
    header = header_class(
        request_api_key=api,
        request_api_version=version,
        correlation_id=CORRELATION_ID,
        client_id="tester",
    )
    buffer = BytesIO()
    entity_writer(header_class)(buffer, header)
    entity_writer(body_class)(buffer, _build(body_class, fields, _names(api)))
    return memoryview(buffer.getvalue())


def decode_reply(api: Api, version: int, frame: bytes) -> Any:
    """The body of a reply's frame, which must have the size it says and nothing after its body."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    body_class = response_class(api, version)
    header, position = entity_reader(body_class.__header_schema__)(frame, 4)
    assert header.correlation_id == CORRELATION_ID
    body, length = entity_reader(body_class)(frame, 4 + position)
    assert 4 + position + length == len(frame)
    return body


def _build(entity_class: Any, fields: dict[str, Any], known: dict[str, set[str]]) -> Any:
    misspelt = fields.keys() - known[entity_class.__name__]
    assert not misspelt, f"{entity_class.__name__} has no {misspelt} in any version"
    return entity_class(
        **{
            item.name: _value(item, fields[item.name], known)
            for item in schema_of(entity_class)
            if item.name in fields
        }
    )


def _value(item: Any, value: Any, known: dict[str, set[str]]) -> Any:
    if value is None:
        return None
    if item.is_array:
        return tuple(_one(item, one, known) for one in value)
    return _one(item, value, known)


def _one(item: Any, value: Any, known: dict[str, set[str]]) -> Any:
    if item.struct is not None:
        return _build(item.struct, value, known)
    if item.kind in ("timedelta_i32", "timedelta_i64"):
        return timedelta(milliseconds=value)
    return value


@cache
def _names(api: Api) -> dict[str, set[str]]:
    """The field names of each struct in an API's requests, over all versions served."""
    names: dict[str, set[str]] = {}

    def add(entity_class: Any) -> None:
        for item in schema_of(entity_class):
            names.setdefault(entity_class.__name__, set()).add(item.name)
            if item.struct is not None:
                add(item.struct)

    for version in versions(api):
        entity = request_class(api, version)
        names.setdefault(entity.__name__, set())
        add(entity)
    return names
