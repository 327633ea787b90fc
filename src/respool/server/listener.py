"""Accepts client connections, counts them, and closes those that are idle or never complete a request."""

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import Handler
from respool.broker.outcome import Reply
from respool.pacing.rate_limited_log import RateLimitedLog
from respool.server.client_connection import ClientConnection
from respool.server.gauges import Gauges
from respool.server.traffic import Traffic

logger = logging.getLogger(__name__)

SWEEP_INTERVAL_S = 1.0
# How long a client may read nothing of its reply, or send nothing of its request, while others wait for memory.
STALL_IN_NEED_S = 5.0
BACKLOG = 1024


class Listener:
    def __init__(self, broker: Broker, *, handle: Handler | None = None) -> None:
        """`handle` serves the requests; by default, the broker itself does."""
        self._broker = broker
        self._handle = handle
        self._settings = broker.settings
        # In the order of arrival, so that simulated runs are deterministic.
        self._connections: dict[ClientConnection, None] = {}
        self._per_address: Counter[str] = Counter()
        self._tasks: dict[asyncio.Task[Reply], None] = {}
        # When each connection's current incomplete frame was first seen.
        self._mid_frame_since: dict[ClientConnection, float] = {}
        self._server: asyncio.Server | None = None
        self._is_sweeping = False
        # Set whenever the last connection has closed; awaited only while stopping.
        self._all_gone = asyncio.Event()
        # Rate-limited, since peers may repeat refused requests at any rate.
        self.refusals = RateLimitedLog(logger)
        metrics = broker.world.metrics
        self.traffic = Traffic(metrics)
        self._connected = metrics.gauge("respool_connections", "Client connections now open.")
        self._gauges = Gauges(metrics)
        self._refused = metrics.counter(
            "respool_connections_refused_total", "Connections closed because a limit was reached."
        )

    @property
    def address(self) -> tuple[str, int]:
        """The address that the listener is bound to, once it is started."""
        return self._address

    @property
    def connections(self) -> Sequence[ClientConnection]:
        """The open connections, in the order of arrival."""
        return tuple(self._connections)

    async def start(self) -> tuple[str, int]:
        """Listen, and return the bound address. After `stop_accepting`: listen on the same address again."""
        host, port = self._address if self._is_sweeping else self._settings.network.listen_address
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: ClientConnection(broker=self._broker, owner=self, handler=self._handle),
            host,
            port,
            backlog=BACKLOG,
            reuse_address=True,
        )
        if not self._is_sweeping:
            self._is_sweeping = True
            self._broker.spawn(self._sweep_forever())
        bound = self._server.sockets[0].getsockname()
        self._address: tuple[str, int] = (bound[0], bound[1])
        return self._address

    def stop_accepting(self) -> None:
        """Accept no new connections; existing ones stay open."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def stop(self) -> None:
        """Accept no new connections, finish requests in flight within the grace time, then close all connections."""
        self.stop_accepting()
        for connection in tuple(self._connections):
            connection.stop_taking_requests()
        if self._connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), self._settings.stop_grace_ms / 1000)
        for connection in tuple(self._connections):
            connection.close("the broker stops", level=logging.INFO)
        # Requests that wait for a coordinator could wait forever: followers no longer reach this broker, so nothing
        # that it leads is committed.
        self._broker.stop_coordinators()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._settings.stop_grace_ms / 1000)
        late = tuple(self._tasks)
        for task in late:
            # No client is left to receive a reply.
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    # Called by connections.

    def on_connected(self, connection: ClientConnection) -> bool:
        self._connections[connection] = None
        self._all_gone.clear()
        self._per_address[connection.peer] += 1
        self._connected.set(len(self._connections))
        limit = self._limit_reached(connection.peer)
        if limit is not None:
            self._refused.inc()
            self.refusals.log(
                logging.WARNING,
                "refused a connection from %s: %s",
                connection.peer,
                limit,
                now_s=asyncio.get_running_loop().time(),
                key=f"{connection.peer} {limit}",
            )
        return limit is None

    def on_disconnected(self, connection: ClientConnection) -> None:
        self._connections.pop(connection, None)
        self._mid_frame_since.pop(connection, None)
        self._per_address[connection.peer] -= 1
        if not self._per_address[connection.peer]:
            del self._per_address[connection.peer]
        if not self._connections:
            self._all_gone.set()
        self._connected.set(len(self._connections))

    def own(self, task: "asyncio.Task[Reply]") -> None:
        self._tasks[task] = None
        task.add_done_callback(lambda _: self._tasks.pop(task, None))

    def _limit_reached(self, address: str) -> str | None:
        if len(self._connections) > self._settings.network.connections_max:
            return f"connections_max = {self._settings.network.connections_max}"
        limit = self._settings.network.connections_per_address_max
        if self._per_address[address] > limit:
            return f"connections_per_address_max = {limit}"
        if not self._broker.quotas.may_connect(address):
            return "its quota connection_creation_rate"
        return None

    # Periodic checks.

    async def _sweep_forever(self) -> NoReturn:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            self.sweep(asyncio.get_running_loop().time())
            await self._gauges.report(self._broker)

    def sweep(self, now: float) -> None:
        """Close connections that have for too long been idle, in the middle of a frame, or not reading their
        replies."""
        idle_s = self._settings.network.connection_idle_ms / 1000
        arrival_s = self._settings.network.frame_arrival_ms / 1000
        stall_s = self._settings.network.reply_stall_ms / 1000
        memory = self._broker.memory
        silence_s = arrival_s
        # Other connections may wait for the memory of clients that read nothing or send nothing.
        if memory.is_short_for_replies:
            stall_s = min(stall_s, STALL_IN_NEED_S)
        if memory.is_short_for_requests:
            silence_s = min(silence_s, STALL_IN_NEED_S)
        memory.relieve(overdraft=self._settings.network.frame_bytes_max)
        self.traffic.report()
        self.refusals.flush(now)
        for connection in tuple(self._connections):
            connection.shrink()
            if connection.stalled_s(now) > stall_s:
                connection.close(f"it took nothing of its reply for {stall_s:.0f} s")
            elif connection.is_waiting_for_memory:
                self._mid_frame_since.pop(connection, None)
            elif connection.is_mid_frame and not connection.is_busy:
                # A client that sends without a pause is in the middle of a request at every check, but of a different
                # one each time. A large request gets the full time again each time its buffer has doubled: it may have
                # waited for the memory, and the client has sent as much again.
                since = self._mid_frame_since.setdefault(connection, now)
                since = max(since, connection.last_grown, connection.last_taken)
                if now - since > arrival_s:
                    connection.close(f"a request did not arrive whole within {arrival_s:.0f} s")
                elif now - max(connection.last_active, connection.last_grown) > silence_s:
                    connection.close(f"nothing of a begun request came for {silence_s:.0f} s")
            else:
                self._mid_frame_since.pop(connection, None)
                if now - connection.last_active > idle_s and not connection.is_busy:
                    connection.close(f"idle for {idle_s:.0f} s", level=logging.DEBUG)
