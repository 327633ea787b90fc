"""The client side of the protocol: requests -> frames, frames -> replies. For our own tools.

```
request   | size 4 | api key 2 | version 2 | correlation id 4 | client id, length 2 | [tagged fields] | body ...
reply     | correlation id 4 | [tagged fields] | body ...                       (its size was read already)
```
Used for what no client library offers: administrative requests, and batches with a given producer id and sequence.
"""

from collections.abc import Mapping
from io import BytesIO
from struct import Struct
from typing import Any

from kio.serial import entity_writer

from respool.wire.protocol_errors import RequestMalformed
from respool.wire.schema import Entity, is_flexible
from respool.wire.schema_extensions import reply_class, request_class
from respool.wire.shape import shape
from respool.wire.walk import decoder_of, skip_tagged_fields

_SIZE = Struct(">i")
_HEAD = Struct(">hhih")
_CORRELATION_ID = Struct(">i")


def encode_request(
    key: int, version: int, fields: Mapping[str, Any], *, correlation_id: int, client_id: str
) -> bytes:
    """Encode a whole request, including its size. The fields are those of this version, as in `shape`.

    Raises:
        TypeError: a field is missing or does not exist in this version.
    """
    body_class = request_class(key, version)
    client = client_id.encode()
    buffer = BytesIO()
    buffer.write(b"\0" * _SIZE.size)
    buffer.write(_HEAD.pack(key, version, correlation_id, len(client)))
    buffer.write(client)
    if is_flexible(body_class.__header_schema__):
        buffer.write(b"\0")
    entity_writer(body_class)(buffer, shape(body_class, fields))
    with buffer.getbuffer() as frame:
        _SIZE.pack_into(frame, 0, len(frame) - _SIZE.size)
    return buffer.getvalue()


def request_head(
    key: int, version: int, *, correlation_id: int, client_id: str, body_bytes: int
) -> bytes:
    """Everything before a body of that size, which the caller encodes."""
    client = client_id.encode()
    tags = b"\0" if is_flexible(request_class(key, version).__header_schema__) else b""
    head = _HEAD.pack(key, version, correlation_id, len(client)) + client + tags
    return _SIZE.pack(len(head) + body_bytes) + head


def correlation_id_of(frame: bytes | memoryview) -> int:
    """The correlation id of a reply frame without its size.

    Raises:
        RequestMalformed: it is too short for a reply.
    """
    if len(frame) < _CORRELATION_ID.size:
        raise RequestMalformed(f"a reply of {len(frame)} bytes")
    (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
    return int(correlation_id)


def decode_reply(key: int, version: int, frame: bytes | memoryview) -> Entity:
    """Decode the body of a reply frame without its size.

    Raises:
        RequestMalformed: the bytes are not such a reply.
    """
    body_class = reply_class(key, version)
    view = memoryview(frame)
    position = _CORRELATION_ID.size
    if is_flexible(body_class.__header_schema__):
        try:
            position = skip_tagged_fields(view, position)
        except (IndexError, ValueError) as error:
            raise RequestMalformed(f"no reply header in {len(frame)} bytes: {error}") from None
    return decoder_of(body_class).decode(view, position)
