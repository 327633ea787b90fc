"""Accepts client connections, counts them, and closes those that are idle or never finish a request."""

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
from respool.server.connection import Connection
from respool.server.gauges import Gauges
from respool.server.traffic import Traffic

logger = logging.getLogger(__name__)

SWEEP_INTERVAL_S = 1.0
# How long a client may take nothing of its reply, or send nothing of its request, while others wait for memory.
STALL_IN_NEED_S = 5.0
BACKLOG = 1024


class Listener:
    def __init__(self, broker: Broker, *, handle: Handler | None = None) -> None:
        """`handle` answers the requests; None: the broker itself."""
        self._broker = broker
        self._handle = handle
        self._settings = broker.settings
        # In the order they came, so that a simulated run is the same each time.
        self._connections: dict[Connection, None] = {}
        self._per_address: Counter[str] = Counter()
        self._tasks: dict[asyncio.Task[Reply], None] = {}
        # When each connection's unfinished frame was first seen unfinished.
        self._mid_frame_since: dict[Connection, float] = {}
        self._server: asyncio.Server | None = None
        self._is_sweeping = False
        # Set whenever the last connection has gone; waited for only while stopping.
        self._all_gone = asyncio.Event()
        # Peers repeat what is refused as often as they like.
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
        """Where it listens, once it does."""
        return self._address

    @property
    def connections(self) -> Sequence[Connection]:
        """Those that are open, in the order they came."""
        return tuple(self._connections)

    async def start(self) -> tuple[str, int]:
        """Listen, and return the address that was bound. After `stop_accepting`: listen there again."""
        host, port = self._address if self._is_sweeping else self._settings.network.listen_address
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(broker=self._broker, owner=self, handler=self._handle),
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
        """Let nobody in any more; those who are in stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def stop(self) -> None:
        """Accept nobody, finish what is under way within the grace time, then close the rest."""
        self.stop_accepting()
        for connection in tuple(self._connections):
            connection.stop_taking_requests()
        if self._connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), self._settings.stop_grace_ms / 1000)
        for connection in tuple(self._connections):
            connection.close("the broker stops", level=logging.INFO)
        # Whoever waits for a coordinator could wait for ever: followers do not reach this broker any more, so what it
        # leads is not committed.
        self._broker.stop_coordinators()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._settings.stop_grace_ms / 1000)
        late = tuple(self._tasks)
        for task in late:
            # Nobody is left to be answered.
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    # What connections tell.

    def on_connected(self, connection: Connection) -> bool:
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

    def on_disconnected(self, connection: Connection) -> None:
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
        return None

    # Sweeping.

    async def _sweep_forever(self) -> NoReturn:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            self.sweep(asyncio.get_running_loop().time())
            await self._gauges.report(self._broker)

    def sweep(self, now: float) -> None:
        """Close connections that have been idle, in the middle of a frame, or not reading their replies for too
        long."""
        idle_s = self._settings.network.connection_idle_ms / 1000
        arrival_s = self._settings.network.frame_arrival_ms / 1000
        stall_s = self._settings.network.reply_stall_ms / 1000
        memory = self._broker.memory
        silence_s = arrival_s
        # Others may wait for the memory of those who take nothing, or send nothing.
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
                # A client that sends without a pause is in the middle of a request whenever we look: it is
                # another one each time. One that is large may take as long again each time its buffer has
                # doubled: it may have waited for that, and the client has sent as much again.
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
