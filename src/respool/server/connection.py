"""One client's connection: bytes in, requests to the broker in order, replies out in order.

What holds a connection back, each on its own:
- a request under way whose effects are not there yet: the next one must see them (`_current`)
- too many pipelined requests waiting for their replies
- the client does not take its replies (`pause_writing`): their memory is charged to the broker's budget
- the budget has no memory for a larger receive buffer
Held back, it parses no further request; when its receive buffer is full it stops reading, and TCP tells the client.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from functools import partial
from time import perf_counter
from typing import Any, Protocol, cast

from respool.broker.broker import Broker
from respool.broker.dispatch import handle
from respool.broker.handlers.support.registration import Handler
from respool.broker.outcome import CloseConnection, Pipelined, Reply
from respool.pacing.rate_limited_log import RateLimitedLog
from respool.server.foreign_client import foreign_client
from respool.server.traffic import RequestTimes
from respool.wire.api_table import Api, ApiSpec
from respool.wire.codec import Request, api_versions_fallback, decode_request
from respool.wire.frames import FrameReader
from respool.wire.protocol_errors import FrameTooLarge, ProtocolViolation, UnsupportedApi
from respool.wire.reply_order import ReplySlot, Session

logger = logging.getLogger(__name__)

FRAME_SIZE_BYTES = 4
# These may wait for minutes, and nothing stays half done when they are given up.
_WAITING_APIS = frozenset({Api.FETCH.name, Api.JOIN_GROUP.name, Api.SYNC_GROUP.name})


class ConnectionOwner(Protocol):
    """Who opened the connection's door: counts connections and keeps their tasks."""

    def on_connected(self, connection: "Connection") -> bool:
        """Whether there is room for it."""
        ...

    def on_disconnected(self, connection: "Connection") -> None: ...

    def own(self, task: "asyncio.Task[Reply]") -> None: ...

    @property
    def traffic(self) -> "TrafficCounter": ...

    @property
    def refusals(self) -> RateLimitedLog:
        """Where closed and refused connections are logged."""
        ...


class TrafficCounter(Protocol):
    """Told of every request, and of the reply it gets, if it gets one. See `traffic.py`."""

    def on_request(self, request: Request) -> None: ...

    def on_reply(self, api: ApiSpec, reply: Reply, times: RequestTimes) -> None: ...

    def on_sent(self, api: ApiSpec, seconds: float) -> None: ...


class Connection(asyncio.BufferedProtocol):
    def __init__(
        self, *, broker: Broker, owner: ConnectionOwner, handler: Handler | None = None
    ) -> None:
        self._broker = broker
        self._owner = owner
        # None: the broker's own.
        self._handler = handler
        self._traffic = owner.traffic
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(frame_bytes_max=broker.settings.network.frame_bytes_max)
        self._session = Session()
        self._pipelined_max = broker.settings.network.requests_pipelined_max
        self._current: asyncio.Task[Reply] | None = None
        self._is_writing_paused = False
        self._is_reading_paused = False
        self._is_closing = False
        self._is_sending_soon = False
        # Memory held from the budget: what the receive buffer grew by, and replies not yet taken.
        self._bytes_grown = 0
        self._bytes_unsent = 0
        # Whether those replies are charged as a follower's; and whether the last request was one's.
        self._is_unsent_of_follower = False
        self._is_of_follower = False
        # What was asked for and not granted yet, and the place in line of the request it is for.
        self._bytes_wanted = 0
        self._turn: int | None = None
        # A request that is not started before all earlier ones are answered.
        self._deferred: Request | None = None
        # For how long requests lie here before they are taken up: how many bytes have come, how many of them were
        # taken, and when those came that had to wait.
        self._bytes_received = 0
        self._bytes_taken = 0
        self._arrivals: deque[tuple[int, float]] = deque()
        self._deferred_since = 0.0
        # Replies that the kernel has not taken yet, and when they were ready.
        self._written: list[tuple[ApiSpec, float]] = []
        # The unsent bytes when last looked at, and since when they have not become fewer.
        self._unsent_seen = 0
        self._stalled_since = self._loop.time()
        self.peer = "unknown"
        # As its last request named it.
        self.client_id: str | None = None
        # When it last sent anything, when its buffer last grew, and when its last whole request was taken.
        self.last_active = self.last_grown = self.last_taken = self._loop.time()

    # The transport's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do all that asyncio's do, without being of its class.
        self._transport = transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.peer = address[0] if isinstance(address, tuple) else str(address)
        # Every write is tried at once; what the kernel does not take pauses this connection.
        transport.set_write_buffer_limits(high=0)
        if not self._owner.on_connected(self):
            self._is_closing = True
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        if self._current is not None and self._is_only_waiting():
            # Nobody waits for the reply any more. Other requests run to their end: half a topic
            # creation must not stay behind.
            self._current.cancel()
        memory = self._broker.memory
        if self._turn is not None:
            memory.forget_receiver(self._turn)
        memory.give_received(self._bytes_grown)
        self._give_unsent()
        self._bytes_grown = self._bytes_wanted = 0
        self._owner.on_disconnected(self)
        if error is not None:
            logger.debug("connection from %s lost: %s", self.peer, error)

    def get_buffer(self, _size_hint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, count: int) -> None:
        self.last_active = self._loop.time()
        self._reader.on_received(count)
        self._bytes_received += count
        self._proceed()
        if self._reader.has_unread and self._is_held_back():
            self._arrivals.append((self._bytes_received, perf_counter()))

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        self._stalled_since = self._loop.time()
        self._charge_unsent()

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._count_sent()
        self.last_active = self._loop.time()
        self._give_unsent()
        self._proceed()

    # The owner's calls.

    @property
    def is_busy(self) -> bool:
        """Whether requests are under way or replies are unsent."""
        return self._current is not None or self._session.waiting > 0 or self._is_writing_paused

    @property
    def is_waiting_for_memory(self) -> bool:
        """Whether we do not read on, though the client may send: that is not its fault."""
        return self._bytes_wanted > 0

    @property
    def is_mid_frame(self) -> bool:
        return self._reader.is_mid_frame

    def stalled_s(self, now: float) -> float:
        """Called now and then: for how long the client has taken nothing of the replies that wait for it."""
        if not self._is_writing_paused:
            return 0.0
        unsent = self._transport.get_write_buffer_size()
        if unsent < self._unsent_seen:
            self._stalled_since = now
        self._unsent_seen = unsent
        return now - self._stalled_since

    def shrink(self) -> None:
        """Called now and then: give back what a large request needed."""
        self._give_received(self._reader.maybe_shrink())

    def stop_taking_requests(self) -> None:
        """Begin to close: what is under way is finished and answered."""
        self._is_closing = True
        if self._transport.is_closing():
            return
        self._pause_reading()
        # A fetch may wait for data long after we are gone, a join for other members; the client will ask again.
        if self._is_only_waiting() or not self.is_busy:
            self._transport.close()

    def close(self, reason: str, *, kind: str = "", level: int = logging.WARNING) -> None:
        """Drop the connection; nothing more can be said on it.

        `kind` names reasons that differ only in details: a peer's are logged once a minute. Default: the reason itself.
        """
        if self._is_closing and self._transport.is_closing():
            return
        self._log_closed(reason, kind=kind, level=level)
        self._is_closing = True
        self._transport.abort()

    def _log_closed(self, reason: str, *, kind: str = "", level: int = logging.WARNING) -> None:
        message = "closed the connection from %s: %s"
        if level >= logging.WARNING:
            key = f"{self.peer} {kind or reason}"
            self._owner.refusals.log(
                level, message, self.peer, reason, now_s=self._loop.time(), key=key
            )
        else:
            logger.log(level, message, self.peer, reason)

    # Requests.

    def _proceed(self) -> None:
        """Handle whole requests until something holds the connection back, then send what is ready."""
        has_taken_any = False
        try:
            while True:
                if self._session.waiting >= self._pipelined_max:
                    self._send_ready()
                if self._is_held_back():
                    break
                request = self._deferred or self._next_request()
                if request is None:
                    break
                has_taken_any = True
                self._deferred = None
                if self._must_wait(request):
                    if self._deferred_since == 0.0:
                        self._deferred_since = self._arrived_at() or perf_counter()
                    self._deferred = request
                    break
                self._start(request)
        except ProtocolViolation as error:
            self._send_ready()
            self._refuse(error)
            return
        self._send_ready()
        if has_taken_any:
            self._turn = None
            self.last_taken = self.last_active
            if self._broker.memory.is_short_for_requests:
                # Others wait for what this connection's last request needed; its next one waits in turn.
                self._give_received(self._reader.release())
        self._adjust_reading()

    def _refuse(self, error: ProtocolViolation) -> None:
        foreign = None
        if isinstance(error, FrameTooLarge) and not self._bytes_taken:
            foreign = foreign_client(
                error.size, metrics_listen=self._broker.settings.metrics.listen
            )
        if foreign is None:
            self.close(str(error), kind=type(error).__name__)
            return
        self._log_closed(foreign.reason)
        self._is_closing = True
        if foreign.reply:
            # Nothing was sent on this connection before, so the kernel takes these few bytes at once.
            self._transport.writelines([foreign.reply])
            self._transport.close()
        else:
            self._transport.abort()

    def _next_request(self) -> Request | None:
        while (frame := self._reader.next_frame()) is not None:
            self._bytes_taken += FRAME_SIZE_BYTES + len(frame)
            try:
                return decode_request(frame)
            except UnsupportedApi as error:
                if error.key != Api.API_VERSIONS:
                    raise
                self._session.open_reply().fill([api_versions_fallback(error.correlation_id)])
                self._send_ready()
        return None

    def _must_wait(self, request: Request) -> bool:
        """Whether replies before this one must have left, and have not.

        Only produce requests are pipelined, for their replies are small. Replies to others would pile up behind one
        that waits, or that the client does not take.
        """
        if not self._session.waiting or request.api.key == Api.PRODUCE:
            return False
        self._send_ready()
        return self._session.waiting > 0 or self._is_writing_paused

    def _is_held_back(self) -> bool:
        return (
            self._current is not None
            or self._is_writing_paused
            or self._is_closing
            or self._session.waiting >= self._pipelined_max
        )

    def _arrived_at(self) -> float | None:
        """When the request that was taken last had come whole; None: only now."""
        arrivals = self._arrivals
        while arrivals and arrivals[0][0] < self._bytes_taken:
            arrivals.popleft()
        return arrivals[0][1] if arrivals else None

    def _queued_s(self, now: float) -> float:
        """How long the request that is taken up now has waited for those before it."""
        since, self._deferred_since = self._deferred_since, 0.0
        if not since and self._arrivals:
            since = self._arrived_at() or now
        return now - since if since else 0.0

    def _start(self, request: Request) -> None:
        began = perf_counter()
        queued_s = self._queued_s(began)
        request.client_host = f"/{self.peer}"
        self.client_id = request.client_id
        self._traffic.on_request(request)
        slot = self._session.open_reply()
        slot.api = request.api
        try:
            outcome = (self._handler or handle)(request, self._broker)
        except CloseConnection as error:
            self.close(str(error), kind=f"{request.api.name} refused")
            return
        except AssertionError as error:
            self._broker.fail(error)
            self.close("the broker stops")
            return
        except Exception as error:  # noqa: BLE001 - it is logged, with its traceback.
            self._on_unexpected(request, error)
            return
        # Brokers ask one thing after the other, so it is this reply that will be charged.
        self._is_of_follower = request.is_of_follower
        now = perf_counter()
        times = RequestTimes(queued_s, now - began, 0.0)
        if isinstance(outcome, Pipelined):
            # Of the request only its API: while it waits, nothing holds its records.
            outcome.then(partial(self._on_pipelined_reply, slot, request.api, now, times))
        elif isinstance(outcome, Coroutine):
            self._run(request, slot, outcome, now, times)
        else:
            self._traffic.on_reply(request.api, outcome, times)
            slot.ready_at = now
            slot.fill(outcome)

    def _run(
        self,
        request: Request,
        slot: ReplySlot,
        work: Coroutine[Any, Any, Reply],
        began: float,
        times: RequestTimes,
    ) -> None:
        task = self._loop.create_task(work, name=request.api.key.name)
        self._current = task
        self._owner.own(task)
        task.add_done_callback(partial(self._on_current_done, request, slot, began, times))

    def _on_pipelined_reply(
        self, slot: ReplySlot, api: ApiSpec, began: float, times: RequestTimes, reply: Reply
    ) -> None:
        slot.ready_at = now = perf_counter()
        self._traffic.on_reply(api, reply, RequestTimes(times[0], times[1], now - began))
        # One sync answers many requests at once: their replies leave with one write, at the end of
        # this turn of the loop.
        if slot.fill(reply) and not self._is_sending_soon:
            self._is_sending_soon = True
            self._loop.call_soon(self._send_soon)

    def _send_soon(self) -> None:
        self._is_sending_soon = False
        # First what waits leaves: its number may be what held the next requests back.
        self._send_ready()
        self._proceed()

    def _on_current_done(
        self,
        request: Request,
        slot: ReplySlot,
        began: float,
        times: RequestTimes,
        task: "asyncio.Task[Reply]",
    ) -> None:
        self._current = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            reply = task.result()
            slot.ready_at = now = perf_counter()
            queued_s, local_s, _ = times
            if request.waits_for_others:
                times = RequestTimes(queued_s, local_s, now - began)
            else:
                times = RequestTimes(queued_s, local_s + now - began, 0.0)
            self._traffic.on_reply(request.api, reply, times)
            slot.fill(reply)
            self._send_ready()
            self._proceed()
        elif _is_broken_invariant(error):
            self._broker.fail(error)
            self.close("the broker stops")
        elif isinstance(error, CloseConnection):
            self.close(str(error), kind=f"{request.api.name} refused")
        else:
            self._on_unexpected(request, error)

    def _on_unexpected(self, request: Request, error: BaseException) -> None:
        # Per API, not per peer: it is a bug of ours, and its traceback is long.
        self._owner.refusals.log(
            logging.ERROR,
            "%s failed",
            _describe(request),
            now_s=self._loop.time(),
            key=request.api.name,
            exc_info=error,
        )
        self.close(f"{request.api.name} failed unexpectedly")

    def _is_only_waiting(self) -> bool:
        """Whether the request under way has done what it does, and waits for others."""
        return self._current is not None and self._current.get_name() in _WAITING_APIS

    # Replies and flow.

    def _send_ready(self) -> None:
        ready = self._session.take_ready()
        if ready and not self._transport.is_closing():
            self._transport.writelines(ready)
            self._note_written()
            if self._is_writing_paused:
                self._charge_unsent()
            else:
                self._count_sent()
        else:
            # Requests that get no reply.
            self._session.taken.clear()
        if self._is_closing and not self.is_busy and not self._transport.is_closing():
            self._transport.close()

    def _note_written(self) -> None:
        # Not the slots themselves: they hold the replies, which may wait here for long.
        taken = self._session.taken
        self._written += [(one.api, one.ready_at) for one in taken if one.api and one.buffers]
        taken.clear()

    def _count_sent(self) -> None:
        """The kernel has taken all replies that were written."""
        now = perf_counter()
        for api, ready_at in self._written:
            self._traffic.on_sent(api, now - ready_at)
        self._written.clear()

    def _charge_unsent(self) -> None:
        unsent = self._transport.get_write_buffer_size()
        if unsent > self._bytes_unsent:
            if not self._bytes_unsent:
                # Until all is taken: what comes behind it is small, and is given back together with it.
                self._is_unsent_of_follower = self._is_of_follower
            self._broker.memory.take(
                unsent - self._bytes_unsent, is_to_follower=self._is_unsent_of_follower
            )
            self._bytes_unsent = unsent

    def _give_unsent(self) -> None:
        amount, self._bytes_unsent = self._bytes_unsent, 0
        self._broker.memory.give(amount, is_to_follower=self._is_unsent_of_follower)

    def _adjust_reading(self) -> None:
        if self._is_closing:
            return
        growth = self._reader.growth_wanted
        if (growth and not self._grow_buffer(growth)) or self._reader.is_full:
            self._pause_reading()
        elif self._is_reading_paused:
            self._is_reading_paused = False
            self._transport.resume_reading()

    def _grow_buffer(self, growth: int) -> bool:
        if self._bytes_wanted:
            return False
        memory = self._broker.memory
        if self._turn is None:
            self._turn = memory.next_turn()
        self._bytes_wanted = growth
        if not memory.receive(growth, turn=self._turn, on_granted=self._on_memory):
            return False
        self._grow()
        return True

    def _grow(self) -> None:
        self._bytes_grown += self._bytes_wanted
        self._bytes_wanted = 0
        self.last_grown = self._loop.time()
        self._reader.grow()

    def _on_memory(self) -> None:
        self._grow()
        self._adjust_reading()

    def _give_received(self, amount: int) -> None:
        if amount:
            self._bytes_grown -= amount
            self._broker.memory.give_received(amount)

    def _pause_reading(self) -> None:
        if not self._is_reading_paused:
            self._is_reading_paused = True
            self._transport.pause_reading()


def _is_broken_invariant(error: BaseException) -> bool:
    """Whether it is an assertion of ours, maybe of one of several tasks."""
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(AssertionError) is not None
    return isinstance(error, AssertionError)


def _describe(request: Request) -> str:
    """Enough to find the client, and nothing of what it sent."""
    return f"{request.api.name} v{request.version} of client {request.client_id!r}"
