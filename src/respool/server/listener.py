"""Accepts client connections on all listeners, counts them, and closes those that are idle or never complete a
request.
"""

import asyncio
import logging
import ssl
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NoReturn

from respool.broker.broker import Broker
from respool.broker.handlers.support.registration import Handler
from respool.broker.outcome import Reply
from respool.model.security.principal import CLIENT_LISTENER
from respool.pacing.rate_limited_log import RateLimitedLog
from respool.server.client_connection import ClientConnection
from respool.server.gauges import Gauges
from respool.server.handshake_turns import HandshakeTurnsPerSecond
from respool.server.listener_endpoint import ListenerEndpoint
from respool.server.tls_line import TlsLine
from respool.server.traffic import Traffic

logger = logging.getLogger(__name__)

SWEEP_INTERVAL_S = 1.0
# How long a client may read nothing of its reply, or send nothing of its request, while others wait for memory.
STALL_IN_NEED_S = 5.0
BACKLOG = 1024


class Listener:
    """All listeners of the broker: they share their connections' limits and checks."""

    def __init__(
        self,
        broker: Broker,
        *,
        handle: Handler | None = None,
        tls: Mapping[str, Callable[[], ssl.SSLContext]] | None = None,
    ) -> None:
        """`handle` serves the requests; by default, the broker itself does. `tls` makes the next connection's context,
        by the names of listeners with TLS.
        """
        self._broker = broker
        self._handle = handle
        self._settings = broker.settings
        # In the order of arrival, so that simulated runs are deterministic.
        self._connections: dict[ClientConnection, None] = {}
        self._per_address: Counter[str] = Counter()
        self._tasks: dict[asyncio.Task[Reply], None] = {}
        # When each connection's current incomplete frame was first seen.
        self._mid_frame_since: dict[ClientConnection, float] = {}
        self._servers: list[asyncio.Server] = []
        # Connections that have not logged in yet, the oldest first; and the memory that their buffers have grown by.
        self._strangers: dict[ClientConnection, int] = {}
        self._strangers_bytes = 0
        self._addresses: dict[str, tuple[str, int]] = {}
        self._is_sweeping = False
        # Set whenever the last connection has closed; awaited only while stopping.
        self._all_gone = asyncio.Event()
        # Rate-limited, since peers may repeat refused requests at any rate.
        self.refusals = RateLimitedLog(logger)
        metrics = broker.world.metrics
        self.traffic = Traffic(metrics)
        self._connected = metrics.gauge("respool_connections", "Client connections now open.")
        self._gauges = Gauges(metrics)
        security = self._settings.security
        turns = HandshakeTurnsPerSecond(
            per_s=security.tls_handshakes_per_s_max,
            per_network_per_s=security.tls_handshakes_per_address_per_s_max,
            monotonic_ms=broker.clock.monotonic_ms,
        )
        self._endpoints = [
            ListenerEndpoint(
                one,
                logins=broker.logins,
                metrics=metrics,
                refusals=self.refusals,
                login_frame_bytes_max=security.sasl_server_max_receive_size,
                tls=(tls or {}).get(one.name),
                turns=turns,
            )
            for one in self._settings.listeners
        ]
        broker.catalog.observers.append(self._end_revoked_sessions)
        self._users, self._tokens = broker.image.users, broker.image.tokens
        self._refused = metrics.counter(
            "respool_connections_refused_total", "Connections closed because a limit was reached."
        )

    @property
    def address(self) -> tuple[str, int]:
        """The address that the listener of `listen` is bound to, once it is started."""
        return self._addresses[CLIENT_LISTENER]

    @property
    def addresses(self) -> Mapping[str, tuple[str, int]]:
        """The bound addresses, by the names of the listeners."""
        return self._addresses

    @property
    def connections(self) -> Sequence[ClientConnection]:
        """The open connections, in the order of arrival."""
        return tuple(self._connections)

    async def start(self) -> tuple[str, int]:
        """Listen, and return the bound address of `listen`. After `stop_accepting`: on the same addresses again."""
        for endpoint in self._endpoints:
            name = endpoint.settings.name
            server = await self._listen(
                endpoint, *self._addresses.get(name, endpoint.settings.listen_address)
            )
            self._servers.append(server)
            bound = server.sockets[0].getsockname()
            self._addresses[name] = (bound[0], bound[1])
        if not self._is_sweeping:
            self._is_sweeping = True
            self._broker.spawn(self._sweep_forever())
        return self.address

    async def _listen(self, endpoint: ListenerEndpoint, host: str, port: int) -> asyncio.Server:
        def accept() -> asyncio.BaseProtocol:
            connection = ClientConnection(
                broker=self._broker, owner=self, handler=self._handle, endpoint=endpoint
            )
            if endpoint.tls is None:
                return connection
            return TlsLine(connection, context=endpoint.tls, turns=endpoint.turns)

        return await asyncio.get_running_loop().create_server(
            accept, host, port, backlog=BACKLOG, reuse_address=True
        )

    def stop_accepting(self) -> None:
        """Accept no new connections; existing ones stay open."""
        for server in self._servers:
            server.close()
        self._servers.clear()

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
        endpoint = connection.endpoint
        if endpoint is not None:
            endpoint.connections += 1
        if connection.is_stranger:
            self._on_stranger(connection)
        limit = self._limit_reached(connection.peer) or (
            None if endpoint is None else endpoint.limit_reached()
        )
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
        if connection.endpoint is not None:
            connection.endpoint.connections -= 1
        self.on_admitted(connection)
        self._mid_frame_since.pop(connection, None)
        self._per_address[connection.peer] -= 1
        if not self._per_address[connection.peer]:
            del self._per_address[connection.peer]
        if not self._connections:
            self._all_gone.set()
        self._connected.set(len(self._connections))

    def on_admitted(self, connection: ClientConnection) -> None:
        self._strangers_bytes -= self._strangers.pop(connection, 0)

    def may_grow(self, connection: ClientConnection, amount: int) -> bool:
        limit = self._settings.security.strangers_bytes_max
        if amount and self._strangers_bytes + amount > limit:
            connection.close(
                f"requests before a login have used up strangers_bytes_max = {limit}",
                kind="strangers_bytes_max",
            )
            return False
        self._strangers[connection] += amount
        self._strangers_bytes += amount
        return True

    def _on_stranger(self, connection: ClientConnection) -> None:
        limit = self._settings.security.strangers_max
        if len(self._strangers) >= limit:
            oldest = next(iter(self._strangers))
            self.on_admitted(oldest)
            oldest.close(
                f"it has not logged in, and makes room for another: strangers_max = {limit}",
                kind="strangers_max",
            )
        self._strangers[connection] = 0

    def _end_revoked_sessions(self) -> None:
        """Close connections whose user or token was removed: called when the image has changed."""
        image = self._broker.image
        if image.users is self._users and image.tokens is self._tokens:
            return
        self._users, self._tokens = image.users, image.tokens
        self._close_revoked()

    def _close_revoked(self) -> None:
        for connection in tuple(self._connections):
            session = connection.session
            if session.is_authenticated and self._broker.logins.is_revoked(session):
                connection.close(
                    f"{session.principal} was removed, or its token has ended", level=logging.INFO
                )

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
        self._check_strangers(now)
        if self._tokens:
            # Tokens expire without a change of the image.
            self._close_revoked()
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

    def _check_strangers(self, now: float) -> None:
        limit_ms = self._settings.security.authentication_max_ms
        for connection in tuple(self._strangers):
            if now - connection.connected_at > limit_ms / 1000:
                connection.close(
                    f"it has not logged in within authentication_max_ms = {limit_ms}",
                    kind="authentication_max_ms",
                )
