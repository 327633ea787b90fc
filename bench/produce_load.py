"""Producing as fast as a broker answers: prebuilt requests, several under way on each connection, one thread.

A connection keeps a burst of requests in one buffer. Before it is sent again only numbers in it are rewritten: the
correlation ids and, where asked for, the partition and the batch's time. Replies are checked for their id and error.
"""

import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct

from bench.requests import (
    CORRELATION_AT,
    INT,
    Batch,
    ProduceFrame,
    RequestFailed,
    connect,
    fail_load,
    stamp_time,
)

BURST_BYTES = 64 * 1024
REPLIES_BUFFER_BYTES = 256 * 1024
# After the last request; an fdatasync of much data may take a while.
DRAIN_SECONDS_MAX = 60.0
_REPLY_HEAD = Struct(">ii")
_ERROR = Struct(">h")
_CORRELATION_MASK = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceSpec:
    host: str
    port: int
    topic: str
    acks: int
    batch_bytes: int
    message_bytes: int
    connections: int = 1
    # Requests of one connection waiting for their replies.
    window: int = 8
    # Requests go round over this many partitions.
    partitions: int = 1
    # Ends at whichever comes first.
    seconds: float
    bytes_max: int
    warm_up_seconds: float = 0.0
    # 0: every batch carries the same time. Else the first batch's time, and how far apart batches are.
    time_first_ms: int = 0
    time_step_ms: int = 0


def window_for(batch_bytes: int) -> int:
    """Two megabytes under way: enough to keep a broker busy over its syncs, within what it lets one client pipeline."""
    return min(48, max(3, 2 * 1024 * 1024 // batch_bytes))


def run_produce(spec: ProduceSpec, announce: Callable[[], Callable[[int, int, int], None]]) -> None:
    time_ms = spec.time_first_ms or int(time.time() * 1000)
    batch = Batch.of_size(spec.batch_bytes, message_bytes=spec.message_bytes, time_ms=time_ms)
    load = _Load(spec, batch)
    try:
        if spec.warm_up_seconds:
            load.run(seconds=spec.warm_up_seconds, requests_max=spec.bytes_max // len(batch.data))
        finish = announce()
        requests = load.run(
            seconds=spec.seconds, requests_max=-(-spec.bytes_max // len(batch.data))
        )
        finish(requests, requests * batch.messages, requests * len(batch.data))
    except (RequestFailed, OSError) as error:
        fail_load(f"produce: {error}")


class _Load:
    def __init__(self, spec: ProduceSpec, batch: Batch) -> None:
        self._numbers = _Numbers(spec)
        self._connections = {}
        self._poll = select.epoll()
        for _ in range(spec.connections):
            connection = _Connection(
                spec, ProduceFrame(spec.topic, batch, acks=spec.acks), self._numbers
            )
            self._connections[connection.fileno] = connection
            self._poll.register(connection.fileno, select.EPOLLIN)

    def run(self, *, seconds: float, requests_max: int) -> int:
        """Send until time or number is reached, wait for all replies, and return how many requests it were."""
        self._numbers.requests_left = requests_max
        connections = self._connections
        ended_before = sum(one.replies for one in connections.values())
        deadline = time.perf_counter() + seconds
        for connection in connections.values():
            self._send(connection)
        while any(one.in_flight or one.unsent for one in connections.values()):
            now = time.perf_counter()
            if now > deadline:
                self._numbers.requests_left = 0
                if now > deadline + DRAIN_SECONDS_MAX:
                    raise RequestFailed(f"replies missing {DRAIN_SECONDS_MAX:.0f} s after the end")
            for fileno, events in self._poll.poll(1.0):
                connection = connections[fileno]
                if events & select.EPOLLIN:
                    connection.receive()
                elif events & (select.EPOLLHUP | select.EPOLLERR):
                    raise RequestFailed("the broker closed the connection")
                self._send(connection)
        return sum(one.replies for one in connections.values()) - ended_before

    def _send(self, connection: "_Connection") -> None:
        was_blocked = connection.is_blocked
        connection.send()
        if connection.is_blocked != was_blocked:
            events = select.EPOLLIN | (select.EPOLLOUT if connection.is_blocked else 0)
            self._poll.modify(connection.fileno, events)


class _Numbers:
    """What all connections count together."""

    def __init__(self, spec: ProduceSpec) -> None:
        self.requests_left = 0
        self._partitions = spec.partitions
        self._partition = 0
        self._time_ms = spec.time_first_ms
        self._time_step_ms = spec.time_step_ms

    def next_partition(self) -> int:
        self._partition = (self._partition + 1) % self._partitions
        return self._partition

    def next_time_ms(self) -> int:
        self._time_ms += self._time_step_ms
        return self._time_ms


class _Connection:
    def __init__(self, spec: ProduceSpec, one: ProduceFrame, numbers: _Numbers) -> None:
        self._numbers = numbers
        self._frame = one
        self._frame_bytes = len(one.data)
        self._frames = min(spec.window, max(1, BURST_BYTES // self._frame_bytes))
        self._burst = one.data * self._frames
        self._view = memoryview(self._burst)
        self._at = self._end = 0
        self._window = spec.window
        self._goes_round = spec.partitions > 1
        self._stamps_times = spec.time_first_ms > 0
        self._replies = bytearray(REPLIES_BUFFER_BYTES)
        self._replies_view = memoryview(self._replies)
        self._received = 0
        self._correlation_id = 0
        self._socket = connect(spec.host, spec.port, timeout_s=30.0)
        self._socket.setblocking(False)
        self.fileno = self._socket.fileno()
        self.is_blocked = False
        self.replies = 0
        self.in_flight = 0

    @property
    def unsent(self) -> int:
        return self._end - self._at

    def send(self) -> None:
        """Send until the window is full, nothing is left to send, or the socket takes no more."""
        while True:
            if self._at == self._end and not self._fill():
                self.is_blocked = False
                return
            try:
                self._at += self._socket.send(self._view[self._at : self._end])
            except BlockingIOError:
                self.is_blocked = True
                return

    def _fill(self) -> bool:
        """Make the burst ready to be sent again, if there is room for it under way."""
        count = min(self._frames, self._window - self.in_flight, self._numbers.requests_left)
        # Waiting until a whole burst fits saves system calls; the window is always several bursts.
        if (count < self._frames and count < self._numbers.requests_left) or count <= 0:
            return False
        for number in range(count):
            self._patch(number * self._frame_bytes)
        self._numbers.requests_left -= count
        self.in_flight += count
        self._at, self._end = 0, count * self._frame_bytes
        return True

    def _patch(self, start: int) -> None:
        burst, frame = self._burst, self._frame
        self._correlation_id = (self._correlation_id + 1) & _CORRELATION_MASK
        INT.pack_into(burst, start + CORRELATION_AT, self._correlation_id)
        if self._goes_round:
            INT.pack_into(burst, start + frame.index_at, self._numbers.next_partition())
        if self._stamps_times:
            stamp_time(
                burst, start + frame.batch_at, frame.batch_bytes, self._numbers.next_time_ms()
            )

    def receive(self) -> None:
        try:
            received = self._socket.recv_into(self._replies_view[self._received :])
        except BlockingIOError:
            return
        if not received:
            raise RequestFailed("the broker closed the connection")
        end = self._received + received
        at = 0
        while end - at >= 4:
            size = INT.unpack_from(self._replies, at)[0] + 4
            if end - at < size:
                break
            self._take_reply(at, size)
            at += size
        self._replies[: end - at] = self._replies[at:end]
        self._received = end - at

    def _take_reply(self, at: int, size: int) -> None:
        _, correlation_id = _REPLY_HEAD.unpack_from(self._replies, at)
        expected = (self._correlation_id - self.in_flight + 1) & _CORRELATION_MASK
        if correlation_id != expected:
            raise RequestFailed(f"reply to request {correlation_id}, expected {expected}")
        (error,) = _ERROR.unpack_from(self._replies, at + self._frame.reply_error_at)
        if error:
            raise RequestFailed(f"error code {error}: {bytes(self._replies[at : at + size])!r}")
        self.in_flight -= 1
        self.replies += 1
