"""A socket that takes what a test lets it take, and an owner that lets everyone in."""

import asyncio
import logging
from typing import Any

from respool.broker.outcome import Reply
from respool.pacing.rate_limited_log import RateLimitedLog
from respool.server.client_connection import ClientConnection
from respool.server.traffic import RequestTimes
from respool.wire.api_table import ApiSpec
from respool.wire.codec import Request


class FakeTransport(asyncio.Transport):
    """`room` is how many bytes the kernel takes; the rest stays in the transport's buffer."""

    def __init__(self, *, room: int = 1 << 30) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000)})
        self.room = room
        self.sent = bytearray()
        self.writes = 0
        self.is_reading_paused = False
        self._buffered = bytearray()
        self._closing = False
        self._protocol: ClientConnection | None = None

    def attach(self, protocol: ClientConnection) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high == 0

    def writelines(self, list_of_data: Any) -> None:
        assert not self._closing
        self.writes += 1
        was_empty = not self._buffered
        self._buffered += b"".join(list_of_data)
        self._drain()
        if was_empty and self._buffered:
            assert self._protocol is not None
            self._protocol.pause_writing()

    def make_room(self, room: int) -> None:
        self.room += room
        self._drain()
        if not self._buffered:
            assert self._protocol is not None
            self._protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return len(self._buffered)

    def pause_reading(self) -> None:
        assert not self.is_reading_paused
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        assert self.is_reading_paused
        self.is_reading_paused = False

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._end()

    def abort(self) -> None:
        self._end()

    def _end(self) -> None:
        if not self._closing:
            self._closing = True
            assert self._protocol is not None
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def _drain(self) -> None:
        taken = min(self.room, len(self._buffered))
        self.sent += self._buffered[:taken]
        del self._buffered[:taken]
        self.room -= taken


class OpenDoor:
    """A `ConnectionOwner` without limits."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.replies: list[tuple[str, Reply]] = []
        # By API: how long each took until its reply was ready, and until the kernel had it.
        self.times: list[tuple[str, RequestTimes]] = []
        self.sent: list[tuple[str, float]] = []
        self.gone = 0
        self.refusals = RateLimitedLog(logging.getLogger(__name__))
        self._tasks: set[asyncio.Task[Reply]] = set()

    def on_connected(self, connection: ClientConnection) -> bool:
        return True

    def on_disconnected(self, connection: ClientConnection) -> None:
        self.gone += 1

    def on_admitted(self, connection: ClientConnection) -> None:
        pass

    def may_grow(self, connection: ClientConnection, amount: int) -> bool:
        return True

    def own(self, task: "asyncio.Task[Reply]") -> None:
        self._tasks.add(task)

    @property
    def traffic(self) -> "OpenDoor":
        return self

    def on_request(self, request: Request) -> None:
        self.requests.append(request)

    def on_sent(self, api: ApiSpec, seconds: float) -> None:
        self.sent.append((api.name, seconds))

    def on_reply(self, api: ApiSpec, reply: Reply, times: RequestTimes) -> None:
        assert min(times) >= 0
        self.times.append((api.name, times))
        self.replies.append((api.name, reply))
