"""A gate before a broker that has neither TLS nor logins: it has both, and passes on what comes through.

The broker must name the gate's address as its own (`advertised`), so it is made first, and told of the broker later.
"""

import asyncio
import base64
import hashlib
import hmac
import os
import socket
import ssl
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from struct import Struct, pack, unpack_from
from threading import Thread
from types import TracebackType
from typing import Any, Self, TypeVar

import trustme

from respool.testing import Broker

T = TypeVar("T")

SIZE = Struct(">i")
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
UNSUPPORTED_VERSION, UNSUPPORTED_MECHANISM, AUTHENTICATION_FAILED = 35, 33, 58
HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ALL_MECHANISMS = ("PLAIN", *HASHES)
TLS_END_SECONDS_MAX = 0.5


@contextmanager
def secured_broker(**how: Any) -> "Iterator[SecuredGate]":
    """A broker with the topic rides that is reached through a gate only, as far as it says itself."""
    with SecuredGate(**how) as gate:
        broker = Broker(topics={"rides": 3})
        # A test's broker names the address it listens on; this one names the gate's.
        broker._settings["advertised"] = gate.address
        with broker:
            gate.target = (broker.host, broker.port)
            yield gate


def server_side(authority: trustme.CA, *names: str, asks_who: bool = False) -> ssl.SSLContext:
    """TLS with a certificate for these names, or for 127.0.0.1; maybe for clients that have one, too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*(names or ("127.0.0.1",))).configure_cert(context)
    if asks_who:
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class SecuredGate:
    """Use it as a context."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        users: Mapping[str, str] | None = None,
        mechanisms: Sequence[str] = ALL_MECHANISMS,
        knows_password: bool = True,
    ) -> None:
        """With `users` nobody comes in without a login. Without `knows_password` it only pretends to know them."""
        self._tls = tls
        self._users = users
        self._mechanisms = mechanisms
        self._knows_password = knows_password
        self.target: tuple[str, int] | None = None
        # All connections there were, with their sockets: TLS forgets its own.
        self._open: list[tuple[asyncio.StreamWriter, socket.socket]] = []
        self.attempts = 0
        self.logins: list[str] = []
        self.passwords_seen: list[str] = []

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        # Spark's idle Python workers keep connections and answer nothing: the default waits 30 seconds for them.
        patience_s = TLS_END_SECONDS_MAX if self._tls is not None else None
        self._server = self._run(
            asyncio.start_server(
                *(self._serve, "127.0.0.1", 0), ssl=self._tls, ssl_shutdown_timeout=patience_s
            )
        )
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _end(self) -> None:
        """Nothing is left open: what the collector closes later would be told of in somebody else's test."""
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for writer, _ in self._open:
            writer.transport.abort()
        while any(line.fileno() != -1 for _, line in self._open):
            await asyncio.sleep(0.001)

    def _note(self, writer: asyncio.StreamWriter) -> None:
        self._open.append((writer, writer.get_extra_info("socket")))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            self._note(writer)
            assert self.target is not None
            broker = await asyncio.open_connection(*self.target)
            self._note(broker[1])
            try:
                if self._users is None or await self._let_in(reader, writer, *broker):
                    await asyncio.gather(_pass_on(reader, broker[1]), _pass_on(broker[0], writer))
            finally:
                broker[1].close()
                writer.close()

    async def _let_in(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        broker_reader: asyncio.StreamReader,
        broker_writer: asyncio.StreamWriter,
    ) -> bool:
        mechanism, scram = "", None
        while True:
            frame = await _frame(reader)
            key, version, number, name_size = unpack_from(">hhih", frame)
            body = frame[10 + max(name_size, 0) :]
            if key == API_VERSIONS and version > 0:
                _send(writer, pack(">ihi", number, UNSUPPORTED_VERSION, 0))
            elif key == API_VERSIONS:
                _send(broker_writer, frame)
                reply = await _frame(broker_reader)
                (count,) = unpack_from(">i", reply, 6)
                more = pack(">hhhhhh", SASL_HANDSHAKE, 0, 1, SASL_AUTHENTICATE, 0, 2)
                _send(writer, reply[:6] + pack(">i", count + 2) + reply[10:] + more)
            elif key == SASL_HANDSHAKE:
                self.attempts += 1
                (size,) = unpack_from(">h", body)
                mechanism = body[2 : 2 + size].decode()
                is_known = mechanism in self._mechanisms
                names = b"".join(pack(">h", len(one)) + one.encode() for one in self._mechanisms)
                code = 0 if is_known else UNSUPPORTED_MECHANISM
                _send(writer, pack(">ihi", number, code, len(self._mechanisms)) + names)
                if mechanism in HASHES:
                    scram = ScramServer(HASHES[mechanism], self._users or {}, self._knows_password)
            elif key == SASL_AUTHENTICATE:
                said = _auth_bytes(body, version)
                if scram is None:
                    _, user, password = said.decode().split("\0")
                    self.passwords_seen.append(password)
                    answer: bytes | None = b""
                    is_in = (self._users or {}).get(user) == password
                else:
                    user, (answer, is_in) = "", scram.answer(said)
                    user = scram.user
                is_refused = answer is None or (scram is None and not is_in)
                _send(writer, _auth_reply(number, version, None if is_refused else answer or b""))
                if is_refused:
                    return False
                if is_in:
                    self.logins.append(user)
                    return True
            else:
                return False


class ScramServer:
    """A broker's side, as RFC 5802 has it."""

    def __init__(
        self, hash_name: str, users: Mapping[str, str], knows_password: bool = True
    ) -> None:
        self._hash = hash_name
        self._users = users
        self._knows_password = knows_password
        self.user = ""
        self._salt = os.urandom(16)
        self._first = self._own = ""

    def answer(self, said: bytes) -> tuple[bytes | None, bool]:
        """What to say, None to refuse; and whether the client is in with that."""
        text = said.decode()
        if not self._first:
            assert text.startswith("n,,")
            self._first = text[3:]
            fields = dict(one.split("=", 1) for one in self._first.split(","))
            self.user = fields["n"].replace("=2C", ",").replace("=3D", "=")
            salt = base64.b64encode(self._salt).decode()
            self._own = f"r={fields['r']}{os.urandom(6).hex()},s={salt},i=4096"
            return self._own.encode(), False
        bare, _, proof = text.rpartition(",p=")
        if self.user not in self._users:
            return None, False
        password = self._users[self.user].encode()
        salted = hashlib.pbkdf2_hmac(self._hash, password, self._salt, 4096)
        signed = f"{self._first},{self._own},{bare}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored, signed, self._hash)
        shown = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if hashlib.new(self._hash, shown).digest() != stored:
            return None, False
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        mine = hmac.digest(server_key if self._knows_password else b"guess", signed, self._hash)
        return b"v=" + base64.b64encode(mine), True


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
    return await reader.readexactly(size)


def _send(writer: asyncio.StreamWriter, frame: bytes) -> None:
    writer.write(SIZE.pack(len(frame)) + frame)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 18):
            writer.write(data)
            await writer.drain()
    writer.close()


def _auth_bytes(body: bytes, version: int) -> bytes:
    """What a SaslAuthenticate request says; version 2 is the first flexible one."""
    if version < 2:
        (size,) = unpack_from(">i", body)
        return body[4 : 4 + size]
    # Tagged fields of the header, then a length of one byte or two.
    said, _ = _compact_bytes(body, 1)
    return said


def _auth_reply(number: int, version: int, answer: bytes | None) -> bytes:
    """The reply to a SaslAuthenticate request; None refuses the login."""
    code = AUTHENTICATION_FAILED if answer is None else 0
    told = answer or b""
    if version < 2:
        why = pack(">h", 8) + b"no entry" if answer is None else pack(">h", -1)
        lifetime = pack(">q", 0) if version else b""
        return pack(">ih", number, code) + why + pack(">i", len(told)) + told + lifetime
    why = b"\x09no entry" if answer is None else b"\0"
    return pack(">ibh", number, 0, code) + why + _compact_size(len(told)) + told + pack(">qb", 0, 0)


def _compact_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size = data[at] & 0x7F
    at += 1
    if data[at - 1] & 0x80:
        size |= data[at] << 7
        at += 1
    return data[at : at + size - 1], at + size - 1


def _compact_size(size: int) -> bytes:
    size += 1
    return bytes([size]) if size < 0x80 else bytes([size & 0x7F | 0x80, size >> 7])
