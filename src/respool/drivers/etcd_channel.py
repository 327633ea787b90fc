"""grpclib's channel with an awaitable close, and our codec instead of generated protobuf code.

grpclib closes a transport without waiting; over TLS this takes some round trips to a server that may be gone.
Here a closed channel aborts its connections, and `wait_until_gone` returns when the event loop has closed them. This
uses grpclib's internal `_protocol_factory`, and `_create_connection` to load renewed certificates; so the extra pins
grpclib below its next minor version.
"""

import asyncio
from typing import Any, cast

from grpclib.client import Channel, Handler
from grpclib.encoding.base import CodecBase
from grpclib.protocol import H2Protocol

from respool.drivers.etcd_options import Endpoint
from respool.drivers.etcd_protobuf import decode, encode
from respool.drivers.etcd_tls import EtcdTls

# Time limit for an aborted connection to be closed; it takes one iteration of the event loop.
GOING_TRY_S = 0.2
GOING_TRIES_MAX = 10


class EtcdChannel(Channel):
    def __init__(self, endpoint: Endpoint, tls: EtcdTls | None = None) -> None:
        context = None if tls is None else tls.context()
        super().__init__(endpoint.host, endpoint.port, codec=_Codec(), ssl=context)
        self._tls = tls
        self._open: dict[_Protocol, asyncio.Transport] = {}
        self._nobody_left = asyncio.Event()
        self._nobody_left.set()

    def close(self) -> None:
        """End all calls and connections. The channel may be used again."""
        super().close()
        for transport in list(self._open.values()):
            transport.abort()

    async def wait_until_gone(self) -> None:
        """Wait until all connections are closed, including one that was being established. Call it after the last use.

        It has a time limit: without one, a stopping broker once waited here for a connection that nothing would have
        closed.
        """
        for _ in range(GOING_TRIES_MAX):
            for transport in list(self._open.values()):
                transport.abort()
            try:
                async with asyncio.timeout(GOING_TRY_S):
                    await self._nobody_left.wait()
                    return
            except TimeoutError:
                continue

    def on_made(self, protocol: "_Protocol", transport: asyncio.Transport) -> None:
        self._open[protocol] = transport
        self._nobody_left.clear()

    def on_lost(self, protocol: "_Protocol") -> None:
        self._open.pop(protocol, None)
        if not self._open:
            self._nobody_left.set()

    async def _create_connection(self) -> H2Protocol:
        if self._tls is not None:
            self._ssl = self._tls.context()
        return await super()._create_connection()

    def _protocol_factory(self) -> H2Protocol:
        return _Protocol(self)


class _Protocol(H2Protocol):
    def __init__(self, channel: EtcdChannel) -> None:
        super().__init__(Handler(), channel._config, channel._h2_config)  # noqa: SLF001 - its own channel's.
        self._channel = channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the same interface.
        self._channel.on_made(self, cast(asyncio.Transport, transport))
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._channel.on_lost(self)
        super().connection_lost(exc)


class _Codec(CodecBase):
    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        assert isinstance(message, message_type)
        return encode(message)

    def decode(self, data: bytes, message_type: Any) -> Any:
        return decode(data, message_type)
