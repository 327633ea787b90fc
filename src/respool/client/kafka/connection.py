"""A blocking connection to one broker: request frames out, reply frames in, in the order of the requests.

    request   | size 4 | header | body          reply   | size 4 | correlation id 4 | body

Several requests may be in flight: call `send` for each, then `receive` equally often. One thread may send while another
receives. A reply can be received directly into a buffer of the caller, since fetch replies are many megabytes.

After any error the connection is unusable, since the position in the stream is unknown. `Link` documents which thread
may close it.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from threading import Lock
from typing import Any, Self, TypeAlias

from respool.client.kafka.codes import Code
from respool.client.kafka.errors import (
    ConnectionLost,
    LoginRefused,
    ProtocolBroken,
    TlsRefused,
    VersionUnsupported,
)
from respool.client.kafka.sasl import authenticate
from respool.client.kafka.transport import Link, LinkSettings
from respool.client.kafka.versions import VERSIONS, VersionRange
from respool.wire.api_table import API_TABLE, Api
from respool.wire.client_codec import (
    correlation_id_of,
    decode_reply,
    encode_request,
    request_head,
)
from respool.wire.protocol_errors import ProtocolViolation

Buffer: TypeAlias = bytes | bytearray | memoryview

_SIZE = Struct(">i")
_ERROR_AT = 4
_ERROR = Struct(">h")


@dataclass(frozen=True, slots=True, kw_only=True)
class _SentHeader:
    api: Api
    version: int
    correlation_id: int


class ReplyBuffer:
    """Memory that successive replies reuse, so that large replies do not allocate each time."""

    def __init__(self, keep_bytes_max: int = 64 * 1024 * 1024) -> None:
        self._bytes = bytearray()
        self._keep_bytes_max = keep_bytes_max

    def room(self, size: int) -> memoryview:
        if size > self._keep_bytes_max:
            # Larger than usual, so not kept.
            return memoryview(bytearray(size))
        if size > len(self._bytes):
            # Allocate, not resize: a view of the old buffer may still be in use.
            self._bytes = bytearray(size)
        return memoryview(self._bytes)[:size]


class Connection:
    def __init__(self, address: tuple[str, int], settings: LinkSettings) -> None:
        """Does not connect: `open` does. `interrupt` may be called even before that."""
        self._settings = settings
        self._link = Link(address, settings)
        # Keeps the order of correlation ids, bytes on the wire and entries in `_asked` the same.
        self._sending = Lock()
        self._asked: deque[_SentHeader] = deque()
        self._last_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        # The cluster's finalized features by name, such as "transaction.version".
        self.features: Mapping[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> tuple[str, int]:
        return self._link.address

    @property
    def is_on_this_host(self) -> bool:
        """Whether the broker's address belongs to this machine."""
        return self._link.is_on_this_host

    @property
    def is_open(self) -> bool:
        return self._link.is_open

    @property
    def is_fresh(self) -> bool:
        """Open, and not closed by the broker while idle: brokers close idle connections."""
        return self._link.is_open and (bool(self._asked) or self._link.is_quiet)

    @property
    def in_flight(self) -> int:
        """The number of requests without a reply."""
        return len(self._asked)

    @property
    def reply_bytes_max(self) -> int:
        return self._settings.frame_bytes_max

    def fileno(self) -> int:
        """For `select`: readable when a reply begins or the connection has ended."""
        return self._link.fileno()

    def has_reply(self, seconds: float) -> bool:
        """True if a reply begins, or the connection ends, within that time."""
        return self._link.is_readable(seconds)

    def open(self) -> None:
        """Connect, fetch the broker's API versions, and log in if that is configured.

        Raises:
            BrokerUnreachable: nothing listens there, or it does not speak Kafka's protocol.
            TlsRefused, LoginRefused: TLS or the login failed.
        """
        login = self._settings.security.login
        try:
            self._link.connect()
            self._request_versions()
            if login is not None:
                authenticate(self, login)
        except (LoginRefused, TlsRefused) as error:
            self.close()
            raise type(error)(f"{self._name}: {error}") from error
        except ConnectionLost as error:
            self.close()
            if self._settings.security.tls is not None:
                from respool.client.kafka.tls import tls_alert

                if (alert := tls_alert(error)) is not None:
                    raise TlsRefused(f"{self._name}: {alert}") from error
            raise
        except BaseException:
            self.close()
            raise

    def interrupt(self) -> None:
        """Make every thread that waits here raise `ClientClosed`; nothing more is sent or received."""
        self._link.interrupt()

    def close(self) -> None:
        self._link.close()

    def speaks(self, api: Api) -> bool:
        """Whether the broker supports this request at all."""
        return api in self._versions

    def version(self, api: Api, versions: VersionRange | None = None) -> int:
        """The newest version that the broker supports within `versions`, by default the range in `VERSIONS`.

        Raises:
            VersionUnsupported: there is no common version.
        """
        at_least, at_most = VERSIONS[api] if versions is None else versions
        oldest, newest = self._versions.get(api, (0, -1))
        version = min(newest, at_most)
        if version < max(oldest, at_least):
            raise VersionUnsupported(
                f"{self._name} speaks {_text_of(api)} {oldest} to {newest}, this client {at_least} to {at_most}"
            )
        return version

    # -- one after the other -------------------------------------------------------------------------------------------

    def request(
        self, api: Api, version: int, fields: Mapping[str, Any], *, wait_ms: int = 0
    ) -> Any:
        """Send a request and wait for its reply. Only for a connection that no other thread uses.

        `wait_ms` is how long the request itself allows the broker to wait.

        Raises:
            ConnectionLost: no reply came.
        """
        self.send(api, version, fields)
        return self.receive_reply(wait_ms=wait_ms)

    def request_all(self, *requests: tuple[Api, Mapping[str, Any]]) -> list[Any]:
        """Send all requests before waiting for the first reply; return the replies.

        The broker handles them one after the other, with hardly any time in between for other clients.

        Raises:
            ConnectionLost: a reply did not come.
        """
        for api, fields in requests:
            self.send(api, self.version(api), fields)
        return [self.receive_reply() for _ in requests]

    def send(
        self,
        api: Api,
        version: int,
        fields: Mapping[str, Any],
        *,
        has_reply: bool = True,
    ) -> int:
        """Send a request; return its correlation id. `has_reply` is False for Produce with acks=0, which has no reply.

        Raises:
            ConnectionLost: the request could not be sent, or only a part of it.
        """
        with self._sending:
            asked = self._next(api, version)
            frame = encode_request(
                api,
                version,
                fields,
                correlation_id=asked.correlation_id,
                client_id=self._settings.client_id,
            )
            self._send_all(asked, [memoryview(frame)], has_reply=has_reply)
        return asked.correlation_id

    def send_parts(
        self,
        api: Api,
        version: int,
        parts: Sequence[Buffer],
        *,
        has_reply: bool = True,
        on_begin: Callable[[], None] | None = None,
    ) -> int:
        """Send a request whose encoded body is given in parts, without joining them. Otherwise like `send`.

        `on_begin` is called before the first byte is sent: from then on another thread may wait for the reply.
        """
        with self._sending:
            asked = self._next(api, version)
            views = [memoryview(part).cast("B") for part in parts]
            head = request_head(
                api,
                version,
                correlation_id=asked.correlation_id,
                client_id=self._settings.client_id,
                body_bytes=sum(view.nbytes for view in views),
            )
            self._send_all(
                asked, [memoryview(head), *views], has_reply=has_reply, on_begin=on_begin
            )
        return asked.correlation_id

    def receive_reply(self, *, wait_ms: int = 0) -> Any:
        """The decoded reply to the oldest request in flight.

        Raises:
            ConnectionLost: no reply came.
        """
        asked = self._oldest()
        frame = self.receive(wait_ms=wait_ms)
        try:
            return decode_reply(asked.api, asked.version, bytes(frame))
        except ProtocolViolation as error:
            self.interrupt()
            raise ProtocolBroken(f"{self._name}: {error}") from error

    def receive(self, into: ReplyBuffer | None = None, *, wait_ms: int = 0) -> memoryview:
        """Receive the reply to the oldest request as raw header and body, without the size.

        With `into`, the frame is valid until the next call with that buffer; otherwise it has its own memory.

        Raises:
            ConnectionLost: no reply came.
        """
        asked = self._oldest()
        head = bytearray(_SIZE.size)
        self._link.wait((self._settings.request_timeout_ms + wait_ms) / 1000)
        self._link.fill(memoryview(head))
        (size,) = _SIZE.unpack(head)
        if not _SIZE.size <= size <= self._settings.frame_bytes_max:
            self.interrupt()
            raise ProtocolBroken(
                f"{self._name} announced a reply of {size} bytes; from {_SIZE.size} to "
                f"{self._settings.frame_bytes_max} are taken"
            )
        frame = (into or ReplyBuffer()).room(size)
        self._link.fill(frame)
        answered = correlation_id_of(bytes(frame[: _SIZE.size]))
        if answered != asked.correlation_id:
            self.interrupt()
            raise ProtocolBroken(
                f"{self._name} answered request {answered}, not {asked.correlation_id} as is its turn"
            )
        self._asked.popleft()
        return frame

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return self._link.name

    def _request_versions(self) -> None:
        fields = {"client_software_name": "respool", "client_software_version": "0.1.0"}
        oldest, version = VERSIONS[Api.API_VERSIONS]
        self.send(Api.API_VERSIONS, version, fields)
        frame = bytes(self.receive())
        if len(frame) >= 6 and _ERROR.unpack_from(frame, _ERROR_AT)[0] == Code.unsupported_version:
            # KIP-511: an older broker answers in version 0, which every client can read; ask again in that version.
            version = oldest
            self.send(Api.API_VERSIONS, version, {})
            frame = bytes(self.receive())
        try:
            reply = decode_reply(Api.API_VERSIONS, version, frame)
        except ProtocolViolation as error:
            raise ProtocolBroken(f"{self._name} is no Kafka broker: {error}") from error
        self._versions = {one.api_key: (one.min_version, one.max_version) for one in reply.api_keys}
        self.features = {
            str(one.name): int(one.max_version_level)
            for one in getattr(reply, "finalized_features", None) or ()
        }

    def _next(self, api: Api, version: int) -> _SentHeader:
        self._last_id = (self._last_id + 1) % 2**31
        return _SentHeader(api=api, version=version, correlation_id=self._last_id)

    def _send_all(
        self,
        asked: _SentHeader,
        views: list[memoryview],
        *,
        has_reply: bool,
        on_begin: Callable[[], None] | None = None,
    ) -> None:
        self._link.check_open()
        if has_reply:
            # Before sending: the reply may arrive before the last byte is sent.
            self._asked.append(asked)
        if on_begin is not None:
            on_begin()
        self._link.send(views, what=_text_of(asked.api))

    def _oldest(self) -> _SentHeader:
        try:
            return self._asked[0]
        except IndexError:
            raise AssertionError("nothing was asked that could be answered") from None


def _text_of(api: Api) -> str:
    return API_TABLE[api].name
