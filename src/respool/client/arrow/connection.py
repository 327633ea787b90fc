"""One connection to one broker, blocking: frames out, frames in, replies in the order of the requests.

    request   | size 4 | header | body          reply   | size 4 | correlation id 4 | body

Several requests may be on their way: `send` them, then `receive` as often. One thread may send while another receives.
A reply's bytes can go straight into a buffer that the caller keeps, since those of a fetch are many megabytes.

After any error the connection is closed for good: what would come next is unknown. `interrupt` may be called from any
thread and wakes whoever waits here; `close` is for the one that uses it, since the system gives a closed socket's
number to the next one, and a thread that still reads from it would take another connection's bytes.
"""

import select
import socket
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from threading import Lock
from typing import Any, Self

from respool.client.arrow.errors import (
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    ProtocolBroken,
    VersionUnsupported,
)
from respool.wire.api_table import API_TABLE, Api
from respool.wire.client_codec import correlation_id_of, decode_reply, encode_request
from respool.wire.errors import ProtocolViolation

# A fetch may ask for 2 GiB at most, and a batch that is larger than what was asked for comes whole.
FRAME_BYTES_MAX = 256 * 1024 * 1024

_SIZE = Struct(">i")
_ERROR_AT = 4
_ERROR = Struct(">h")
_UNSUPPORTED_VERSION = 35
# The oldest that names the client to the broker; brokers that do not know it answer with version 0.
_API_VERSIONS_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """How to speak to brokers; the same for all connections of a client."""

    client_id: str = "respool-arrow"
    connect_timeout_ms: int = 10_000
    # How long a broker may be silent while we wait for its reply, beyond what the request itself allows it to wait.
    request_timeout_ms: int = 30_000
    # A larger reply is not read: its sender is broken, or no broker.
    frame_bytes_max: int = FRAME_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    api: Api
    version: int
    correlation_id: int


class Connection:
    def __init__(self, address: tuple[str, int], settings: LinkSettings) -> None:
        """Not connected yet: `open` does that, and `interrupt` may already be called."""
        self.address = address
        self._settings = settings
        self._socket: socket.socket | None = None
        self._is_closed = False
        # Guards the sequence of requests: number, bytes on the wire and place in `_asked` go together.
        self._sending = Lock()
        self._asked: deque[_Asked] = deque()
        self._last_id = 0
        self._versions: dict[int, tuple[int, int]] = {}

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

    def fileno(self) -> int:
        """For `select`: readable when a reply begins, or the end has come."""
        if self._socket is None or self._is_closed:
            raise ClientClosed(f"the connection to {self._name} is closed")
        return self._socket.fileno()

    def open(self) -> None:
        """Connect, and ask which versions the broker speaks.

        Raises:
            BrokerUnreachable: there is nobody, or nobody who speaks Kafka's protocol.
        """
        assert self._socket is None
        try:
            self._connect()
            self._ask_versions()
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

    def version(self, api: Api, at_least: int, at_most: int) -> int:
        """The newest version in this range that the broker speaks.

        Raises:
            VersionUnsupported: there is none.
        """
        oldest, newest = self._versions.get(api, (0, -1))
        version = min(newest, at_most)
        if version < max(oldest, at_least):
            raise VersionUnsupported(
                f"{self._name} speaks {API_TABLE[api].name} {oldest} to {newest}, this client {at_least} to {at_most}"
            )
        return version

    # -- one after the other -------------------------------------------------------------------------------------------

    def request(
        self, api: Api, version: int, fields: Mapping[str, Any], *, wait_ms: int = 0
    ) -> Any:
        """Ask, and wait for the reply. Only where nobody else uses the connection.

        `wait_ms` is how long the request itself allows the broker to wait.

        Raises:
            ConnectionLost: there is no reply.
        """
        self.send(api, version, fields)
        return self.receive_reply(wait_ms=wait_ms)

    def send(
        self, api: Api, version: int, fields: Mapping[str, Any], *, has_reply: bool = True
    ) -> None:
        """Send a request. `has_reply` is False for Produce with acks=0, which brokers do not answer.

        Raises:
            ConnectionLost: it could not be sent, or only a part of it.
        """
        with self._sending:
            self._last_id = (self._last_id + 1) % 2**31
            frame = encode_request(
                api,
                version,
                fields,
                correlation_id=self._last_id,
                client_id=self._settings.client_id,
            )
            asked = _Asked(api=api, version=version, correlation_id=self._last_id)
            if has_reply:
                # Before the bytes leave: the reply may be there before `sendall` returns.
                self._asked.append(asked)
            try:
                self._live().sendall(frame)
            except OSError as error:
                raise self._lost(f"while sending {API_TABLE[api].name}", error) from error

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
            self.close()
            raise ProtocolBroken(f"{self._name}: {error}") from error

    def receive(self, into: bytearray | None = None, *, wait_ms: int = 0) -> memoryview:
        """The frame of the reply to the oldest request, without its size: header and body, as they came.

        With `into` the bytes lie in that buffer, which grows when it must; else in one of their own. A buffer must not
        be given again while somebody still looks into it.

        Raises:
            ConnectionLost: there is none.
        """
        asked = self._oldest()
        head = bytearray(_SIZE.size)
        self._await_reply((self._settings.request_timeout_ms + wait_ms) / 1000)
        self._fill(memoryview(head))
        (size,) = _SIZE.unpack(head)
        if not _SIZE.size <= size <= self._settings.frame_bytes_max:
            self.close()
            raise ProtocolBroken(
                f"{self._name} announced a reply of {size} bytes; from {_SIZE.size} to "
                f"{self._settings.frame_bytes_max} are taken"
            )
        if into is None:
            into = bytearray(size)
        elif len(into) < size:
            # At once to the size needed, not byte by byte.
            into.extend(bytes(size - len(into)))
        frame = memoryview(into)[:size]
        self._fill(frame)
        answered = correlation_id_of(bytes(frame[: _SIZE.size]))
        if answered != asked.correlation_id:
            self.close()
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
        reason: OSError | None = None
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
            except OSError as error:
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
            # KIP-511: an older broker says so in the oldest form, with its versions.
            version = 0
        try:
            reply = decode_reply(Api.API_VERSIONS, version, frame)
        except ProtocolViolation as error:
            raise ProtocolBroken(f"{self._name} is no Kafka broker: {error}") from error
        self._versions = {one.api_key: (one.min_version, one.max_version) for one in reply.api_keys}

    def _oldest(self) -> _Asked:
        try:
            return self._asked[0]
        except IndexError:
            raise AssertionError("nothing was asked that could be answered") from None

    def _live(self) -> socket.socket:
        if self._socket is None or self._is_closed:
            raise ClientClosed(f"the connection to {self._name} is closed")
        return self._socket

    def _await_reply(self, seconds: float) -> None:
        """Wait for a reply's first byte. The socket's own timeout is too short for a request that lets brokers wait."""
        poll = select.poll()
        poll.register(self._live(), select.POLLIN)
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
        self.close()
        if was_interrupted:
            return ClientClosed(f"the connection to {self._name} is closed")
        return ConnectionLost(
            f"{self._name} {'closed the connection' if error is None else f'is lost: {error}'}; {when}"
        )
