"""Frames -> requests, and replies -> frames, for every API in the table.

```
request   | api key 2 | version 2 | correlation id 4 | client id, length 2 | [tagged fields] | body ...
reply     | size 4 | correlation id 4 | [tagged fields] | body ...
```
Flexible versions have tagged fields (header 2 of a request, header 1 of a reply). Two exceptions: the client id's
length has 2 bytes in every version, and an ApiVersions reply never has tagged fields in its header, because a client
must be able to read it before it knows the broker's versions (KIP-511).
"""

import struct
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from struct import Struct
from typing import Any, NamedTuple

from kio.serial import entity_writer

from respool.model.errors import UnsupportedVersion
from respool.model.security.principal import NO_SESSION, ClientSession
from respool.wire.api_table import API_TABLE, Api, ApiSpec
from respool.wire.protocol_errors import RequestMalformed, UnsupportedApi
from respool.wire.reply_errors import codes_of, with_errors
from respool.wire.schema import Entity, EntityClass, is_flexible
from respool.wire.schema_extensions import request_class, written_reply_class
from respool.wire.shape import shape
from respool.wire.walk import EntityDecoder, decoder_of, skip_tagged_fields

_HEAD = Struct(">hhi")
_CLIENT_ID_LENGTH = Struct(">h")
_CLIENT_ID_AT = _HEAD.size + _CLIENT_ID_LENGTH.size
_REPLY_HEAD = Struct(">ii")
_FALLBACK = Struct(">iihihhh")


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    api: ApiSpec
    version: int
    correlation_id: int
    client_id: str | None
    # An entity of kio's class for this API and version; it shares no memory with the frame.
    body: Entity
    # Size of its frame.
    size: int
    # The client's address in Kafka's format: "/127.0.0.1". Set by the connection.
    client_host: str = ""
    # Who sends it, as far as the connection proved it. Set by the connection.
    session: ClientSession = NO_SESSION
    # How long the client has to wait after the reply, as it is over a quota. Set by `broker/quotas.py`.
    throttle_ms: int = 0
    # Identifies the connection, for what belongs to it. Set by the connection.
    connection: object = None
    # True if the reply is for a follower. Set by the handler: see `broker/memory.py`.
    is_of_follower: bool = False
    # True if its coroutine waits for others: data, group members, brokers. Set by the handler: see `server/traffic.py`.
    waits_for_others: bool = False


def decode_request(frame: memoryview) -> Request:
    """Decode a request from a read-only view. Bytes after the body are ignored, as in Kafka's broker.

    Raises:
        UnsupportedApi: the API is not in the table, or not in this version.
        RequestMalformed: header or body are malformed.
    """
    assert frame.readonly
    try:
        key, version, correlation_id = _HEAD.unpack_from(frame)
        route = _ROUTES.get((key, version))
        if route is None:
            route = _find_route(key, version, correlation_id)
        position = _CLIENT_ID_AT
        (length,) = _CLIENT_ID_LENGTH.unpack_from(frame, _HEAD.size)
        client_id = None
        if length >= 0:
            position += length
            client_id = str(frame[_CLIENT_ID_AT:position], "utf-8")
        if route.is_flexible:
            # Nearly always there are none, encoded as one zero byte.
            position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
    except (struct.error, IndexError, ValueError) as error:
        raise RequestMalformed(
            f"no request header in a frame of {len(frame)} bytes: {error}"
        ) from None
    return Request(
        api=route.api,
        version=version,
        correlation_id=correlation_id,
        client_id=client_id,
        body=route.decoder.decode(frame, position),
        size=len(frame),
    )


def encode_reply(request: Request, fields: Mapping[str, Any]) -> bytes:
    """Encode a whole reply frame, including its size, from fields as in `shape`.

    Raises:
        TypeError: the fields do not match the reply.
    """
    reply_class, header_bytes, write = _reply_form(request.api.key, request.version)
    if request.throttle_ms and "throttle_time" in fields:
        fields = {**fields, "throttle_time": request.throttle_ms}
    entity = shape(reply_class, fields)
    buffer = BytesIO()
    buffer.write(b"\0" * header_bytes)
    write(buffer, entity)
    frame = buffer.getbuffer()
    _REPLY_HEAD.pack_into(frame, 0, len(frame) - 4, request.correlation_id)
    frame.release()
    return with_errors(buffer.getvalue(), codes_of(entity))


def api_versions_fallback(correlation_id: int) -> bytes:
    """The reply to an ApiVersions request with an unknown version: in version 0, which every client can read.

    It has UNSUPPORTED_VERSION and the versions of ApiVersions; the client then retries (KIP-511).
    """
    spec = API_TABLE[Api.API_VERSIONS]
    return _FALLBACK.pack(
        _FALLBACK.size - 4,
        correlation_id,
        UnsupportedVersion.code,
        1,
        spec.key,
        spec.advertised_min,
        spec.version_max,
    )


class _Route(NamedTuple):
    api: ApiSpec
    is_flexible: bool
    decoder: EntityDecoder


# Filled on demand: importing all of kio's classes takes about half a second.
_ROUTES: dict[tuple[int, int], _Route] = {}


def _find_route(key: int, version: int, correlation_id: int) -> _Route:
    spec = API_TABLE.get(key)
    if spec is None or not spec.serves(version):
        raise UnsupportedApi(key=key, version=version, correlation_id=correlation_id)
    body_class = request_class(key, version)
    route = _Route(
        api=spec,
        is_flexible=is_flexible(body_class.__header_schema__),
        decoder=decoder_of(body_class),
    )
    _ROUTES[key, version] = route
    return route


@cache
def _reply_form(
    key: int, version: int
) -> tuple[EntityClass, int, Callable[[BytesIO, Entity], None]]:
    """The reply's class, the bytes before its body, and the body's writer."""
    reply_class = written_reply_class(key, version)
    # An empty section of tagged fields is one zero byte.
    header_bytes = _REPLY_HEAD.size + (1 if is_flexible(reply_class.__header_schema__) else 0)
    return reply_class, header_bytes, entity_writer(reply_class)


TEMPLATES_MAX = 1_024
# Larger replies rarely repeat.
TEMPLATE_BYTES_MAX = 1_024

_HEAD_BYTES = 8
_CORRELATION_ID = Struct(">i")
_CORRELATION_ID_AT = 4


class ReplyTemplates:
    """Cache for repeated replies of one API, such as success: only the correlation id differs.

    kio's encoder takes 15 to 20 us for a small reply, and heartbeats and EndTxn requests are acknowledged
    thousands of times a second. Equal `words` in one version mean equal replies.
    """

    def __init__(self, *, templates_max: int = TEMPLATES_MAX) -> None:
        self._templates_max = templates_max
        self._templates: dict[tuple[int, Hashable], bytes] = {}

    def __len__(self) -> int:
        return len(self._templates)

    def encode(
        self, request: Request, words: Hashable, fields: Callable[[], Mapping[str, Any]]
    ) -> bytes:
        """Return the whole reply frame; `fields` is called only for new `words`."""
        if request.throttle_ms:
            return encode_reply(request, fields())
        key = (request.version, words)
        template = self._templates.get(key)
        if template is None:
            frame = encode_reply(request, fields())
            if len(frame) <= TEMPLATE_BYTES_MAX:
                self._keep(key, frame)
            return frame
        return b"".join(
            (
                template[:_CORRELATION_ID_AT],
                _CORRELATION_ID.pack(request.correlation_id),
                template[_HEAD_BYTES:],
            )
        )

    def _keep(self, key: tuple[int, Hashable], frame: bytes) -> None:
        if len(self._templates) >= self._templates_max:
            # Evict the oldest one.
            del self._templates[next(iter(self._templates))]
        # As plain bytes: replies with errors are not cached.
        self._templates[key] = bytes(frame)
