"""TLS under a connection: the protocol of the socket, and the transport of the connection.

    socket --ciphertext--> TlsLine --plaintext--> the connection's buffers
    the connection's replies --> waiting, uncopied --> at most SEALED_BYTES ahead of the kernel --> socket

asyncio's own TLS is not used: its write buffers cannot be measured, and connections appear only after their handshake.
Here a connection counts from when it is accepted, and unread replies stay in accounted memory.
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

logger = logging.getLogger(__name__)

# How many bytes are received, and encrypted, at once.
RECEIVED_BYTES = 64 * 1024
SEALED_BYTES = 256 * 1024
_HANDSHAKE_RECORD = 0x16
# One call decrypts at most this many times as much before other connections get a turn.
_PIECES_AT_ONCE = 16


class SecuredProtocol(Protocol):
    """The connection above: a BufferedProtocol that learns when the handshake is done."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, error: Exception | None) -> None: ...
    def get_buffer(self, size_hint: int) -> memoryview: ...
    def buffer_updated(self, count: int) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...

    def on_secured(self, certificate: bytes | None) -> None:
        """The handshake is done; the certificate is the client's, in DER."""
        ...

    def on_handshake_failed(self, why: str) -> None: ...


class HandshakeTurns(Protocol):
    def reserve_s(self, host: str) -> float | None:
        """Reserve a turn for one handshake: return how long to wait for it, or None if that would take too long."""
        ...


class TlsLine(asyncio.BufferedProtocol):
    """As a transport, it has the part of asyncio's interface that `ClientConnection` uses."""

    # All lines receive into one buffer: bytes are taken out of it before another line receives.
    _received = memoryview(bytearray(RECEIVED_BYTES))

    def __init__(
        self,
        inner: SecuredProtocol,
        *,
        context: Callable[[], ssl.SSLContext],
        turns: HandshakeTurns,
    ) -> None:
        """`context` is called when the handshake begins, so that the newest certificate is used."""
        self._inner = inner
        self._context = context
        self._turns = turns
        self._loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._is_secured = False
        self._is_reading_paused = False
        self._is_socket_reading = True
        # The socket's own write buffer has bytes that the kernel did not accept.
        self._is_socket_full = False
        self._has_paused_inner = False
        self._is_closing = False
        self._is_decrypting = False
        # Replies that are not encrypted yet.
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        # The turn for the handshake is reserved, and the timer that waits for it.
        self._has_turn = False
        self._waiting: asyncio.TimerHandle | None = None

    # -- the protocol of the socket ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        # The connection is counted before the client has sent anything.
        self._inner.connection_made(cast("asyncio.BaseTransport", self))
        if not self._socket.is_closing():
            # After `connection_made`, because the connection sets its own limits.
            self._socket.set_write_buffer_limits(high=0)

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        if self._waiting is not None:
            self._waiting.cancel()
        self._unsent.clear()
        self._unsent_bytes = 0
        self._inner.connection_lost(error)

    def get_buffer(self, size_hint: int) -> memoryview:
        del size_hint
        return self._received

    def buffer_updated(self, count: int) -> None:
        self._incoming.write(self._received[:count])
        if self._is_secured:
            self._decrypt()
        elif self._waiting is None:
            self._shake_hands()

    def eof_received(self) -> bool:
        # The connection ends with the socket: frames carry their length, so truncation is noticed.
        return False

    def pause_writing(self) -> None:
        self._is_socket_full = True

    def resume_writing(self) -> None:
        self._is_socket_full = False
        self._seal()
        if self._has_paused_inner and not self._is_full:
            self._has_paused_inner = False
            self._inner.resume_writing()
        self._maybe_end()

    # -- the handshake -----------------------------------------------------------------------------------------------

    def _shake_hands(self) -> None:
        try:
            if self._tls is None and not self._begin():
                return
            assert self._tls is not None
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send_sealed()
            return
        except (ssl.SSLError, OSError, ValueError) as error:
            # The alert tells the client the reason.
            self._send_sealed()
            self._fail(_reason(error))
            return
        self._is_secured = True
        self._send_sealed()
        self._inner.on_secured(self._tls.getpeercert(binary_form=True))
        self._decrypt()

    def _begin(self) -> bool:
        """Begin the handshake, if it is this client's turn."""
        host = self.get_extra_info("peername")
        if not self._has_turn:
            self._has_turn = True
            wait_s = self._turns.reserve_s(host[0] if isinstance(host, tuple) else str(host))
            if wait_s is None:
                self._fail("there are too many handshakes: tls_handshakes_per_s_max")
                return False
        else:
            wait_s = 0.0
        if wait_s > 0:
            self._pause_socket()
            self._waiting = self._loop.call_later(wait_s, self._on_turn)
            return False
        first = self._incoming.read(1)
        if first and first[0] != _HANDSHAKE_RECORD:
            self._fail(
                "it does not speak TLS, and this listener does: set the client's security.protocol to SSL or SASL_SSL"
            )
            return False
        rest = self._incoming.read()
        self._incoming.write(first + rest)
        self._tls = self._context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        return True

    def _on_turn(self) -> None:
        self._waiting = None
        if not self.is_closing():
            self._resume_socket()
            self._shake_hands()

    def _fail(self, why: str) -> None:
        self._is_closing = True
        self._inner.on_handshake_failed(why)
        # Not aborted: the alert is still to arrive.
        self._socket.close()

    # -- receiving ---------------------------------------------------------------------------------------------------

    def _decrypt(self) -> None:
        """Pass on what was received, until the connection has enough."""
        # A connection may resume reading within `buffer_updated`.
        if self._is_decrypting or self._tls is None:
            return
        self._is_decrypting = True
        try:
            for _ in range(_PIECES_AT_ONCE):
                if self._is_reading_paused or self._is_closing:
                    break
                target = self._inner.get_buffer(-1)
                count = cast("int", self._tls.read(len(target), target))
                if not count:
                    self._on_peer_closed()
                    return
                self._inner.buffer_updated(count)
            else:
                self._pause_socket()
                self._loop.call_soon(self._decrypt_more)
        except ssl.SSLWantReadError:
            # A reply of TLS itself, such as to a key update.
            self._send_sealed()
            if not self._is_reading_paused and not self._is_closing:
                self._resume_socket()
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._on_peer_closed()
        except ssl.SSLError as error:
            self._send_sealed()
            logger.debug("TLS failed: %s", _reason(error))
            self.abort()
        finally:
            self._is_decrypting = False

    def _decrypt_more(self) -> None:
        if not self.is_closing():
            self._decrypt()

    def _on_peer_closed(self) -> None:
        self._is_closing = True
        self._socket.close()

    # -- sending -----------------------------------------------------------------------------------------------------

    @property
    def _is_full(self) -> bool:
        return self._is_socket_full or self._unsent_bytes > 0

    def _seal(self) -> None:
        """Encrypt and send until the kernel accepts no more."""
        assert self._tls is not None
        while self._unsent and not self._is_socket_full and not self._socket.is_closing():
            sealed = 0
            while self._unsent and sealed < SEALED_BYTES:
                view = self._unsent[0]
                piece = view[: SEALED_BYTES - sealed]
                written = self._tls.write(piece)
                sealed += written
                self._unsent_bytes -= written
                if written == len(view):
                    self._unsent.popleft()
                else:
                    self._unsent[0] = view[written:]
            self._send_sealed()

    def _send_sealed(self) -> None:
        if self._outgoing.pending and not self._socket.is_closing():
            self._socket.write(self._outgoing.read())

    # -- the transport of the connection -----------------------------------------------------------------------------

    def writelines(self, buffers: Sequence[bytes | memoryview]) -> None:
        if self._is_closing:
            return
        assert self._is_secured
        for one in buffers:
            view = memoryview(one).cast("B") if one else None
            if view is not None and view.nbytes:
                self._unsent.append(view)
                self._unsent_bytes += view.nbytes
        self._seal()
        if self._is_full and not self._has_paused_inner:
            self._has_paused_inner = True
            self._inner.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes + self._socket.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The connection wants each write to be tried at once, which `_seal` does."""
        assert high == 0
        assert not low

    def pause_reading(self) -> None:
        self._is_reading_paused = True
        self._pause_socket()

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        # Deferred: the connection may be in the middle of a call. The socket is resumed after it.
        self._loop.call_soon(self._decrypt_more)

    def _pause_socket(self) -> None:
        if self._is_socket_reading:
            self._is_socket_reading = False
            self._socket.pause_reading()

    def _resume_socket(self) -> None:
        if not self._is_socket_reading:
            self._is_socket_reading = True
            self._socket.resume_reading()

    def is_closing(self) -> bool:
        return self._is_closing or self._socket.is_closing()

    def close(self) -> None:
        """Close when everything is sent."""
        if not self._is_closing:
            self._is_closing = True
            self._pause_socket()
            self._maybe_end()

    def _maybe_end(self) -> None:
        if not self._is_closing or self._is_full or self._socket.is_closing():
            return
        if self._tls is not None and self._is_secured:
            # Sends close_notify; it does not wait for the client's.
            with suppress(ssl.SSLError, OSError):
                self._tls.unwrap()
            self._send_sealed()
        self._socket.close()

    def abort(self) -> None:
        self._is_closing = True
        self._socket.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)


def _reason(error: Exception) -> str:
    """A sentence for the log, without OpenSSL's file names."""
    reason = getattr(error, "reason", None)
    if not reason:
        return str(error) or type(error).__name__
    verification = getattr(error, "verify_message", "")
    text = str(reason).replace("_", " ").lower()
    return f"{text} ({verification})" if verification else text
