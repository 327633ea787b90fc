"""A socket whose bytes are sealed: what `Connection` needs of a socket, over TLS.

One thread may send while another receives, which Python's own TLS socket does not allow. So sealing and opening happen
in memory, under a lock and without waiting; the socket is waited for outside it.
"""

import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import cast

# Taken from the socket, and sealed, at once.
CHUNK_BYTES = 256 * 1024


class TlsLine:
    def __init__(self, line: socket.socket, context: ssl.SSLContext, host: str) -> None:
        """Connected already. `host` is whose certificate it must be."""
        self._line = line
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        # Guards the three.
        self._sealing = Lock()
        # Bytes leave in the order they were sealed in. Taken before the other.
        self._leaving = Lock()

    def shake_hands(self) -> None:
        """
        Raises:
            ssl.SSLError: they do not agree, or the certificate is not to be trusted.
            OSError: the connection broke.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send_sealed()
                self._take_in()
            except ssl.SSLError:
                # The broker is told why, if it still listens.
                with suppress(OSError):
                    self._send_sealed()
                raise
            else:
                self._send_sealed()
                return

    @property
    def has_pending(self) -> bool:
        """Whether there are bytes that the socket does not know of any more."""
        with self._sealing:
            return self._tls.pending() > 0 or self._incoming.pending > 0

    def recv_into(self, target: memoryview) -> int:
        """How many bytes have come; 0 at the end."""
        while True:
            with self._sealing:
                got = self._open(target)
            self._send_if_free()
            if got is not None:
                return got
            self._take_in()

    def sendmsg(self, views: Sequence[memoryview]) -> int:
        """Send some of them; return how many bytes that were."""
        taken = 0
        with self._leaving:
            with self._sealing:
                for view in views:
                    piece = view[: CHUNK_BYTES - taken]
                    written = self._tls.write(piece) if piece.nbytes else 0
                    taken += written
                    # What comes after it may only follow all of it.
                    if written < view.nbytes:
                        break
            self._send_what_is_sealed()
        return taken

    def fileno(self) -> int:
        return self._line.fileno()

    def settimeout(self, seconds: float) -> None:
        self._line.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        self._line.shutdown(how)

    def close(self) -> None:
        self._line.close()

    def _open(self, target: memoryview) -> int | None:
        """None: nothing yet."""
        have = 0
        try:
            while have < target.nbytes:
                # Into a buffer, so it is a number that comes back; 0 where the broker has said its last.
                got = cast("int", self._tls.read(target.nbytes - have, target[have:]))
                if not got:
                    break
                have += got
        except ssl.SSLWantReadError:
            return have or None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            # Frames say how long they are, so one that is cut off is noticed whoever cut it.
            return have
        return have

    def _send_if_free(self) -> None:
        """Answers of TLS itself. Where somebody sends just now, they leave with that.

        To wait for one who waits for the broker to read, while the broker waits for us to, would never end.
        """
        if self._outgoing.pending and self._leaving.acquire(blocking=False):
            try:
                # If the way out is broken, what comes in says why.
                with suppress(OSError):
                    self._send_what_is_sealed()
            finally:
                self._leaving.release()

    def _take_in(self) -> None:
        sealed = self._line.recv(CHUNK_BYTES)
        with self._sealing:
            if sealed:
                self._incoming.write(sealed)
            else:
                self._incoming.write_eof()

    def _send_sealed(self) -> None:
        with self._leaving:
            self._send_what_is_sealed()

    def _send_what_is_sealed(self) -> None:
        with self._sealing:
            sealed = self._outgoing.read()
        if sealed:
            self._line.sendall(sealed)
