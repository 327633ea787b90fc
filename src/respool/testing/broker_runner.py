"""Runs a test's broker on its event loop: starts, stops and crashes it, and injects faults, as its `Backend` commands.

It is the broker of `respool serve` with its server and drivers, except for the loop's movable time, a disk that can
lose unsynced data, and faults in replies. These three survive restarts of the broker.
"""

import asyncio
import errno
import logging
import socket
from typing import Any

from respool.broker.broker import Broker
from respool.model.errors import RequestError, RespoolError
from respool.node.config import load_settings
from respool.node.node import Drivers, serve
from respool.ports.metadata_store import StoreUnavailable
from respool.server.listener import Listener
from respool.testing.broker_clock import MovedClock
from respool.testing.broker_plan import HOST, TestBrokerPlan
from respool.testing.errors import (
    BrokerDidNotStart,
    BrokerFailed,
    BrokerNotRunning,
    PortTaken,
    TestBrokerError,
)
from respool.testing.faulty_disk import FaultyDisk
from respool.testing.movable_loop import CountedThreads, MovableLoop, WorkCount
from respool.testing.request_faults import RequestFaults

logger = logging.getLogger(__name__)


class BrokerRunner:
    def __init__(self, plan: TestBrokerPlan, loop: MovableLoop) -> None:
        self._plan = plan
        self._loop = loop
        self._clock = MovedClock(loop)
        self._work_count = WorkCount()
        self._faults = RequestFaults()
        self._is_disk_full = False
        self._is_refusing = False
        # Bound but not listening: while the broker is down, the port stays ours and refuses connections.
        self._port_holder: socket.socket | None = None
        self._disk: FaultyDisk | None = None
        self._broker: Broker | None = None
        self._listener: Listener | None = None
        self._serving: asyncio.Task[int] | None = None
        self._asked_to_stop = asyncio.Event()
        self._metrics_address: tuple[str, int] | None = None

    async def do(self, name: str, arguments: dict[str, Any]) -> Any:
        """Run a command by its name; a `Backend` calls this."""
        return await getattr(self, f"do_{name}")(**arguments)

    # Start and stop.

    async def do_start(self) -> int:
        """Start the broker, and return its port."""
        port = self._hold_port()
        try:
            await self._start(port)
            await self._create_topics()
        except BaseException:
            await self._end_quietly()
            raise
        if self._is_refusing:
            await self.do_refuse_connections(refuse=True)
        return port

    async def do_stop(self) -> None:
        """Stop cleanly; replies held by a fault are sent first."""
        self._running()
        assert self._serving is not None
        assert self._listener is not None
        self._faults.release_held()
        await _stop_accepting(self._listener)
        self._asked_to_stop.set()
        await asyncio.wait([self._serving])
        if self._serving.cancelled() or self._serving.exception() or self._serving.result():
            raise _failure(self._serving)
        await self._end_quietly()

    async def do_crash(self, *, lose_unsynced: bool) -> int:
        """End the broker at once, and return how many bytes were lost."""
        self._running()
        assert self._disk is not None
        # From now on nothing reaches the disk. The same iteration of the loop closes connections to clients too.
        self._disk.cut_power()
        await self._end_quietly()
        return self._disk.lose_unsynced() if lose_unsynced else 0

    async def do_close(self) -> None:
        try:
            if self._serving is not None:
                await self.do_stop()
        finally:
            await self._end_quietly()
            if self._port_holder is not None:
                self._port_holder.close()

    async def do_metrics_address(self) -> tuple[str, int] | None:
        self._running()
        return self._metrics_address

    # Time.

    async def do_now_ms(self) -> int:
        return self._clock.now_ms()

    async def do_advance(self, ms: int) -> None:
        await self._loop.move_on(ms, is_busy=self._work_count.is_busy)
        if self._serving is not None:
            self._running()

    # Topics.

    async def do_create_topic(self, name: str, partitions: int, settings: dict[str, str]) -> None:
        broker = self._running()
        try:
            await broker.topics.create(name, partition_count=partitions, overrides=settings)
        except RequestError as error:
            raise TestBrokerError(f"the topic {name!r} cannot be created: {error}") from error

    # Faults.

    async def do_drop_connections(self, client_id: str | None) -> int:
        if self._listener is None:
            return 0
        dropped = [
            one
            for one in self._listener.connections
            if client_id is None or one.client_id == client_id
        ]
        for connection in dropped:
            connection.close("dropped by the test", level=logging.INFO)
        return len(dropped)

    async def do_refuse_connections(self, refuse: bool) -> None:
        self._is_refusing = refuse
        if self._listener is None:
            return
        await _stop_accepting(self._listener)
        if not refuse:
            await self._listener.start()

    async def do_fill_disk(self, is_full: bool) -> None:
        self._is_disk_full = is_full
        if self._disk is not None:
            self._disk.is_full = is_full

    async def do_inject_fault(self, **fault: Any) -> int:
        return self._faults.inject(**fault)

    async def do_clear_fault(self, number: int) -> None:
        self._faults.clear(number)

    async def do_fault_struck(self, number: int) -> int:
        return self._faults.struck(number)

    async def do_clear_faults(self) -> None:
        self._faults.clear_all()
        await self.do_fill_disk(is_full=False)
        if self._is_refusing:
            await self.do_refuse_connections(refuse=False)

    # Helpers.

    def _running(self) -> Broker:
        if self._serving is not None and self._serving.done():
            raise _failure(self._serving)
        if self._broker is None:
            raise BrokerNotRunning(
                "the broker is not running: start it, or use it inside its `with` block"
            )
        return self._broker

    def _hold_port(self) -> int:
        if self._port_holder is None:
            holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                holder.bind((HOST, self._plan.port))
            except OSError as error:
                holder.close()
                raise self._not_started(error) from error
            self._port_holder = holder
        port: int = self._port_holder.getsockname()[1]
        return port

    async def _start(self, port: int) -> None:
        flags = {**self._plan.settings, "data": self._plan.data, "listen": f"{HOST}:{port}"}
        serving: asyncio.Future[None] = self._loop.create_future()

        def on_serving(broker: Broker, listener: Listener) -> None:
            self._broker, self._listener = broker, listener
            logger.info(
                "a test's broker serves at %s:%d, data in %s", *listener.address, settings.data
            )
            serving.set_result(None)

        def on_metrics_listening(host: str, port: int) -> None:
            self._metrics_address = (host, port)

        self._asked_to_stop = asyncio.Event()
        self._faults.is_down = False
        drivers = Drivers(
            clock=self._clock,
            disk=self._new_disk,
            offload=lambda threads: CountedThreads(threads, self._work_count),
            handle=self._faults.handle,
            on_metrics_listening=on_metrics_listening,
        )
        try:
            settings = load_settings(
                file=None, environ={}, flags=flags, flags_from="Broker(settings=...)"
            )
            self._serving = self._loop.create_task(
                serve(settings, self._asked_to_stop, on_serving=on_serving, drivers=drivers)
            )
            either: list[asyncio.Future[Any]] = [self._serving, serving]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                code = self._serving.result()
                raise BrokerDidNotStart(f"the broker ended with {code} while it started")
        except (RespoolError, StoreUnavailable, OSError) as error:
            if isinstance(error, TestBrokerError):
                raise
            raise self._not_started(error) from error

    async def _create_topics(self) -> None:
        for name, topic in self._plan.topics.items():
            if name not in self._running().image.topics:
                try:
                    await self.do_create_topic(name, topic.partitions, dict(topic.settings))
                except TestBrokerError as error:
                    raise BrokerDidNotStart(str(error)) from error

    def _new_disk(self, root: str) -> FaultyDisk:
        self._disk = FaultyDisk(root, waits_for_disk=self._plan.waits_for_disk)
        self._disk.is_full = self._is_disk_full
        return self._disk

    async def _end_quietly(self) -> None:
        """End what is left and report no failures. Also after a clean stop: a client may have connected during it."""
        listener = self._listener
        self._broker = self._listener = self._serving = None
        self._faults.is_down = True
        if listener is not None:
            _close_connections(listener)
        # All tasks of this loop are the broker's, except the command that ends it.
        tasks = asyncio.all_tasks() - {asyncio.current_task()} - _accepting()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loop.cancel_timers()
        if listener is not None:
            await _stop_accepting(listener)
            _close_connections(listener)
            # Closed connections are reported in the next iteration of the loop.
            await asyncio.sleep(0)

    def _not_started(self, error: Exception) -> BrokerDidNotStart:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return PortTaken(
                f"something listens on {HOST}:{self._plan.port} already; without port=... a free one is found"
            )
        return BrokerDidNotStart(f"the broker did not start: {error}")


async def _stop_accepting(listener: Listener) -> None:
    """Stop listening, after connections being accepted are set up.

    asyncio leaks the socket of a client that it has accepted but not set up yet when the server is closed.
    """
    while accepting := _accepting():
        await asyncio.gather(*accepting, return_exceptions=True)
    listener.stop_accepting()


def _accepting() -> set["asyncio.Task[Any]"]:
    """asyncio's own tasks, each of which sets up one accepted connection. They end at once."""
    return {task for task in asyncio.all_tasks() if "_accept_connection" in repr(task.get_coro())}


def _close_connections(listener: Listener) -> None:
    for connection in listener.connections:
        connection.close("crashed by the test", level=logging.INFO)


def _failure(serving: "asyncio.Task[int]") -> BrokerFailed:
    why = "cancelled"
    if not serving.cancelled():
        error = serving.exception()
        why = repr(error) if error else f"exit code {serving.result()}"
    return BrokerFailed(f"the broker stopped by itself; this is a bug in Respool: {why}")
