"""gRPC to one etcd member: one question and its answer, or a watch that stays open. Every wait has an end.

What fails is a `CallFailed`, which tells whether it may have been done nevertheless. The library below wakes a waiting
call by cancelling its task, which asyncio's timeouts and task groups would take for a cancellation of their own: so
each call has a task of its own, and the caller only waits for that.
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
from respool.drivers.etcd_failures import CallFailed, Verdict, answered
from respool.drivers.etcd_options import Endpoint
from respool.drivers.etcd_tls import EtcdTls

T = TypeVar("T")

# So many calls in a row without an answer, and the connection is thought dead: the next call makes a new one.
SILENT_CALLS_MAX = 2

# What the libraries raise when a connection ends, or brings what no server should send.
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
    """Connects when first used, and again when used after it broke. Any number of calls at a time."""

    def __init__(self, endpoint: Endpoint, tls: EtcdTls | None, *, connect_timeout_ms: int) -> None:
        self._endpoint = endpoint
        self._tls = tls if endpoint.is_tls else None
        self._connect_timeout_ms = connect_timeout_ms
        self._channel: EtcdChannel | None = None
        # Grows whenever what was agreed on with the server may be forgotten: a login belongs to one of these numbers.
        self.generation = 0
        self._silent_calls = 0
        # In the order of their beginning.
        self._under_way: dict[asyncio.Task[Any], None] = {}
        self._is_closed = False

    async def exchange(
        self,
        method: msg.Method[msg.Ask, msg.Reply],
        ask: msg.Ask,
        *,
        metadata: Mapping[str, str],
        timeout_ms: int,
    ) -> msg.Reply:
        """One question, one answer.

        Raises:
            CallFailed: there was no answer in time, or it was an error.
        """
        if self._channel is None:
            self._channel = self._new_channel()
        stream = _request(self._channel, method, metadata)
        is_sent = False

        async def run() -> msg.Reply | None:
            nonlocal is_sent
            async with stream:
                await self._connect(stream)
                is_sent = True
                await stream.send_message(ask, end=True)
                return await stream.recv_message()

        task = self._start(run())
        if not await wait_or_cancel(task, timeout_ms):
            self._on_silence()
            verdict = Verdict.UNKNOWN if is_sent else Verdict.NOT_DONE
            raise CallFailed(f"no answer within {timeout_ms} ms", verdict)
        try:
            reply = self.result_of(task)
        except CallFailed as failure:
            if not is_sent:
                failure.verdict = Verdict.NOT_DONE
            if failure.status is None:
                self.generation += 1
            raise
        self._silent_calls = 0
        if reply is None:
            raise CallFailed("the answer was empty", Verdict.UNKNOWN)
        return reply

    def watch(self, create: msg.WatchCreate, *, metadata: Mapping[str, str]) -> "WatchStream":
        """Begin to watch, on a connection of its own; whether it stands is told by the first reply.

        What a slow reader leaves unread counts against all that its connection may have under way: on a shared one
        the answers to everybody else would wait for that reader.

        Raises:
            CallFailed: the connection is closed for good.
        """
        channel = self._new_channel()
        stream = _request(channel, msg.WATCH, metadata)
        replies: asyncio.Queue[msg.WatchReply] = asyncio.Queue(WatchStream.REPLIES_WAITING_MAX)

        async def pump() -> None:
            try:
                async with stream:
                    await self._connect(stream)
                    await stream.send_message(msg.WatchAsk(create=create))
                    while (reply := await stream.recv_message()) is not None:
                        await replies.put(reply)
                    # Only now does the library tell why the server ended it.
                    await stream.end()
            finally:
                channel.close()
                await channel.wait_until_gone()

        return WatchStream(self, channel, replies, self._start(pump()))

    async def is_alive(self, channel: EtcdChannel, *, timeout_ms: int) -> bool:
        """Whether the server answers anything on this connection, be it an error."""

        async def run() -> None:
            async with _request(channel, msg.STATUS, {}) as stream:
                await stream.send_message(msg.Nothing(), end=True)
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
        """Calls under way fail, and later ones too."""
        self._is_closed = True
        waiting, channel = list(self._under_way), self._channel
        self._drop()
        if waiting:
            await asyncio.wait(waiting)
        if channel is not None:
            await channel.wait_until_gone()

    def result_of(self, task: asyncio.Task[T]) -> T:
        """What came of a call's task that has ended.

        Raises:
            CallFailed: nothing good.
        """
        if task.cancelled():
            reason = "closed" if self._is_closed else "the connection was given up"
            raise CallFailed(reason, Verdict.UNKNOWN)
        try:
            return task.result()
        except GRPCError as error:
            raise answered(error) from error
        except _CONNECTION_ERRORS as error:
            raise CallFailed(self._in_words(error), Verdict.UNKNOWN) from error

    # -- inside ------------------------------------------------------------------------------------------------------

    def _new_channel(self) -> EtcdChannel:
        if self._is_closed:
            raise CallFailed("closed", Verdict.NOT_DONE)
        return EtcdChannel(self._endpoint, self._tls)

    async def _connect(self, stream: Stream[Any, Any]) -> None:
        """Connect where there is no connection, and announce the call; nothing has been asked by then."""
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
            # Looked at here, so that nobody complains when the one who asked has gone.
            task.exception()

    def _on_silence(self) -> None:
        """A call had no answer in time. A paused server and a connection that leads nowhere look the same."""
        self._silent_calls += 1
        if self._silent_calls >= SILENT_CALLS_MAX:
            self._drop()

    def _drop(self) -> None:
        self.generation += 1
        self._silent_calls = 0
        # First the calls, which might otherwise finish connecting what nobody will close.
        for task in list(self._under_way):
            task.cancel()
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _in_words(self, error: Exception) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({error.verify_message}): check etcd_ca_file"
        text = str(error) or type(error).__name__
        if isinstance(error, StreamTerminatedError | ConnectionResetError | ssl.SSLError):
            hint = "etcd_cert_file and etcd_key_file" if self._tls is not None else "https"
            text += f" (if it is so from the start: it may want {hint})"
        return text


class WatchStream:
    """One watch on one member. Replies wait here, few at a time, until they are taken."""

    REPLIES_WAITING_MAX = 16

    def __init__(
        self,
        connection: EtcdConnection,
        channel: EtcdChannel,
        replies: asyncio.Queue[msg.WatchReply],
        pump: asyncio.Task[None],
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._replies = replies
        self._pump = pump

    async def next(self, timeout_ms: int) -> msg.WatchReply | None:
        """The next reply, or None when there is none in time.

        Raises:
            CallFailed: the watch is over.
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
            raise CallFailed("the member ended the watch", Verdict.UNKNOWN)
        return None

    async def is_alive(self, timeout_ms: int) -> bool:
        """Whether the member still answers on this watch's connection. Ask when nothing is left to take here."""
        if self._pump.done():
            return False
        return await self._connection.is_alive(self._channel, timeout_ms=timeout_ms)

    async def close(self) -> None:
        self._pump.cancel()
        await asyncio.wait([self._pump])
        # Asking whether it lives may have connected it again, just after the watch ended.
        self._channel.close()
        await self._channel.wait_until_gone()


def _request(
    channel: EtcdChannel, method: msg.Method[msg.Ask, msg.Reply], metadata: Mapping[str, str]
) -> Stream[msg.Ask, msg.Reply]:
    return channel.request(
        method.path,
        Cardinality.STREAM_STREAM if method.is_stream else Cardinality.UNARY_UNARY,
        method.ask,
        method.reply,
        metadata=dict(metadata),
    )


async def wait_or_cancel(task: asyncio.Task[Any], timeout_ms: int) -> bool:
    """Wait for a task, and end it when it takes too long or nobody wants it any more. Whether it ended by itself."""
    try:
        await asyncio.wait([task], timeout=timeout_ms / 1000)
    finally:
        is_late = not task.done()
        if is_late:
            task.cancel()
            await asyncio.wait([task])
    return not is_late
