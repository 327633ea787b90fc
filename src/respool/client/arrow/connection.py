"""One connection to one broker, blocking: frames out, frames in, replies in the order of the requests.

    request   | size 4 | header | body          reply   | size 4 | correlation id 4 | body

Several requests may be on their way: `send` them, then `receive` as often. One thread may send while another receives.
A reply's bytes can go straight into a buffer that the caller keeps, since those of a fetch are many megabytes.

After any error nothing more goes through: what would come next is unknown. `interrupt` may be called from any
thread and wakes whoever waits here; `close` is for the one that uses it, since the system gives a closed socket's
number to the next one, and a thread that still reads from it would take another connection's bytes.
"""

import select
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from respool.client.arrow.errors import (
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    LoginRefused,
    ProtocolBroken,
    TlsRefused,
    VersionUnsupported,
)
from respool.client.arrow.handshake import LoginApi, log_in, sealed, words_of_tls
from respool.client.arrow.security import IN_THE_CLEAR, Security
from respool.wire.api_table import API_TABLE, Api
from respool.wire.client_codec import (
    correlation_id_of,
    decode_reply,
    encode_request,
    request_head,
)
from respool.wire.errors import ProtocolViolation

if TYPE_CHECKING:
    from respool.client.arrow.tls_line import TlsLine

# A fetch may ask for 2 GiB at most, and a batch that is larger than what was asked for comes whole.
FRAME_BYTES_MAX = 256 * 1024 * 1024

Buffer: TypeAlias = bytes | bytearray | memoryview

# The kernel takes this many pieces at once (IOV_MAX).
_PIECES_MAX = 1_024

_SIZE = Struct(">i")
_ERROR_AT = 4
_ERROR = Struct(">h")
_UNSUPPORTED_VERSION = 35
# It names the client and tells all features; in 3 some are left out (KAFKA-17011). Who does not know it is asked again.
_API_VERSIONS_VERSION = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """How to speak to brokers; the same for all connections of a client."""

    client_id: str = "respool-arrow"
    connect_timeout_ms: int = 10_000
    # How long a broker may be silent while we wait for its reply, beyond what the request itself allows it to wait.
    request_timeout_ms: int = 30_000
    # A larger reply is not read: its sender is broken, or no broker.
    frame_bytes_max: int = FRAME_BYTES_MAX
    security: Security = IN_THE_CLEAR


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    api: Api | LoginApi
    version: int
    correlation_id: int


class ReplyBuffer:
    """Memory for one reply after the other: many megabytes are not asked of the system for each."""

    def __init__(self, keep_bytes_max: int = 64 * 1024 * 1024) -> None:
        self._bytes = bytearray()
        self._keep_bytes_max = keep_bytes_max

    def room(self, size: int) -> memoryview:
        if size > self._keep_bytes_max:
            # Larger than usual: it goes when it was read.
            return memoryview(bytearray(size))
        if size > len(self._bytes):
            # A new one, not the old one enlarged: somebody may still look into that.
            self._bytes = bytearray(size)
        return memoryview(self._bytes)[:size]


class Connection:
    def __init__(self, address: tuple[str, int], settings: LinkSettings) -> None:
        """Not connected yet: `open` does that, and `interrupt` may already be called."""
        self.address = address
        self._settings = settings
        self._socket: socket.socket | TlsLine | None = None
        self._is_closed = False
        # Whether its other end has an address of this machine: the same as ours.
        self.is_near = False
        # Guards the sequence of requests: number, bytes on the wire and place in `_asked` go together.
        self._sending = Lock()
        self._asked: deque[_Asked] = deque()
        self._last_id = 0
        self._versions: dict[int, tuple[int, int]] = {}
        # What the whole cluster has agreed on, by name: "transaction.version" and such.
        self.features: Mapping[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        return self._socket is not None and not self._is_closed

    @property
    def is_fresh(self) -> bool:
        """Open, and not ended unseen while it was idle: brokers close connections that nobody uses for long."""
        if not self.is_open:
            return False
        poll = select.poll()
        poll.register(self._live(), select.POLLIN)
        return bool(self._asked) or not poll.poll(0)

    @property
    def in_flight(self) -> int:
        """Requests that have no reply yet."""
        return len(self._asked)

    @property
    def reply_bytes_max(self) -> int:
        return self._settings.frame_bytes_max

    def fileno(self) -> int:
        """For `select`: readable when a reply begins, or the end has come."""
        if self._socket is None or self._is_closed:
            raise ClientClosed(f"the connection to {self._name} is closed")
        return self._socket.fileno()

    def open(self) -> None:
        """Connect, ask which versions the broker speaks, and log in where that is wanted.

        Raises:
            BrokerUnreachable: there is nobody, or nobody who speaks Kafka's protocol.
            TlsRefused, LoginRefused: there is no trust between us.
        """
        assert self._socket is None
        login = self._settings.security.login
        try:
            self._connect()
            self._ask_versions()
            if login is not None:
                log_in(self, login)
        except (LoginRefused, TlsRefused) as error:
            self.close()
            raise type(error)(f"{self._name}: {error}") from error
        except ConnectionLost as error:
            self.close()
            if (words := words_of_tls(error)) is not None:
                raise TlsRefused(f"{self._name}: {words}") from error
            raise
        except BaseException:
            self.close()
            raise

    def interrupt(self) -> None:
        """Have whoever waits here, in any thread, wake with `ClientClosed`; nothing more is sent or received."""
        self._is_closed = True
        line = self._socket
        if line is not None:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._is_closed = True
        if self._socket is not None:
            self._socket.close()

    def speaks(self, api: Api | LoginApi) -> bool:
        """Whether the broker knows this request at all."""
        return api in self._versions

    def version(self, api: Api | LoginApi, at_least: int, at_most: int) -> int:
        """The newest version in this range that the broker speaks.

        Raises:
            VersionUnsupported: there is none.
        """
        oldest, newest = self._versions.get(api, (0, -1))
        version = min(newest, at_most)
        if version < max(oldest, at_least):
            raise VersionUnsupported(
                f"{self._name} speaks {_text_of(api)} {oldest} to {newest}, this client {at_least} to {at_most}"
            )
        return version

    # -- one after the other -------------------------------------------------------------------------------------------

    def request(
        self, api: Api | LoginApi, version: int, fields: Mapping[str, Any], *, wait_ms: int = 0
    ) -> Any:
        """Ask, and wait for the reply. Only where nobody else uses the connection.

        `wait_ms` is how long the request itself allows the broker to wait.

        Raises:
            ConnectionLost: there is no reply.
        """
        self.send(api, version, fields)
        return self.receive_reply(wait_ms=wait_ms)

    def send(
        self,
        api: Api | LoginApi,
        version: int,
        fields: Mapping[str, Any],
        *,
        has_reply: bool = True,
    ) -> int:
        """Send a request, and return its number. `has_reply` is False for Produce with acks=0: brokers do not answer.

        Raises:
            ConnectionLost: it could not be sent, or only a part of it.
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
        """Send a request whose body is given in pieces, already encoded; they are not joined. Else as `send`.

        `on_begin` is called before the first byte leaves: from then on another thread may wait for the reply.
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
        """The reply to the oldest request, decoded.

        Raises:
            ConnectionLost: there is none.
        """
        asked = self._oldest()
        frame = self.receive(wait_ms=wait_ms)
        try:
            return decode_reply(asked.api, asked.version, bytes(frame))
        except ProtocolViolation as error:
            self.interrupt()
            raise ProtocolBroken(f"{self._name}: {error}") from error

    def receive(self, into: "ReplyBuffer | None" = None, *, wait_ms: int = 0) -> memoryview:
        """The frame of the reply to the oldest request, without its size: header and body, as they came.

        With `into` the bytes lie in that buffer until it is given again; else in memory of their own.

        Raises:
            ConnectionLost: there is none.
        """
        asked = self._oldest()
        head = bytearray(_SIZE.size)
        self._await_reply((self._settings.request_timeout_ms + wait_ms) / 1000)
        self._fill(memoryview(head))
        (size,) = _SIZE.unpack(head)
        if not _SIZE.size <= size <= self._settings.frame_bytes_max:
            self.interrupt()
            raise ProtocolBroken(
                f"{self._name} announced a reply of {size} bytes; from {_SIZE.size} to "
                f"{self._settings.frame_bytes_max} are taken"
            )
        frame = (into or ReplyBuffer()).room(size)
        self._fill(frame)
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
        host, port = self.address
        return f"{host}:{port}"

    def _connect(self) -> None:
        reason: OSError | BrokerUnreachable | None = None
        try:
            choices = socket.getaddrinfo(*self.address, type=socket.SOCK_STREAM)
        except OSError as error:
            raise BrokerUnreachable(f"{self._name}: {error}") from error
        for family, kind, protocol, _, place in choices:
            if self._is_closed:
                break
            # Kept before it is connected, so that `interrupt` ends the attempt.
            self._socket = socket.socket(family, kind, protocol)
            try:
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket.settimeout(self._settings.connect_timeout_ms / 1000)
                self._socket.connect(place)
                self.is_near = self._socket.getsockname()[0] == self._socket.getpeername()[0]
                if (tls := self._settings.security.tls) is not None:
                    self._socket = sealed(self._socket, tls, self.address[0])
            except (OSError, BrokerUnreachable) as error:
                self._socket.close()
                reason = error
            else:
                self._socket.settimeout(self._settings.request_timeout_ms / 1000)
                return
        if self._is_closed:
            raise ClientClosed(f"the connection to {self._name} is closed")
        raise BrokerUnreachable(f"no connection to {self._name}: {reason}") from reason

    def _ask_versions(self) -> None:
        fields = {"client_software_name": "respool", "client_software_version": "0.1.0"}
        self.send(Api.API_VERSIONS, _API_VERSIONS_VERSION, fields)
        frame = bytes(self.receive())
        version = _API_VERSIONS_VERSION
        if len(frame) >= 6 and _ERROR.unpack_from(frame, _ERROR_AT)[0] == _UNSUPPORTED_VERSION:
            # KIP-511: an older broker says so in the oldest form, which each can read, and is asked again in that.
            version = 0
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

    def _next(self, api: Api | LoginApi, version: int) -> _Asked:
        self._last_id = (self._last_id + 1) % 2**31
        return _Asked(api=api, version=version, correlation_id=self._last_id)

    def _send_all(
        self,
        asked: _Asked,
        views: list[memoryview],
        *,
        has_reply: bool,
        on_begin: Callable[[], None] | None = None,
    ) -> None:
        line = self._live()
        if has_reply:
            # Before the bytes leave: the reply may be there before the last of them is sent.
            self._asked.append(asked)
        if on_begin is not None:
            on_begin()
        try:
            _send_all(line, views)
        except OSError as error:
            raise self._lost(f"while {_text_of(asked.api)} was sent", error) from error

    def _oldest(self) -> _Asked:
        try:
            return self._asked[0]
        except IndexError:
            raise AssertionError("nothing was asked that could be answered") from None

    def _live(self) -> "socket.socket | TlsLine":
        if self._socket is None or self._is_closed:
            raise ClientClosed(f"the connection to {self._name} is closed")
        return self._socket

    def _await_reply(self, seconds: float) -> None:
        """Wait for a reply's first byte. The socket's own timeout is too short for a request that lets brokers wait."""
        line = self._live()
        if getattr(line, "has_pending", False):
            return
        poll = select.poll()
        poll.register(line, select.POLLIN)
        if not poll.poll(seconds * 1000):
            raise self._lost(f"it was silent for {seconds:g} s", TimeoutError("no reply"))

    def _fill(self, target: memoryview) -> None:
        """Receive until the target is full."""
        line = self._live()
        have = 0
        try:
            while have < len(target):
                got = line.recv_into(target[have:])
                if not got:
                    raise self._lost(f"{have} of {len(target)} bytes of a reply had come", None)
                have += got
        except OSError as error:
            raise self._lost(f"{have} of {len(target)} bytes of a reply had come", error) from error

    def _lost(self, when: str, error: OSError | None) -> ConnectionLost | ClientClosed:
        was_interrupted = self._is_closed
        # One thread may be sending while another receives: both must learn of it. Whoever owns it closes it.
        self.interrupt()
        if was_interrupted:
            return ClientClosed(f"the connection to {self._name} is closed")
        return ConnectionLost(
            f"{self._name} {'closed the connection' if error is None else f'is lost: {error}'}; {when}"
        )


def _text_of(api: Api | LoginApi) -> str:
    return api.name if isinstance(api, LoginApi) else API_TABLE[api].name


def _send_all(line: "socket.socket | TlsLine", views: list[memoryview]) -> None:
    while views:
        sent = line.sendmsg(views[:_PIECES_MAX])
        done = 0
        while done < len(views) and sent >= views[done].nbytes:
            sent -= views[done].nbytes
            done += 1
        views = views[done:]
        if sent:
            views[0] = views[0][sent:]
