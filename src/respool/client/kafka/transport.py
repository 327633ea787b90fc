"""Transfers bytes to and from one broker over a socket, plaintext or TLS, with timeouts.

One thread may send while another receives. `interrupt` may be called from any thread and wakes every thread that waits
here. `close` may be called only by the thread that uses the connection: the system reuses a closed socket's descriptor,
so a thread that still reads from it would take another connection's bytes.
"""

import select
import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from respool.client.kafka.bootstrap import FIRST_CONNECT_MS, why_no_connection
from respool.client.kafka.errors import BrokerUnreachable, ClientClosed, ConnectionLost, NoReply
from respool.client.kafka.security import IN_THE_CLEAR, Security

if TYPE_CHECKING:
    from respool.client.kafka.tls import TlsSocket

# A fetch may request up to 2 GiB, and a batch larger than the requested size is still sent whole.
FRAME_BYTES_MAX = 256 * 1024 * 1024

# The kernel accepts at most this many buffers per call (IOV_MAX).
_PIECES_MAX = 1_024

CONNECT_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Connection settings, the same for all connections of a client."""

    client_id: str = "respool-arrow"
    # How long TCP may take to connect, and TLS after it. None: CONNECT_TIMEOUT_MS, and less at first contact.
    connect_timeout_ms: int | None = None
    # Replaces it for TCP.
    tcp_timeout_ms: int | None = None
    # How long to wait for a reply, in addition to the time that the request itself allows the broker to wait.
    request_timeout_ms: int = 30_000
    # A larger reply is not read: the sender is faulty, or not a broker.
    frame_bytes_max: int = FRAME_BYTES_MAX
    security: Security = IN_THE_CLEAR

    def at_first_contact(self, limit_ms: int) -> "LinkSettings":
        """Return the settings while no broker has ever answered, and the caller waits `limit_ms` for that."""
        if self.connect_timeout_ms is not None:
            return self
        return replace(self, tcp_timeout_ms=max(FIRST_CONNECT_MS, limit_ms))

    @property
    def connect_timeout_s(self) -> float:
        limit_ms = self.connect_timeout_ms
        return (CONNECT_TIMEOUT_MS if limit_ms is None else limit_ms) / 1000

    @property
    def tcp_timeout_s(self) -> float:
        limit_s = self.connect_timeout_s
        return limit_s if self.tcp_timeout_ms is None else min(self.tcp_timeout_ms / 1000, limit_s)


class Link:
    def __init__(self, address: tuple[str, int], settings: LinkSettings) -> None:
        """Does not connect: `connect` does. `interrupt` may be called even before that."""
        self.address = address
        self._settings = settings
        self._socket: socket.socket | TlsSocket | None = None
        self._is_closed = False
        # Whether the broker is on this machine: both ends of the connection have the same address.
        self.is_on_this_host = False

    @property
    def name(self) -> str:
        host, port = self.address
        return f"{host}:{port}"

    @property
    def is_open(self) -> bool:
        return self._socket is not None and not self._is_closed

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to receive, not even the end of the stream."""
        poll = select.poll()
        poll.register(self._live(), select.POLLIN)
        return not poll.poll(0)

    def is_readable(self, seconds: float) -> bool:
        """True if bytes, or the connection's end, arrive within that time."""
        line = self._live()
        if getattr(line, "has_pending", False):
            return True
        poll = select.poll()
        poll.register(line, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def fileno(self) -> int:
        return self._live().fileno()

    def connect(self) -> None:
        """
        Raises:
            BrokerUnreachable: nothing listens there.
            NoReply: TLS did not begin in time.
            TlsRefused: TLS failed.
        """
        assert self._socket is None
        reason: OSError | BrokerUnreachable | None = None
        limit_s = self._settings.tcp_timeout_s
        try:
            choices = socket.getaddrinfo(*self.address, type=socket.SOCK_STREAM)
        except OSError as error:
            raise BrokerUnreachable(self._why(error, limit_s)) from error
        for family, kind, protocol, _, place in choices:
            if self._is_closed:
                break
            # Stored before it is connected, so that `interrupt` ends the attempt.
            self._socket = socket.socket(family, kind, protocol)
            try:
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                limit_s = self._settings.tcp_timeout_s
                self._socket.settimeout(limit_s)
                self._socket.connect(place)
                limit_s = self._settings.connect_timeout_s
                self._socket.settimeout(limit_s)
                self.is_on_this_host = (
                    self._socket.getsockname()[0] == self._socket.getpeername()[0]
                )
                if (tls := self._settings.security.tls) is not None:
                    from respool.client.kafka.tls import wrap_tls

                    try:
                        self._socket = wrap_tls(self._socket, tls.context(), self.address[0])
                    except TimeoutError as error:
                        what = f"{self.name} accepted the connection, and TLS did not begin within {limit_s:g} s"
                        raise NoReply(what, address=self.name, waited_s=limit_s) from error
            except (OSError, BrokerUnreachable) as error:
                self._socket.close()
                reason = error
            else:
                self._socket.settimeout(self._settings.request_timeout_ms / 1000)
                return
        if self._is_closed:
            raise self._closed()
        if isinstance(reason, NoReply):
            raise reason
        if isinstance(reason, OSError):
            raise BrokerUnreachable(self._why(reason, limit_s)) from reason
        raise BrokerUnreachable(f"no connection to {self.name}: {reason}") from reason

    def interrupt(self) -> None:
        """Make every thread that waits here raise `ClientClosed`; nothing more is sent or received."""
        self._is_closed = True
        line = self._socket
        if line is not None:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._is_closed = True
        if self._socket is not None:
            self._socket.close()

    def check_open(self) -> None:
        """
        Raises:
            ClientClosed: the connection is not open.
        """
        self._live()

    def send(self, views: list[memoryview], *, what: str) -> None:
        """Send all views; `what` names the request in errors.

        Raises:
            ConnectionLost: the request could not be sent, or only a part of it.
        """
        line = self._live()
        try:
            _send_all(line, views)
        except OSError as error:
            raise self._lost(f"while {what} was sent", error) from error

    def wait(self, seconds: float) -> None:
        """Wait for a reply's first byte. The socket's own timeout is too short for requests that let brokers wait.

        Raises:
            NoReply: no byte came in that time.
        """
        line = self._live()
        if getattr(line, "has_pending", False):
            return
        poll = select.poll()
        poll.register(line, select.POLLIN)
        if not poll.poll(seconds * 1000):
            lost = self._lost(f"it was silent for {seconds:g} s", TimeoutError("no reply"))
            if isinstance(lost, ClientClosed):
                raise lost
            raise NoReply(str(lost), address=self.name, waited_s=seconds)

    def fill(self, target: memoryview) -> None:
        """Receive until the target is full.

        Raises:
            ConnectionLost: the connection ended before that.
        """
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

    def _live(self) -> "socket.socket | TlsSocket":
        if self._socket is None or self._is_closed:
            raise self._closed()
        return self._socket

    def _why(self, error: OSError, waited_s: float) -> str:
        return why_no_connection(self.name, error, waited_s=waited_s)

    def _closed(self) -> ClientClosed:
        return ClientClosed(f"the connection to {self.name} is closed")

    def _lost(self, when: str, error: OSError | None) -> ConnectionLost | ClientClosed:
        was_interrupted = self._is_closed
        # One thread may be sending while another receives, so both must be woken. The owner closes the connection.
        self.interrupt()
        if was_interrupted:
            return self._closed()
        return ConnectionLost(
            f"{self.name} {'closed the connection' if error is None else f'is lost: {error}'}; {when}"
        )


def _send_all(line: "socket.socket | TlsSocket", views: list[memoryview]) -> None:
    while views:
        sent = line.sendmsg(views[:_PIECES_MAX])
        done = 0
        while done < len(views) and sent >= views[done].nbytes:
            sent -= views[done].nbytes
            done += 1
        views = views[done:]
        if sent:
            views[0] = views[0][sent:]
