"""One client's connection: bytes in, requests to the broker in order, replies out in order.

Each of these holds the connection back:
- the request in flight has not taken effect: the next one must see its effects (`_current`)
- too many pipelined requests wait for their replies
- the client does not read its replies (`pause_writing`)
- the memory budget has no room for a larger receive buffer (`flow_control.py`)
While held back, it parses no further request; when the receive buffer is full it stops reading, so that TCP slows the
client.
"""

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from time import perf_counter
from typing import Any, cast

from respool.broker.broker import Broker
from respool.broker.dispatch import handle
from respool.broker.handlers.support.registration import Handler
from respool.broker.outcome import CloseConnection, Pipelined, Reply
from respool.model.addresses import peer_host
from respool.model.security.principal import NO_SESSION
from respool.server.admission import Admission, first_session
from respool.server.connection_log import ConnectionLog
from respool.server.connection_owner import ConnectionOwner
from respool.server.flow_control import FlowControl
from respool.server.foreign_client import foreign_client_of
from respool.server.listener_endpoint import ListenerEndpoint
from respool.server.request_arrivals import RequestArrivals
from respool.server.request_failures import is_broken_invariant
from respool.server.traffic import RequestTimes
from respool.server.written_replies import WrittenReplies
from respool.wire.api_table import Api, ApiSpec
from respool.wire.codec import Request, api_versions_fallback, decode_request
from respool.wire.frames import FrameReader
from respool.wire.protocol_errors import ProtocolViolation, UnsupportedApi
from respool.wire.reply_order import ReplyOrder, ReplySlot

FRAME_SIZE_BYTES = 4
# These may wait for minutes, and can be cancelled without leaving a change half done.
_WAITING = (Api.FETCH, Api.JOIN_GROUP, Api.SYNC_GROUP, Api.SASL_AUTHENTICATE, Api.SHARE_FETCH)


class ClientConnection(asyncio.BufferedProtocol):
    def __init__(
        self,
        *,
        broker: Broker,
        owner: ConnectionOwner["ClientConnection"],
        handler: Handler | None = None,
        endpoint: ListenerEndpoint | None = None,
    ) -> None:
        """Without an `endpoint`, the connection is in the clear and has no login."""
        self._broker = broker
        self.endpoint = endpoint
        self._owner = owner
        # None stands for `dispatch.handle`.
        self._handler = handler
        self._traffic = owner.traffic
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(frame_bytes_max=broker.settings.network.frame_bytes_max)
        self._flow = FlowControl(reader=self._reader, memory=broker.memory, loop=self._loop)
        self._replies = ReplyOrder()
        self._pipelined_max = broker.settings.network.requests_pipelined_max
        self._current: asyncio.Task[Reply] | None = None
        self._is_writing_paused = False
        self._is_closing = False
        self._is_sending_soon = False
        # A request that must not start before all earlier ones are answered.
        self._deferred: Request | None = None
        self._arrivals = RequestArrivals()
        self._written = WrittenReplies(owner.traffic)
        self._log = ConnectionLog(owner.refusals, loop=self._loop)
        self._client_host = ""
        self.session = NO_SESSION
        # None: clients are served at once.
        self._admission: Admission | None = None
        # The client id in its last request.
        self.client_id: str | None = None
        self.connected_at = self._loop.time()
        # When the client last sent anything, and when its last complete request was parsed.
        self.last_active = self.last_taken = self._loop.time()

    # -- called by the transport -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have asyncio's interface, but not its base class.
        self._transport = self._flow.transport = transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        peer = peer_host(address[0]) if isinstance(address, tuple) else str(address)
        self._log.peer = peer
        self._client_host = f"/{peer}"
        self.session, self._admission = first_session(self.endpoint, peer)
        if self._admission is not None:
            self._follow_admission(self._admission)
        # Each write is tried immediately; bytes that the kernel does not accept pause this connection.
        transport.set_write_buffer_limits(high=0)
        if not self._owner.on_connected(self):
            self._begin_closing()
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._begin_closing()
        if self._current is not None and self._is_only_waiting():
            # The reply has no receiver. Requests that change something are finished: a topic must not be half created.
            self._current.cancel()
        self._flow.close()
        self._broker.shares.on_disconnected(self)
        self._owner.on_disconnected(self)
        if error is not None:
            self._log.lost(error)

    def get_buffer(self, _size_hint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, count: int) -> None:
        self.last_active = self._loop.time()
        self._reader.on_received(count)
        self._arrivals.bytes_received += count
        self._proceed()
        if self._reader.has_unread and self._is_held_back():
            self._arrivals.on_waiting()

    def pause_writing(self) -> None:
        self._is_writing_paused = True
        self._flow.on_writing_paused()

    def resume_writing(self) -> None:
        self._is_writing_paused = False
        self._written.on_sent()
        self.last_active = self._loop.time()
        self._flow.give_unsent()
        self._proceed()

    def on_secured(self, certificate: bytes | None) -> None:
        """The TLS handshake is done; the certificate is the client's, in DER."""
        assert self._admission is not None
        if (why := self._admission.on_secured(certificate)) is not None:
            self.close(why, kind="certificate")
        self._follow_admission(self._admission)

    def on_handshake_failed(self, why: str) -> None:
        assert self._admission is not None
        self._admission.on_handshake_failed()
        self._begin_closing()
        self._log.closed(f"no TLS handshake: {why}", kind=why)

    def _follow_admission(self, admission: Admission) -> None:
        """Take over what the client has proved, and how large its requests may be."""
        self.session = admission.session
        limit = admission.frame_bytes_max
        network = self._broker.settings.network
        self._reader.limit_frames(network.frame_bytes_max if limit is None else limit)
        if admission.closes:
            self._begin_closing()
        elif admission.is_admitted:
            self._owner.on_admitted(self)

    # -- called by the listener --------------------------------------------------------------------------------------

    @property
    def peer(self) -> str:
        """The client's address."""
        return self._log.peer

    @property
    def is_busy(self) -> bool:
        """True while requests are in flight or replies unsent, and while a quota mutes the client."""
        is_waiting = self._replies.waiting > 0 or self._flow.is_muted
        return self._current is not None or is_waiting or self._is_writing_paused

    @property
    def is_stranger(self) -> bool:
        """True until the client has proved what the listener demands."""
        return self._admission is not None and not self._admission.is_admitted

    @property
    def is_waiting_for_memory(self) -> bool:
        """True while reading is paused for lack of memory, which is not the client's fault."""
        return self._flow.is_waiting_for_memory

    @property
    def last_grown(self) -> float:
        """When the receive buffer last grew."""
        return self._flow.last_grown

    @property
    def is_mid_frame(self) -> bool:
        return self._reader.is_mid_frame

    def stalled_s(self, now: float) -> float:
        """Return how long the client has read nothing of its waiting replies. Called periodically."""
        return self._flow.stalled_s(now) if self._is_writing_paused else 0.0

    def shrink(self) -> None:
        """Release the memory of an earlier large request. Called periodically."""
        self._flow.shrink()

    def stop_taking_requests(self) -> None:
        """Begin to close: requests in flight are finished and answered."""
        self._begin_closing()
        if self._transport.is_closing():
            return
        self._flow.pause_reading()
        # A fetch may wait long for data, and a join for members; the client will retry elsewhere.
        if self._is_only_waiting() or not self.is_busy:
            self._transport.close()

    def close(self, reason: str, *, kind: str = "", level: int = logging.WARNING) -> None:
        """Drop the connection without a reply. `kind`: see `ConnectionLog.closed`."""
        if self._is_closing and self._transport.is_closing():
            return
        self._log.closed(reason, kind=kind, level=level)
        self._begin_closing()
        self._transport.abort()

    def _begin_closing(self) -> None:
        """Take no further requests, and do not resume reading."""
        self._is_closing = self._flow.is_closing = True

    # -- requests ----------------------------------------------------------------------------------------------------

    def _proceed(self) -> None:
        """Start complete requests until something holds the connection back, then send the replies that are ready."""
        has_taken_any = False
        try:
            while True:
                if self._replies.waiting >= self._pipelined_max:
                    self._send_ready()
                if self._is_held_back():
                    break
                request = self._deferred or self._next_request()
                if request is None:
                    break
                has_taken_any = True
                self._deferred = None
                if self._must_wait(request):
                    self._arrivals.on_deferred()
                    self._deferred = request
                    break
                self._start(request)
        except ProtocolViolation as error:
            self._send_ready()
            self._refuse(error)
            return
        self._send_ready()
        if self.is_stranger and not self._owner.may_grow(self, self._reader.growth_wanted):
            return
        if has_taken_any:
            self.last_taken = self.last_active
            self._flow.on_requests_taken()
        self._flow.adjust_reading()

    def _refuse(self, error: ProtocolViolation) -> None:
        foreign = None
        if not self._arrivals.bytes_taken:
            metrics_listen = self._broker.settings.metrics.listen
            foreign = foreign_client_of(error, metrics_listen=metrics_listen)
        if foreign is None:
            self.close(str(error), kind=type(error).__name__)
            return
        self._log.closed(foreign.reason)
        self._begin_closing()
        if foreign.reply:
            # Nothing was sent on this connection yet, so the kernel accepts these few bytes immediately.
            self._transport.writelines([foreign.reply])
            self._transport.close()
        else:
            self._transport.abort()

    def _next_request(self) -> Request | None:
        while (frame := self._reader.next_frame()) is not None:
            self._arrivals.bytes_taken += FRAME_SIZE_BYTES + len(frame)
            try:
                if self._admission is not None:
                    self._admission.check_frame(frame)
                return decode_request(frame)
            except UnsupportedApi as error:
                if error.key != Api.API_VERSIONS:
                    raise
                self._replies.open_reply().fill([api_versions_fallback(error.correlation_id)])
                self._send_ready()
        return None

    def _must_wait(self, request: Request) -> bool:
        """True if earlier replies must be sent before this request starts.

        Only produce requests are pipelined, since their replies are small. Larger replies would pile up behind one that
        is not ready or that the client does not read.
        """
        if not self._replies.waiting or request.api.key == Api.PRODUCE:
            return False
        self._send_ready()
        return self._replies.waiting > 0 or self._is_writing_paused

    def _is_held_back(self) -> bool:
        return (
            self._current is not None
            or self._flow.is_muted
            or self._is_writing_paused
            or self._is_closing
            or self._replies.waiting >= self._pipelined_max
        )

    def _start(self, request: Request) -> None:
        began = perf_counter()
        queued_s = self._arrivals.queued_s(began)
        request.client_host = self._client_host
        request.session = self.session
        request.connection = self
        self.client_id = request.client_id
        self._traffic.on_request(request)
        slot = self._replies.open_reply()
        slot.api = request.api
        try:
            if self._admission is not None and self._admission.serves(request):
                outcome = self._admission.serve(request)
                self._follow_admission(self._admission)
            else:
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
        # Brokers have one request in flight per connection, so the next charged reply is this one's.
        self._flow.is_of_follower = request.is_of_follower
        now = perf_counter()
        times = RequestTimes(queued_s, now - began, 0.0)
        if isinstance(outcome, Pipelined):
            # Pass only the API, not the request: its records are freed while the reply waits.
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
        # One sync completes many requests: their replies leave in one write at the end of this loop iteration.
        if slot.fill(reply) and not self._is_sending_soon:
            self._is_sending_soon = True
            self._loop.call_soon(self._send_soon)

    def _send_soon(self) -> None:
        self._is_sending_soon = False
        # Send first: the number of waiting replies may be what holds back the next requests.
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
            if self._admission is not None:
                self._follow_admission(self._admission)
            self._send_ready()
            self._proceed()
        elif is_broken_invariant(error):
            self._broker.fail(error)
            self.close("the broker stops")
        elif isinstance(error, CloseConnection):
            self.close(str(error), kind=f"{request.api.name} refused")
        else:
            self._on_unexpected(request, error)

    def _on_unexpected(self, request: Request, error: BaseException) -> None:
        self._log.failed(request, error)
        self.close(f"{request.api.name} failed unexpectedly")

    def _is_only_waiting(self) -> bool:
        """True if the request in flight only waits and may be cancelled."""
        return self._current is not None and Api[self._current.get_name()] in _WAITING

    # -- replies -----------------------------------------------------------------------------------------------------

    def _send_ready(self) -> None:
        ready = self._replies.take_ready()
        if ready and not self._transport.is_closing():
            self._transport.writelines(ready)
            self._written.on_written(self._replies)
            if self._is_writing_paused:
                self._flow.charge_unsent()
            else:
                self._written.on_sent()
        else:
            # There are only requests without a reply.
            self._replies.taken.clear()
        if self.session.buckets is not None:
            # If the client is over a quota, it is answered and then muted.
            self._flow.mute(self._broker.quotas.muted_ms(self.session), then=self._on_unmuted)
        if self._is_closing and not self.is_busy and not self._transport.is_closing():
            self._transport.close()

    def _on_unmuted(self) -> None:
        self.last_active = self._loop.time()
        if not self._transport.is_closing():
            self._proceed()
