"""Requests to other brokers over TCP: `ports.peers`, one connection per peer and channel, pipelined.

A frame is a 4-byte big-endian size and that many bytes. A peer replies in request order, so the oldest pending request
gets the next reply; frames are not parsed. Whatever breaks that order (a timeout, a size beyond the limit, an
unexpected reply) closes the connection, and fails its pending requests. The next request connects again.
"""

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, cast

from respool.drivers.allocator import uncleared
from respool.model.ids import BrokerId
from respool.ports.peers import PeerRefused, PeerUnreachable

Address = tuple[str, int]
# Peer and channel.
_Way = tuple[BrokerId, int]

_SIZE_BYTES = 4
# struct linger: on, zero seconds.
_NO_LINGERING = struct.pack("ii", 1, 0)
# Most replies are small. Small ones are copied once more, large ones are not.
LANDING_BYTES = 64 * 1024


class PeerSecurity(Protocol):
    """How this broker connects to others: TLS, a login, or both."""

    def context(self) -> ssl.SSLContext | None:
        """The TLS context for a new connection; None: in the clear."""
        ...

    async def log_in(self, request: Callable[[bytes], Awaitable[memoryview]]) -> None:
        """Log in on a new connection; `request` sends a frame and returns the reply's.

        Raises:
            PeerLoginFailed
        """
        ...


class PeerLoginFailed(PeerUnreachable):
    """The peer refused this broker's login, or could not prove that it knows the password too."""


class TcpPeers:
    """The brokers at these addresses; `move_to` updates them."""

    def __init__(
        self,
        addresses: Mapping[BrokerId, Address] | None = None,
        *,
        connect_timeout_ms: int = 5_000,
        request_timeout_ms: int = 30_000,
        reply_bytes_max: int = 128 * 1024 * 1024,
        requests_in_flight_max: int = 64,
        security: PeerSecurity | None = None,
    ) -> None:
        """Without `security`, connections are in the clear."""
        assert requests_in_flight_max >= 1
        self._addresses = addresses or {}
        self._connect_timeout_ms = connect_timeout_ms
        # Counts from the call: queueing, connecting and the reply must all fit in.
        self._request_timeout_ms = request_timeout_ms
        self._reply_bytes_max = reply_bytes_max
        self._requests_in_flight_max = requests_in_flight_max
        self._security = security
        self._connections: dict[_Way, _Connection] = {}
        # Connections without requests, in creation order: simulated runs must be reproducible.
        self._held: dict[_Connection, None] = {}
        # One sender at a time per peer and channel, in call order.
        self._turns: dict[_Way, asyncio.Lock] = {}
        self._closed = False

    def move_to(self, addresses: Mapping[BrokerId, Address]) -> None:
        self._addresses = addresses
        for (broker, _), connection in self._connections.items():
            if addresses.get(broker) != connection.address:
                connection.drop("the broker is gone")
        for connection in self._held:
            if addresses.get(connection.broker) != connection.address:
                connection.drop("the broker is gone")

    async def request(
        self, broker: BrokerId, frame: bytes, *, channel: int = 0
    ) -> bytes | memoryview:
        sent_on: _Connection | None = None
        try:
            async with asyncio.timeout(self._request_timeout_ms / 1000):
                async with self._turns.setdefault((broker, channel), asyncio.Lock()):
                    connection = await self._connection_to(broker, channel)
                    await connection.wait_for_room()
                    reply = connection.send(frame)
                    sent_on = connection
                return await reply
        except TimeoutError:
            why = f"no answer within {self._request_timeout_ms} ms"
            if sent_on is not None:
                # Its reply may still come, and would be taken for the next request's.
                sent_on.drop(why)
            raise PeerUnreachable(f"broker {broker}: {why}") from None

    def is_on_this_host(self, broker: BrokerId, *, channel: int = 0) -> bool:
        connection = self._connections.get((broker, channel))
        return connection is not None and not connection.ended and connection.is_on_this_host

    async def hold(self, broker: BrokerId, *, on_reached: Callable[[], None], ms_max: int) -> None:
        connection = await self._connect(broker, self._address_of(broker))
        self._held[connection] = None
        try:
            on_reached()
            async with asyncio.timeout(ms_max / 1000):
                await connection.gone.wait()
        except TimeoutError:
            pass
        finally:
            self._held.pop(connection, None)
            connection.drop("no longer held")

    async def close(self) -> None:
        """Close all connections; their pending requests fail."""
        self._closed = True
        connections = [*self._connections.values(), *self._held]
        for connection in connections:
            connection.drop("closed by this broker")
        for connection in connections:
            await connection.gone.wait()

    async def _connection_to(self, broker: BrokerId, channel: int) -> "_Connection":
        address = self._address_of(broker)
        connection = self._connections.get((broker, channel))
        if connection is not None and connection.address != address:
            connection.drop(f"it is now at {address[0]}:{address[1]}")
        if connection is None or connection.ended:
            connection = await self._connect(broker, address)
            self._connections[broker, channel] = connection
        return connection

    def _address_of(self, broker: BrokerId) -> Address:
        if self._closed:
            raise PeerUnreachable(f"broker {broker}: connections are closed")
        address = self._addresses.get(broker)
        if address is None:
            raise PeerUnreachable(f"broker {broker}: no address is known for it")
        return address

    async def _connect(self, broker: BrokerId, address: Address) -> "_Connection":
        connection = _Connection(
            broker,
            address,
            reply_bytes_max=self._reply_bytes_max,
            requests_in_flight_max=self._requests_in_flight_max,
        )
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                await self._open(connection, address)
        except TimeoutError:
            why = f"no connection within {self._connect_timeout_ms} ms"
            connection.drop(why)
            raise PeerUnreachable(f"{connection}: {why}") from None
        except ConnectionRefusedError as error:
            # For a name with several addresses, uvloop reports this only if all of them refuse.
            raise PeerRefused(f"{connection}: {error.strerror or error}") from error
        except OSError as error:
            raise PeerUnreachable(f"{connection}: {error.strerror or error}") from error
        except PeerUnreachable as error:
            connection.drop(str(error))
            raise
        if self._closed:
            connection.drop("closed by this broker")
        return connection

    async def _open(self, connection: "_Connection", address: Address) -> None:
        """Connect, and log in. Only a refused TCP connection says that the peer is dead, never a failed handshake."""
        loop, security = asyncio.get_running_loop(), self._security
        context = None if security is None else security.context()
        if context is None:
            await loop.create_connection(lambda: connection, *address)
        else:
            await loop.create_connection(
                lambda: connection, *address, ssl=context, server_hostname=address[0]
            )
        if security is not None:

            async def request(frame: bytes) -> memoryview:
                await connection.wait_for_room()
                return await connection.send(frame)

            await security.log_in(request)


class _Connection(asyncio.BufferedProtocol):
    """One connection: requests and replies, matched by their order.

    Bytes are received into a small buffer. A reply that does not fit gets a buffer of its own for the rest.
    """

    def __init__(
        self,
        broker: BrokerId,
        address: Address,
        *,
        reply_bytes_max: int,
        requests_in_flight_max: int,
    ) -> None:
        self.address = address
        # Why the connection has ended; empty while it is open.
        self.ended = ""
        # Set when the socket is closed too.
        self.gone = asyncio.Event()
        # Whether its two ends have the same address.
        self.is_on_this_host = False
        self.broker = broker
        self._reply_bytes_max = reply_bytes_max
        self._requests_in_flight_max = requests_in_flight_max
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[asyncio.Future[memoryview]] = deque()
        self._landing = memoryview(bytearray(LANDING_BYTES))
        # Number of unprocessed bytes in the buffer.
        self._landed = 0
        # The large reply being received, and its bytes so far.
        self._large: memoryview | None = None
        self._large_received = 0
        self._paused = False
        self._room = asyncio.Event()

    def __str__(self) -> str:
        host, port = self.address
        # A peer known only by its address has a negative number, which would be meaningless in a message.
        who = f"broker {self.broker}" if self.broker >= 0 else "the broker"
        return f"{who} at {host}:{port}"

    async def wait_for_room(self) -> None:
        """Wait until one more request may be sent.

        Raises:
            PeerUnreachable: the connection ended meanwhile.
        """
        while not self.ended and (
            self._paused or len(self._waiting) >= self._requests_in_flight_max
        ):
            self._room.clear()
            await self._room.wait()
        if self.ended:
            raise PeerUnreachable(f"{self}: {self.ended}")

    def send(self, frame: bytes) -> "asyncio.Future[memoryview]":
        assert self._transport is not None
        self._transport.writelines((len(frame).to_bytes(_SIZE_BYTES), frame))
        reply: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        # A cancelled request stays in the queue: its reply still comes, and is dropped.
        self._waiting.append(reply)
        return reply

    def drop(self, why: str) -> None:
        """Close the connection at once, and fail all pending requests.

        Unsent data is discarded too: otherwise the kernel would retry for minutes, and requests repeated elsewhere
        meanwhile would arrive a second time.
        """
        self._end(why)
        transport = self._transport
        if transport is None:
            return
        own = transport.get_extra_info("socket")
        if own is not None and not transport.is_closing():
            own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGERING)
        transport.abort()

    # -- asyncio.BufferedProtocol --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: uvloop's transports are not asyncio classes.
        self._transport = cast("asyncio.Transport", transport)
        ours, theirs = (transport.get_extra_info(name) for name in ("sockname", "peername"))
        self.is_on_this_host = ours is not None and theirs is not None and ours[0] == theirs[0]

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        if self._large is not None:
            return self._large[self._large_received :]
        return self._landing[self._landed :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._large is None:
            self._landed += nbytes
            self._deliver()
            return
        self._large_received += nbytes
        if self._large_received == len(self._large):
            reply, self._large = self._large, None
            self._complete(reply)

    def _deliver(self) -> None:
        """Deliver complete replies; a large incomplete one moves to its own buffer, a small one stays."""
        landing, end = self._landing, self._landed
        begin = 0
        while end - begin >= _SIZE_BYTES and not self.ended:
            size = int.from_bytes(landing[begin : begin + _SIZE_BYTES], signed=True)
            if not 0 <= size <= self._reply_bytes_max:
                self.drop(f"reply of {size} bytes, limit {self._reply_bytes_max}")
                return
            if not self._waiting:
                self.drop("it sent an unexpected reply")
                return
            body = begin + _SIZE_BYTES
            if size > end - body:
                if size > len(landing) - _SIZE_BYTES:
                    self._large = memoryview(uncleared(size))
                    self._large_received = end - body
                    self._large[: end - body] = landing[body:end]
                    begin = end
                break
            begin = body + size
            # A copy: this buffer is reused.
            self._complete(memoryview(bytes(landing[body:begin])))
        if begin:
            self._landed = end - begin
            landing[: self._landed] = landing[begin:end]

    def _complete(self, reply: memoryview) -> None:
        waiting = self._waiting.popleft()
        if not waiting.done():
            waiting.set_result(reply.toreadonly())
        self._room.set()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = getattr(exc, "strerror", None) or str(exc or "")
        self._end(f"the connection broke: {reason}" if reason else "it closed the connection")
        self.gone.set()

    def _end(self, why: str) -> None:
        if self.ended:
            return
        self.ended = why
        self._large = None
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(PeerUnreachable(f"{self}: {why}"))
        self._waiting.clear()
        self._room.set()
