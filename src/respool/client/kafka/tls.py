"""A TLS socket on which one thread may send while another receives, which Python's own does not allow.

So bytes are encrypted and decrypted in memory, under a lock and without waiting; waiting happens outside the lock.
"""

import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import cast

from respool.client.kafka.errors import BrokerUnreachable, TlsRefused

# The maximum number of bytes read from the socket, or encrypted, at once.
CHUNK_BYTES = 256 * 1024


def wrap_tls(line: socket.socket, context: ssl.SSLContext, host: str) -> "TlsSocket":
    """Start TLS on a connected socket; the broker must present a certificate for `host`.

    Raises:
        TlsRefused: the broker's certificate is not trusted, or there is no common version or cipher.
        BrokerUnreachable: the connection ended during the handshake.
    """
    try:
        made = TlsSocket(line, context, host)
    except ValueError as error:
        # Metadata may contain any text as a host.
        raise BrokerUnreachable(f"no certificate can be for a host {host!r}") from error
    try:
        made.handshake()
    except (ssl.SSLEOFError, ConnectionResetError, BrokenPipeError) as error:
        raise BrokerUnreachable(
            "it closed the connection when TLS was to begin; does it speak TLS on this port?"
        ) from error
    except ssl.SSLCertVerificationError as error:
        raise TlsRefused(
            f"the certificate is not to be trusted: {error.verify_message}. Name who signed it (ssl.truststore..., "
            "ssl.ca.location), and use a host name that it is for"
        ) from error
    except ssl.SSLError as error:
        raise TlsRefused(f"no TLS with it: {error.reason or error}") from error
    return made


def tls_alert(error: BaseException) -> str | None:
    """Why the broker ended TLS, if that closed the connection: it may not accept our certificate."""
    cause = error.__cause__
    if not isinstance(cause, ssl.SSLError) or isinstance(cause, ssl.SSLEOFError):
        return None
    return f"the broker ended TLS: {cause.reason or cause}"


class TlsSocket:
    def __init__(self, line: socket.socket, context: ssl.SSLContext, host: str) -> None:
        """`line` is connected; the broker's certificate must be for `host`."""
        self._line = line
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        # Guards the three above.
        self._cipher_lock = Lock()
        # Bytes are sent in the order of their encryption. Acquired before `_cipher_lock`.
        self._send_lock = Lock()

    def handshake(self) -> None:
        """
        Raises:
            ssl.SSLError: there is no common version or cipher, or the certificate is not trusted.
            OSError: the connection broke.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send_encrypted()
                self._receive_encrypted()
            except ssl.SSLError:
                # Send the alert, if the broker still listens.
                with suppress(OSError):
                    self._send_encrypted()
                raise
            else:
                self._send_encrypted()
                return

    @property
    def has_pending(self) -> bool:
        """True if bytes are available that were already read from the socket."""
        with self._cipher_lock:
            return self._tls.pending() > 0 or self._incoming.pending > 0

    def recv_into(self, target: memoryview) -> int:
        """Receive into `target`; return the number of bytes, 0 at the end."""
        while True:
            with self._cipher_lock:
                got = self._decrypt(target)
            self._send_if_unlocked()
            if got is not None:
                return got
            self._receive_encrypted()

    def sendmsg(self, views: Sequence[memoryview]) -> int:
        """Send some of the bytes; return how many."""
        taken = 0
        with self._send_lock:
            with self._cipher_lock:
                for view in views:
                    piece = view[: CHUNK_BYTES - taken]
                    written = self._tls.write(piece) if piece.nbytes else 0
                    taken += written
                    # The next view may follow only after all of this one is written.
                    if written < view.nbytes:
                        break
            self._send_encrypted_locked()
        return taken

    def fileno(self) -> int:
        return self._line.fileno()

    def settimeout(self, seconds: float) -> None:
        self._line.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        self._line.shutdown(how)

    def close(self) -> None:
        self._line.close()

    def _decrypt(self, target: memoryview) -> int | None:
        """Decrypt into `target`; None if nothing is available yet."""
        have = 0
        try:
            while have < target.nbytes:
                # With a buffer it returns a number; 0 after the broker's close_notify.
                got = cast("int", self._tls.read(target.nbytes - have, target[have:]))
                if not got:
                    break
                have += got
        except ssl.SSLWantReadError:
            return have or None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            # Frames carry their length, so truncation is detected in any case.
            return have
        return have

    def _send_if_unlocked(self) -> None:
        """Send TLS's own replies; if another thread is sending, that thread sends them too.

        Waiting for that thread could deadlock: it may wait for the broker to read, and the broker for this client.
        """
        if self._outgoing.pending and self._send_lock.acquire(blocking=False):
            try:
                # If sending fails, the next read reports the cause.
                with suppress(OSError):
                    self._send_encrypted_locked()
            finally:
                self._send_lock.release()

    def _receive_encrypted(self) -> None:
        encrypted = self._line.recv(CHUNK_BYTES)
        with self._cipher_lock:
            if encrypted:
                self._incoming.write(encrypted)
            else:
                self._incoming.write_eof()

    def _send_encrypted(self) -> None:
        with self._send_lock:
            self._send_encrypted_locked()

    def _send_encrypted_locked(self) -> None:
        with self._cipher_lock:
            encrypted = self._outgoing.read()
        if encrypted:
            self._line.sendall(encrypted)
