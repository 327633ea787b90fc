"""Strangers on listeners with TLS and logins, over real sockets: what they send, and how little it gets them."""

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from respool.client.kafka.sasl import ScramLogin
from respool.wire.login.scram import MESSAGE_BYTES_MAX
from support.secured_broker import PASSWORD, SecuredBroker, secured

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE, METADATA, PRODUCE = 18, 17, 36, 3, 0
AUTHENTICATION_FAILED, ILLEGAL_SASL_STATE, UNSUPPORTED_MECHANISM = 58, 34, 33
UNSUPPORTED_VERSION = 35


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured(
        tmp_path_factory.mktemp("secured"),
        settings={"connection_failed_authentication_delay_ms": 0},
    ) as made:
        yield made


OPEN: list[socket.socket] = []


@pytest.fixture(autouse=True)
def _close_sockets() -> Iterator[None]:
    yield
    for one in OPEN:
        one.close()
    OPEN.clear()


class Stranger:
    def __init__(self, broker: SecuredBroker, listener: str = "clear") -> None:
        self.socket: Any = socket.create_connection(broker.listener.addresses[listener], 10)
        if listener in ("sasl", "tls"):
            context = ssl.create_default_context(cafile=broker.ca_file)
            self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        OPEN.append(self.socket)

    def send(self, key: int, version: int, body: bytes = b"") -> None:
        head = struct.pack(">hhih", key, version, 7, -1)
        if (key, version) == (SASL_AUTHENTICATE, 2):
            head += b"\0"
        self.socket.sendall(struct.pack(">i", len(head + body)) + head + body)

    def receive(self) -> bytes | None:
        """The body of the next reply; None if the connection was closed."""
        try:
            size = self._exactly(4)
            return None if size is None else self._exactly(struct.unpack(">i", size)[0])
        except ConnectionError:
            return None

    def _exactly(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                return None
            data += more
        return data

    def handshake(self, mechanism: str = "SCRAM-SHA-512", version: int = 1) -> int:
        name = mechanism.encode()
        self.send(SASL_HANDSHAKE, version, struct.pack(">h", len(name)) + name)
        reply = self.receive()
        assert reply is not None
        return int(struct.unpack_from(">h", reply, 4)[0])

    def authenticate(self, message: bytes) -> tuple[int, bytes]:
        self.send(SASL_AUTHENTICATE, 1, struct.pack(">i", len(message)) + message)
        reply = self.receive()
        assert reply is not None
        code, text_size = struct.unpack_from(">hh", reply, 4)
        at = 8 + max(0, text_size)
        (size,) = struct.unpack_from(">i", reply, at)
        return code, reply[at + 4 : at + 4 + size]

    def login(self, user: str = "alice", password: str = PASSWORD) -> int:
        assert self.handshake() == 0
        client = ScramLogin("SCRAM-SHA-512", user, password)
        code, data = self.authenticate(client.begin())
        assert code == 0
        code, data = self.authenticate(client.answer(data) or b"")
        if code == 0:
            assert client.answer(data) is None
        return code

    @property
    def is_closed(self) -> bool:
        return self.receive() is None


@pytest.mark.parametrize("key", [*range(17), *range(19, 36), *range(37, 100), -1, 30_000])
def test_before_login_no_other_api_is_looked_at(broker: SecuredBroker, key: int) -> None:
    """NATS CVE-2026-58253, and decoders that strangers could reach: CVE-2022-34917."""
    stranger = Stranger(broker)
    stranger.send(key, 0, b"\xff" * 64)
    assert stranger.is_closed


def test_a_login_lets_in(broker: SecuredBroker) -> None:
    for listener in ("clear", "sasl"):
        client = Stranger(broker, listener)
        client.send(API_VERSIONS, 0)
        assert client.receive() is not None
        assert client.login() == 0
        client.send(METADATA, 0, struct.pack(">i", 0))
        assert client.receive() is not None


def test_a_failed_login_ends_the_connection(broker: SecuredBroker) -> None:
    for user in ("alice", "nobody"):
        stranger = Stranger(broker)
        assert stranger.login(user, "guess") == AUTHENTICATION_FAILED
        assert stranger.is_closed


def test_steps_out_of_order(broker: SecuredBroker) -> None:
    stranger = Stranger(broker)
    assert stranger.authenticate(b"n,,n=alice,r=x")[0] == ILLEGAL_SASL_STATE
    assert stranger.is_closed
    stranger = Stranger(broker)
    assert stranger.handshake("GSSAPI") == UNSUPPORTED_MECHANISM
    assert stranger.is_closed
    stranger = Stranger(broker)
    # PLAIN is offered over TLS only.
    assert stranger.handshake("PLAIN") == UNSUPPORTED_MECHANISM
    assert stranger.is_closed
    stranger = Stranger(broker)
    assert stranger.handshake(version=0) == UNSUPPORTED_VERSION
    assert stranger.is_closed
    stranger = Stranger(broker)
    assert stranger.handshake() == 0
    stranger.send(METADATA, 0, struct.pack(">i", 0))
    assert stranger.is_closed
    # The second handshake starts over, with nothing of the first.
    stranger = Stranger(broker)
    assert stranger.handshake("SCRAM-SHA-256") == 0
    assert stranger.authenticate(b"n,,n=alice,r=x")[0] == 0
    assert stranger.login() == 0


def test_after_a_login_another_one_is_refused_and_the_connection_stays(
    broker: SecuredBroker,
) -> None:
    client = Stranger(broker)
    assert client.login() == 0
    assert client.handshake() == ILLEGAL_SASL_STATE
    assert client.authenticate(b"")[0] == ILLEGAL_SASL_STATE
    client.send(API_VERSIONS, 0)
    assert client.receive() is not None


def test_an_announced_giant_takes_no_memory(broker: SecuredBroker) -> None:
    """CVE-2026-111108: before a login, frames are small and memory comes with bytes."""
    stranger = Stranger(broker)
    stranger.socket.sendall(struct.pack(">ihh", 100_000_000, API_VERSIONS, 0))
    assert stranger.is_closed
    stranger = Stranger(broker)
    assert stranger.handshake() == 0
    stranger.socket.sendall(struct.pack(">ihh", 600_000, SASL_AUTHENTICATE, 1))
    assert stranger.is_closed


def test_an_oversized_message_is_refused(broker: SecuredBroker) -> None:
    stranger = Stranger(broker)
    assert stranger.handshake() == 0
    code, _ = stranger.authenticate(b"n,,n=alice,r=x," + b"a=b," * MESSAGE_BYTES_MAX)
    assert code == AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">ihhih", 10, API_VERSIONS, 0, 1, -1),
        b"\x16\x03\x01\x00\x05hello",
        b"\x16\x03\x01\xff\xff" + b"x" * 300,
        b"\x16" + b"\0" * 200,
        b"\x15\x03\x01\x00\x02\x02\x28",
    ],
)
def test_what_is_no_handshake_ends_the_connection(broker: SecuredBroker, first: bytes) -> None:
    raw = socket.create_connection(broker.listener.addresses["sasl"], 10)
    raw.sendall(first)
    with contextlib.suppress(ConnectionError):
        # At most an alert comes back.
        while raw.recv(4_096):
            pass
    raw.close()


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_versions_of_tls_are_refused(broker: SecuredBroker) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(broker.ca_file)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    raw = socket.create_connection(broker.listener.addresses["tls"], 10)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(raw, server_hostname="127.0.0.1")
    raw.close()


def test_a_handshake_of_single_bytes_succeeds(broker: SecuredBroker) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=broker.ca_file)
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    raw = socket.create_connection(broker.listener.addresses["tls"], 10)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            for byte in outgoing.read():
                raw.send(bytes([byte]))
            incoming.write(raw.recv(65_536))
    raw.close()


def test_silent_strangers_are_counted_and_closed(tmp_path: Path) -> None:
    limits = {"authentication_max_ms": 1_000, "strangers_max": 5}
    with secured(tmp_path, settings=limits) as broker:
        silent = [
            socket.create_connection(broker.listener.addresses[name], 10)
            for name in ("tls", "sasl", "clear", "mtls")
        ]
        wait_until(lambda: len(broker.listener._strangers) == 4)
        more = [socket.create_connection(broker.listener.addresses["sasl"], 10) for _ in range(6)]
        # The oldest have made room.
        wait_until(lambda: all(is_closed(one) for one in [*silent, *more[:1]]))
        assert len(broker.listener._strangers) <= 5
        wait_until(lambda: all(map(is_closed, more)))
        assert not broker.listener._strangers
        assert broker.listener._strangers_bytes == 0
        for one in (*silent, *more):
            one.close()


def is_closed(raw: socket.socket) -> bool:
    raw.settimeout(0.01)
    try:
        return raw.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_replies_that_are_not_read_are_charged_over_tls_too(tmp_path: Path) -> None:
    """The event loop's own TLS would show no unsent bytes, and keep them outside of memory_bytes_max."""
    import respool

    with secured(tmp_path) as broker:
        import pyarrow as pa

        respool.write_table(
            pa.table({"value": [b"x" * 1_000_000] * 16}),
            "rides",
            bootstrap=broker.address("client"),
        )
        client = Stranger(broker, "tls")
        fetch = struct.pack(">iiiib", -1, 100, 1, 16 << 20, 0)
        fetch += struct.pack(">ih", 1, 5) + b"rides"
        fetch += struct.pack(">iiqi", 1, 0, 0, 16 << 20)
        client.send(1, 4, fetch)
        memory = broker.serving.memory
        wait_until(lambda: memory.used > 8 << 20)
        [connection] = [one for one in broker.listener.connections if one.session.listener == "tls"]
        assert connection.is_busy
        assert connection._transport.get_write_buffer_size() == memory.used
        while memory.used:
            client.socket.recv(1 << 20)
        client.socket.close()


def test_a_renewed_certificate_is_served_while_others_stay(tmp_path: Path) -> None:
    from support.secured_broker import write_certificate

    with secured(tmp_path) as broker:
        before = Stranger(broker, "tls")
        old = before.socket.getpeercert(binary_form=True)
        write_certificate(tmp_path / "broker.pem", broker.authority.issue_cert("127.0.0.1"))
        broker._backend.call("advance", ms=6_000)
        wait_until(lambda: Stranger(broker, "tls").socket.getpeercert(binary_form=True) != old)
        before.send(API_VERSIONS, 0)
        assert before.receive() is not None
