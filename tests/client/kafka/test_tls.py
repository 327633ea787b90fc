"""Sealed sockets behave as open ones do: ends, pieces of any size, both ways at once."""

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
import trustme

from respool.client.kafka.security import Tls
from respool.client.kafka.tls import CHUNK_BYTES, TlsSocket
from support.secured_gate import server_side

AUTHORITY = trustme.CA()
HOST = "127.0.0.1"


@contextmanager
def talking(serve: Callable[[ssl.SSLSocket], None]) -> Iterator[TlsSocket]:
    """A line to a server that does this with its side."""
    with socket.create_server((HOST, 0)) as server:

        def accept() -> None:
            raw, _ = server.accept()
            with server_side(AUTHORITY).wrap_socket(raw, server_side=True) as sealed:
                serve(sealed)

        serving = Thread(target=accept)
        serving.start()
        raw = socket.create_connection(server.getsockname(), timeout=20)
        line = TlsSocket(raw, Tls(authorities=AUTHORITY.cert_pem.bytes().decode()).context(), HOST)
        try:
            line.handshake()
            yield line
        finally:
            line.close()
            serving.join(20)
            assert not serving.is_alive()


def take_all(line: TlsSocket, size: int = 100_000) -> bytes:
    buffer = memoryview(bytearray(size))
    found = b""
    while got := line.recv_into(buffer):
        found += buffer[:got]
    return found


@pytest.mark.parametrize("says_goodbye", [True, False])
def test_the_end_is_an_end(says_goodbye: bool) -> None:
    """Found with Apache Kafka, which says goodbye (close_notify) where it wants a login: that was read for ever."""

    def serve(sealed: ssl.SSLSocket) -> None:
        sealed.sendall(b"last words")
        if says_goodbye:
            sealed.settimeout(0.001)
            # Sent at once; the answer to it is not waited for.
            with pytest.raises((OSError, ValueError)):
                sealed.unwrap()

    with talking(serve) as line:
        assert take_all(line) == b"last words"
        assert line.recv_into(memoryview(bytearray(1))) == 0


def test_bytes_that_were_opened_with_others_are_known_of() -> None:
    def serve(sealed: ssl.SSLSocket) -> None:
        sealed.sendall(b"ab")
        assert sealed.recv(1) == b"!"

    with talking(serve) as line:
        one = memoryview(bytearray(1))
        assert not line.has_pending
        assert (line.recv_into(one), one[0]) == (1, ord("a"))
        # The socket has nothing more to say of it.
        assert line.has_pending
        assert (line.recv_into(one), one[0]) == (1, ord("b"))
        assert not line.has_pending
        assert line.sendmsg([memoryview(b""), memoryview(b"!")]) == 1


def test_much_goes_both_ways_at_once() -> None:
    """The server sends only as fast as it is read, and reads only as fast as it can send: neither may wait for ever."""
    data = bytes(range(256)) * (40 * CHUNK_BYTES // 256)

    def echo(sealed: ssl.SSLSocket) -> None:
        while got := sealed.recv(65_536):
            sealed.sendall(got)
            if got.endswith(b"END"):
                return

    with talking(echo) as line:
        found: list[bytes] = []
        reading = Thread(target=lambda: found.append(take_all(line)))
        reading.start()
        views = [memoryview(data), memoryview(b"END")]
        while views:
            sent = line.sendmsg(views)
            while views and sent >= views[0].nbytes:
                sent -= views.pop(0).nbytes
            if sent:
                views[0] = views[0][sent:]
        reading.join(60)
        assert found == [data + b"END"]
