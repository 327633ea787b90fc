"""gRPC to one etcd member: unary calls, and watches. Every wait has a time limit.

A failure is a `CallFailed` that says whether the call may have been executed. grpclib wakes a waiting call by
cancelling its task, which asyncio's timeouts and task groups would take for their own cancellation: so each call has a
task of its own, and the caller only waits for it.
"""

import asyncio
import ssl
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from grpclib.client import Stream
from grpclib.const import Cardinality
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.exceptions import ProtocolError as GrpcProtocolError
from h2.exceptions import H2Error

from respool.drivers import etcd_messages as msg
from respool.drivers.etcd_channel import EtcdChannel
from respool.drivers.etcd_failures import CallFailed, FailureKind, answered
from respool.drivers.etcd_options import Endpoint
from respool.drivers.etcd_tls import EtcdTls

T = TypeVar("T")

# After this number of consecutive calls without a reply, the connection counts as dead: the next call opens a new one.
SILENT_CALLS_MAX = 2

# Errors of the libraries when a connection ends, or the server sends invalid data.
_CONNECTION_ERRORS = (
    StreamTerminatedError,
    GrpcProtocolError,
    H2Error,
    OSError,
    ValueError,
    AssertionError,
    AttributeError,
    NotImplementedError,
)


class EtcdConnection:
    """Connects on first use, and again after the connection broke. Calls may run concurrently."""

    def __init__(self, endpoint: Endpoint, tls: EtcdTls | None, *, connect_timeout_ms: int) -> None:
        self._endpoint = endpoint
        self._tls = tls if endpoint.is_tls else None
        self._connect_timeout_ms = connect_timeout_ms
        self._channel: EtcdChannel | None = None
        # Incremented whenever the server may have lost our session: a login belongs to one of these generations.
        self.generation = 0
        self._silent_calls = 0
        # In start order.
        self._under_way: dict[asyncio.Task[Any], None] = {}
        self._is_closed = False

    async def exchange(
        self,
        method: msg.Method[msg.Request, msg.Response],
        ask: msg.Request,
        *,
        metadata: Mapping[str, str],
        timeout_ms: int,
    ) -> msg.Response:
        """Execute one unary call.

        Raises:
            CallFailed: there was no reply in time, or an error.
        """
        if self._channel is None:
            self._channel = self._new_channel()
        stream = _request(self._channel, method, metadata)
        is_sent = False

        async def run() -> msg.Response | None:
            nonlocal is_sent
            async with stream:
                await self._connect(stream)
                is_sent = True
                await stream.send_message(ask, end=True)
                return await stream.recv_message()

        task = self._start(run())
        if not await wait_or_cancel(task, timeout_ms):
            self._on_silence()
            kind = FailureKind.UNKNOWN if is_sent else FailureKind.NOT_DONE
            raise CallFailed(f"no answer within {timeout_ms} ms", kind)
        try:
            reply = self.result_of(task)
        except CallFailed as failure:
            if not is_sent:
                failure.kind = FailureKind.NOT_DONE
            if failure.status is None:
                self.generation += 1
            raise
        self._silent_calls = 0
        if reply is None:
            raise CallFailed("the answer was empty", FailureKind.UNKNOWN)
        return reply

    def watch(
        self, create: msg.WatchCreateRequest, *, metadata: Mapping[str, str]
    ) -> "WatchStream":
        """Start a watch on a connection of its own; the first response confirms it.

        Unread data of a slow reader counts against the connection's flow control: on a shared connection, all other
        calls would wait for that reader.

        Raises:
            CallFailed: the connection is closed for good.
        """
        channel = self._new_channel()
        stream = _request(channel, msg.WATCH, metadata)
        replies: asyncio.Queue[msg.WatchResponse] = asyncio.Queue(WatchStream.REPLIES_WAITING_MAX)

        async def pump() -> None:
            try:
                async with stream:
                    await self._connect(stream)
                    await stream.send_message(msg.WatchRequest(create=create))
                    while (reply := await stream.recv_message()) is not None:
                        await replies.put(reply)
                    # Only now does the library report why the server ended it.
                    await stream.end()
            finally:
                channel.close()
                await channel.wait_until_gone()

        return WatchStream(self, channel, replies, self._start(pump()))

    async def is_alive(self, channel: EtcdChannel, *, timeout_ms: int) -> bool:
        """True if the server replies on this connection, even with an error."""

        async def run() -> None:
            async with _request(channel, msg.STATUS, {}) as stream:
                await stream.send_message(msg.Empty(), end=True)
                await stream.recv_message()

        task = self._start(run())
        if not await wait_or_cancel(task, timeout_ms):
            return False
        try:
            self.result_of(task)
        except CallFailed as failure:
            return failure.status is not None
        return True

    async def close(self) -> None:
        """Pending and later calls fail."""
        self._is_closed = True
        waiting, channel = list(self._under_way), self._channel
        self._drop()
        if waiting:
            await asyncio.wait(waiting)
        if channel is not None:
            await channel.wait_until_gone()

    def result_of(self, task: asyncio.Task[T]) -> T:
        """The result of a finished call task.

        Raises:
            CallFailed: the call failed.
        """
        if task.cancelled():
            reason = "closed" if self._is_closed else "the connection was dropped"
            raise CallFailed(reason, FailureKind.UNKNOWN)
        try:
            return task.result()
        except GRPCError as error:
            raise answered(error) from error
        except _CONNECTION_ERRORS as error:
            raise CallFailed(self._describe(error), FailureKind.UNKNOWN) from error

    # -- private -----------------------------------------------------------------------------------------------------

    def _new_channel(self) -> EtcdChannel:
        if self._is_closed:
            raise CallFailed("closed", FailureKind.NOT_DONE)
        return EtcdChannel(self._endpoint, self._tls)

    async def _connect(self, stream: Stream[Any, Any]) -> None:
        """Connect if necessary, and open the stream; no request is sent yet."""
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                await stream.send_request()
        except TimeoutError:
            raise OSError(f"no connection within {self._connect_timeout_ms} ms") from None

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._under_way[task] = None
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._under_way.pop(task, None)
        if not task.cancelled():
            # Read here, so that asyncio does not log an unretrieved exception if the caller is gone.
            task.exception()

    def _on_silence(self) -> None:
        """A call got no reply in time. A paused server and a dead connection look the same."""
        self._silent_calls += 1
        if self._silent_calls >= SILENT_CALLS_MAX:
            self._drop()

    def _drop(self) -> None:
        self.generation += 1
        self._silent_calls = 0
        # The calls first: they might otherwise finish connecting a channel that nobody closes.
        for task in list(self._under_way):
            task.cancel()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _describe(self, error: Exception) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({error.verify_message}): check etcd_ca_file"
        text = str(error) or type(error).__name__
        if isinstance(error, StreamTerminatedError | ConnectionResetError | ssl.SSLError):
            hint = "etcd_cert_file and etcd_key_file" if self._tls is not None else "https"
            text += f" (if this happens at the first connection: it may require {hint})"
        return text


class WatchStream:
    """One watch on one member. A few responses are buffered here until they are taken."""

    REPLIES_WAITING_MAX = 16

    def __init__(
        self,
        connection: EtcdConnection,
        channel: EtcdChannel,
        replies: asyncio.Queue[msg.WatchResponse],
        pump: asyncio.Task[None],
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._replies = replies
        self._pump = pump

    async def next(self, timeout_ms: int) -> msg.WatchResponse | None:
        """The next response, or None if there is none in time.

        Raises:
            CallFailed: the watch has ended.
        """
        if self._replies.empty() and not self._pump.done():
            waiting = asyncio.ensure_future(self._replies.get())
            try:
                await asyncio.wait(
                    [waiting, self._pump],
                    timeout=timeout_ms / 1000,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if waiting.done():
                    return waiting.result()
            finally:
                waiting.cancel()
        if not self._replies.empty():
            return self._replies.get_nowait()
        if self._pump.done():
            self._connection.result_of(self._pump)
            raise CallFailed("the member ended the watch", FailureKind.UNKNOWN)
        return None

    async def is_alive(self, timeout_ms: int) -> bool:
        """True if the member still replies on this watch's connection. Call it when no response is buffered."""
        if self._pump.done():
            return False
        return await self._connection.is_alive(self._channel, timeout_ms=timeout_ms)

    async def close(self) -> None:
        self._pump.cancel()
        await asyncio.wait([self._pump])
        # `is_alive` may have connected again, just after the watch ended.
        self._channel.close()
        await self._channel.wait_until_gone()


def _request(
    channel: EtcdChannel, method: msg.Method[msg.Request, msg.Response], metadata: Mapping[str, str]
) -> Stream[msg.Request, msg.Response]:
    return channel.request(
        method.path,
        Cardinality.STREAM_STREAM if method.is_stream else Cardinality.UNARY_UNARY,
        method.request,
        method.response,
        metadata=dict(metadata),
    )


async def wait_or_cancel(task: asyncio.Task[Any], timeout_ms: int) -> bool:
    """Wait for a task, and cancel it after the timeout or when the caller is cancelled. True if it finished by
    itself.
    """
    try:
        await asyncio.wait([task], timeout=timeout_ms / 1000)
    finally:
        is_late = not task.done()
        if is_late:
            task.cancel()
            await asyncio.wait([task])
    return not is_late
