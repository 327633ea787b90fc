"""Many requests in flight to each broker, for asyncio, over the blocking `Connection`.

    request() --> queue --> sending thread --> Connection --> receiving thread --> the request's future

`Connection` handles sockets, TLS and SASL. The two threads of a connection encode and decode, so that large batches do
not block the event loop. Brokers answer in the order of the requests. An error on a connection fails all its requests
in flight; the next request opens a new connection.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.connection import Connection
from respool.client.kafka.errors import (
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    ProtocolBroken,
)
from respool.client.kafka.versions import VersionRange
from respool.wire.api_table import Api
from respool.wire.client_codec import decode_reply
from respool.wire.protocol_errors import ProtocolViolation


class PipelinedRequests:
    """Requests to the brokers of a cluster. Use and `close` it in one event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pipelines: dict[tuple[int, int], _Pipeline] = {}
        self._replaced: list[_Pipeline] = []

    async def request(
        self,
        broker: int,
        api: Api,
        fields: Mapping[str, Any],
        *,
        versions: VersionRange | None = None,
        channel: int = 0,
        wait_ms: int = 0,
    ) -> Any:
        """Return the decoded reply. Requests to one broker on one channel are sent in the order of the calls.

        Each channel has its own connection: a request that waits at the broker delays none on other channels.
        `versions` narrows the range in `VERSIONS`; `wait_ms` is how long the request itself allows the broker to wait.

        Raises:
            BrokerUnreachable: no reply came; the broker may or may not have carried out the request.
            VersionUnsupported: the broker supports none of these versions.
            Untrusted: TLS or the login failed.
        """
        address = self._cluster.address_of(broker)
        pipeline = self._pipelines.get((broker, channel))
        if pipeline is None or not pipeline.is_usable or pipeline.address != address:
            if pipeline is not None:
                why = f"the connection to broker {broker} was replaced"
                pipeline.stop(BrokerUnreachable(why))
                self._replaced = [one for one in self._replaced if one.is_alive] + [pipeline]
            pipeline = self._pipelines[broker, channel] = _Pipeline(self._cluster, broker, address)
        return await pipeline.request(_QueuedRequest(api, fields, versions, wait_ms))

    async def close(self) -> None:
        """Close all connections, and the cluster. Requests in flight fail with `ClientClosed`."""
        self._cluster.interrupt()
        pipelines = [*self._pipelines.values(), *self._replaced]
        for pipeline in pipelines:
            pipeline.stop(ClientClosed("the client is closed"))
        for pipeline in pipelines:
            await asyncio.to_thread(pipeline.join)
        self._cluster.close()


class _QueuedRequest(NamedTuple):
    api: Api
    fields: Mapping[str, Any]
    versions: VersionRange | None
    wait_ms: int


class _SentRequest(NamedTuple):
    api: Api
    version: int
    wait_ms: int
    reply: "asyncio.Future[Any]"


class _Pipeline:
    """One connection and its two threads. The sending thread opens the connection and closes it."""

    def __init__(self, cluster: Cluster, broker: int, address: tuple[str, int]) -> None:
        self.address = address
        self._cluster = cluster
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        # Used only in the event loop's thread.
        self._waiting: set[asyncio.Future[Any]] = set()
        self._error: Exception | None = None
        # None ends the thread that takes it.
        self._unsent: SimpleQueue[tuple[_QueuedRequest, asyncio.Future[Any]] | None] = SimpleQueue()
        self._unanswered: SimpleQueue[_SentRequest | None] = SimpleQueue()
        self._connection: Connection | None = None
        self._sender = Thread(target=self._send, daemon=True, name=f"kafka-send-{broker}")
        self._sender.start()

    @property
    def is_usable(self) -> bool:
        if self._error is not None:
            return False
        # Brokers close idle connections.
        is_idle = self._connection is not None and not self._waiting
        return not is_idle or self._connection.is_fresh  # type: ignore[union-attr]

    @property
    def is_alive(self) -> bool:
        return self._sender.is_alive()

    async def request(self, queued: _QueuedRequest) -> Any:
        reply: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.add(reply)
        reply.add_done_callback(self._waiting.discard)
        self._unsent.put((queued, reply))
        return await reply

    def stop(self, error: ClientError) -> None:
        self._fail(error)
        self._unsent.put(None)
        if self._connection is not None:
            self._connection.interrupt()

    def join(self) -> None:
        self._sender.join()

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        # A copy: done callbacks remove entries.
        for reply in list(self._waiting):
            _fail_one(reply, error)

    # -- in the two threads --------------------------------------------------------------------------------------------

    def _send(self) -> None:
        try:
            connection = self._cluster.connect(self._broker)
        except Exception as error:  # noqa: BLE001 - it is raised where the reply is awaited
            self._in_loop(self._fail, error)
            return
        self._connection = connection
        receiver = Thread(
            target=self._receive,
            args=(connection,),
            daemon=True,
            name=f"kafka-receive-{self._broker}",
        )
        receiver.start()
        try:
            while (unsent := self._unsent.get()) is not None:
                self._send_one(connection, *unsent)
        finally:
            self._unanswered.put(None)
            connection.interrupt()
            receiver.join()
            self._cluster.release(connection)

    def _send_one(
        self, connection: Connection, queued: _QueuedRequest, reply: "asyncio.Future[Any]"
    ) -> None:
        try:
            version = connection.version(queued.api, queued.versions)
            connection.send(queued.api, version, queued.fields)
        except BrokerUnreachable as error:
            self._end(error)
        except Exception as error:  # noqa: BLE001 - it is raised where the reply is awaited
            # No byte was sent: the broker supports no such version, or the fields cannot be encoded.
            self._in_loop(_fail_one, reply, error)
        else:
            self._unanswered.put(_SentRequest(queued.api, version, queued.wait_ms, reply))

    def _receive(self, connection: Connection) -> None:
        while (sent := self._unanswered.get()) is not None:
            try:
                frame = connection.receive(wait_ms=sent.wait_ms)
                reply = decode_reply(sent.api, sent.version, frame.toreadonly())
            except ClientError as error:
                self._end(error)
                return
            except ProtocolViolation as error:
                self._end(ProtocolBroken(f"broker {self._broker}: {error}"))
                return
            self._in_loop(_resolve, sent.reply, reply)

    def _end(self, error: ClientError) -> None:
        self._in_loop(self._fail, error)
        self._unsent.put(None)

    def _in_loop(self, callback: Any, *arguments: Any) -> None:
        # The loop is closed if it was stopped without `close`; then nothing waits for a reply.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)


def _resolve(reply: "asyncio.Future[Any]", value: Any) -> None:
    # A cancelled request stays in the queue: its reply still arrives, and is dropped.
    if not reply.done():
        reply.set_result(value)


def _fail_one(reply: "asyncio.Future[Any]", error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)
