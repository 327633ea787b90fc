"""One simulated connection: two ends, and the bytes in transit between them."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Any, Literal, Protocol, cast

from respool.sim.runtime.process import Process
from respool.sim.runtime.sim_loop import SimLoop

# How much both kernels buffer in one direction; beyond it the writer must pause.
WINDOW_BYTES = 256 * 1024

# Bytes, or the end of the stream: a clean close or a reset.
Segment = bytes | Literal["close", "reset"]


class Carrier(Protocol):
    """The network between the two ends: `SimNetwork`."""

    # Whether both ends of all connections have the same address.
    is_one_machine: bool

    @property
    def loop(self) -> SimLoop: ...

    def latency_s(self) -> float: ...

    def pieces(self, data: bytes) -> Iterable[bytes]:
        """The pieces in which a write arrives."""

    def is_blocked(self, source: str, target: str) -> bool: ...

    def is_host_down(self, host: str) -> bool: ...


class SimConnection:
    """Client and server end of one connection."""

    def __init__(self, network: Carrier, *, client: Process, server: Process) -> None:
        self.network = network
        self.client = SimTransport(self, client)
        self.server = SimTransport(self, server)
        self.client.peer, self.server.peer = self.server, self.client
        # Whether the next bytes from the server are lost, and the connection with them.
        self.loses_next_reply = False
        self.hosts = (client.host, server.host)

    @property
    def has_ended(self) -> bool:
        return self.client.has_ended and self.server.has_ended

    def reset(self) -> None:
        """Both ends lose the connection at once, and bytes in transit are lost."""
        for end in (self.client, self.server):
            end.forget_arriving()
            end.lose(ConnectionResetError(104, "connection reset"))

    def flush(self) -> None:
        """Send what was held back, in case a cut has healed."""
        for end in (self.client, self.server):
            end.flush()

    def on_process_gone(self, process: Process, *, is_notified: bool) -> None:
        for end in (self.client, self.server):
            if end.process is process and not end.has_ended:
                end.vanish()
                if is_notified:
                    end.send("reset")


class SimTransport(asyncio.Transport):
    """One end of a connection, as its protocol uses it."""

    def __init__(self, link: SimConnection, process: Process) -> None:
        super().__init__()
        self.process = process
        self.peer: SimTransport = self
        self.has_ended = False
        self._link = link
        self._network = link.network
        self._loop = link.network.loop
        self._protocol: Any = None
        self._peername: tuple[str, int] = ("", 0)
        self._is_closing = False
        self._has_begun = False
        self._is_reading_paused = False
        self._is_writer_paused = False
        # Arrived, but not yet delivered to the protocol.
        self._unread: deque[Segment] = deque()
        # Held back by a network partition.
        self._held: deque[Segment] = deque()
        # Bytes that we sent and the other end has not read.
        self._bytes_under_way = 0
        self._last_arrival_s = 0.0
        # What was sent before a reset must not arrive after it.
        self._arrivals_void_before = 0
        self._sent = 0

    # -- asyncio.Transport -------------------------------------------------------------------------------------------

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sockname" and not self._network.is_one_machine:
            return default
        return self._peername if name in {"peername", "sockname"} else default

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the window is fixed."""

    def get_write_buffer_size(self) -> int:
        return max(0, self._bytes_under_way - WINDOW_BYTES)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or not self.process.is_alive or not data:
            return
        content = bytes(data)
        if self._link.loses_next_reply and self is self._link.server:
            self._loop.call_soon(self._link.reset, context=self._loop.world.context)
            return
        self._bytes_under_way += len(content)
        for piece in self._network.pieces(content):
            self.send(piece)
        if self._bytes_under_way > WINDOW_BYTES and not self._is_writer_paused:
            self._is_writer_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self._end("close")

    def abort(self) -> None:
        self._end("reset")

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        self._is_reading_paused = False
        if self._unread:
            self._call_soon(self._read)

    def is_reading(self) -> bool:
        return not self._is_reading_paused

    # -- for the network ---------------------------------------------------------------------------------------------

    def connect_to(self, protocol: asyncio.BaseProtocol, *, peername: tuple[str, int]) -> None:
        self._protocol = protocol
        self._peername = peername

    def begin(self) -> None:
        """Notify this end's protocol that the connection is established."""
        if self._has_begun or self.has_ended:
            return
        self._has_begun = True
        self._protocol.connection_made(self)
        self._read()

    def send(self, segment: Segment) -> None:
        """Send a segment to the other end, after everything sent before."""
        self._held.append(segment)
        self.flush()

    def flush(self) -> None:
        network, peer = self._network, self.peer
        source, target = self.process.host, peer.process.host
        while self._held and not network.is_blocked(source, target):
            segment = self._held.popleft()
            self._sent += 1
            arrives_s = max(self._last_arrival_s, self._loop.time() + network.latency_s())
            self._last_arrival_s = arrives_s
            # Scheduled for the machine, not the process: the process may be dead when the segment arrives.
            self._loop.call_at(
                arrives_s, peer.on_arrival, segment, self._sent, context=self._loop.world.context
            )

    def on_arrival(self, segment: Segment, number: int) -> None:
        """The segment has reached the machine; the process reads it when it runs."""
        if number <= self._arrivals_void_before:
            return
        if self.has_ended or not self.process.is_alive:
            if isinstance(segment, bytes) and not self._network.is_host_down(self.process.host):
                # Sending to a closed connection causes a reset.
                self.peer.lose(ConnectionResetError(104, "connection reset by peer"))
            return
        if isinstance(segment, bytes):
            self._loop.trace.bytes_moved(segment)
        self._unread.append(segment)
        self._call_soon(self._read)

    def forget_arriving(self) -> None:
        self._arrivals_void_before = self.peer._sent  # noqa: SLF001 - the other end is of the same class
        self._unread.clear()
        self._held.clear()

    def lose(self, error: Exception | None) -> None:
        """Close this end and notify its protocol."""
        if self.has_ended:
            return
        self.has_ended = self._is_closing = True
        if self.process.is_alive and self._protocol is not None:
            self._call_soon(self._tell_lost, error)

    def vanish(self) -> None:
        """The process is dead, so there is no protocol to notify."""
        self.has_ended = self._is_closing = True
        self._held.clear()

    # -- internals ---------------------------------------------------------------------------------------------------

    def _tell_lost(self, error: Exception | None) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._protocol.connection_made(self)
        self._protocol.connection_lost(error)

    def _call_soon(self, callback: Any, *args: Any) -> None:
        self._loop.call_soon(callback, *args, context=self.process.context)

    def _end(self, how: Literal["close", "reset"]) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if self.process.is_alive:
            self.send(how)
        self.lose(None)

    def _read(self) -> None:
        while (
            self._unread and self._has_begun and not self._is_reading_paused and not self.has_ended
        ):
            segment = self._unread.popleft()
            if segment == "close":
                self._protocol.eof_received()
                self._end("close")
            elif segment == "reset":
                self.lose(ConnectionResetError(104, "connection reset by peer"))
            else:
                assert isinstance(segment, bytes)
                self._give(segment)

    def _give(self, data: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            self.peer.on_taken(len(data))
            protocol.data_received(data)
            return
        buffer = cast("memoryview", protocol.get_buffer(-1))
        size = min(len(data), len(buffer))
        buffer[:size] = data[:size]
        if size < len(data):
            self._unread.appendleft(data[size:])
        self.peer.on_taken(size)
        protocol.buffer_updated(size)

    def on_taken(self, size: int) -> None:
        """The other end has read `size` of our bytes."""
        self._bytes_under_way -= size
        if self._is_writer_paused and self._bytes_under_way <= WINDOW_BYTES and not self.has_ended:
            self._is_writer_paused = False
            self._call_soon(self._protocol.resume_writing)
