"""A network in memory: connections between simulated processes that are slow, cut, reset, or lost with their process.

It behaves as TCP does. Bytes of one direction arrive in order, and each direction has its own latency. A network
partition between two machines, which may be one-way, holds bytes back until it heals, and nobody is notified. When a
process is killed, its machine closes the connections. A machine without power sends nothing, and it refuses the old
connections once it is up again. Bytes of different connections may arrive in any order.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from respool.sim.net.simulated_transport import SimConnection, SimTransport
from respool.sim.runtime.process import Process, current_process
from respool.sim.runtime.sim_loop import SimLoop

Address = tuple[str, int]
Factory = Callable[[], asyncio.BaseProtocol]


@dataclass(slots=True)
class NetworkConditions:
    """How the network behaves at present. It may change during a run."""

    latency_ms_min: float = 0.05
    latency_ms_max: float = 1.0
    # The odds of a stall: a delivery that takes far longer.
    stall_odds: float = 0.0
    stall_ms_max: float = 200.0
    # The odds that a write arrives in pieces.
    split_odds: float = 0.02


class SimNetwork:
    """The `network` of a `SimLoop`."""

    def __init__(self, loop: SimLoop, rng: Random) -> None:
        self.conditions = NetworkConditions()
        # Whether both ends of all connections have the same address.
        self.is_one_machine = False
        self._loop = loop
        self._rng = rng
        self._listeners: dict[Address, SimServer] = {}
        # Cut directions, as (source, target) hosts.
        self._cuts: set[tuple[str, str]] = set()
        self._hosts_down: set[str] = set()
        self._links: list[SimConnection] = []
        self._next_port = 40_000

    # -- for asyncio -------------------------------------------------------------------------------------------------

    async def listen(self, factory: Factory, host: str, port: int) -> "SimServer":
        address = (host, port)
        holder = self._listeners.get(address)
        if holder is not None and holder.process.is_alive:
            raise OSError(98, f"{host}:{port} is in use")
        server = self._listeners[address] = SimServer(self, current_process(), factory, address)
        return server

    async def connect(
        self, factory: Factory, host: str, port: int
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        client = current_process()
        server = self._listeners.get((host, port))
        await asyncio.sleep(self.latency_s())
        if server is None:
            raise ConnectionRefusedError(111, f"nobody has ever listened on {host}:{port}")
        target = server.process.host
        if (
            target in self._hosts_down
            or self.is_blocked(client.host, target)
            or self.is_blocked(target, client.host)
        ):
            # No packet is answered; the client has its own timeout.
            await self._loop.create_future()
        # Another process may have started to listen there since.
        server = self._listeners[host, port]
        if not server.process.is_alive or server.is_closed:
            await asyncio.sleep(self.latency_s())
            raise ConnectionRefusedError(111, f"nobody listens on {host}:{port}")
        self._next_port += 1
        link = SimConnection(self, client=client, server=server.process)
        self._links.append(link)
        protocol = factory()
        link.client.connect_to(protocol, peername=(host, port))
        # The kernel accepts connections even while the process is paused.
        self._loop.call_soon(
            self._accept,
            link,
            server,
            (client.host, self._next_port),
            context=server.process.context,
        )
        await asyncio.sleep(self.latency_s())
        link.client.begin()
        return link.client, protocol

    def _accept(self, link: SimConnection, server: "SimServer", peername: Address) -> None:
        if server.is_closed:
            link.reset()
            return
        link.server.connect_to(server.factory(), peername=peername)
        link.server.begin()

    # -- faults ------------------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Lose contact in one direction: nothing from `source` reaches `target`; the other direction still works."""
        self._cuts.add((source, target))

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Heal one cut, or all of them, and deliver what was held back."""
        if source is not None and target is not None:
            self._cuts.discard((source, target))
        else:
            self._cuts.clear()
        for link in self._links:
            link.flush()

    def is_blocked(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def on_process_gone(self, process: Process, *, power_cut: bool) -> None:
        """Close the connections of a killed process; after a power cut, peers get no notice."""
        if power_cut:
            self._hosts_down.add(process.host)
        for link in self._links:
            link.on_process_gone(process, is_notified=not power_cut)
        self._forget_ended()

    def on_host_up(self, host: str) -> None:
        self._hosts_down.discard(host)
        for link in self._links:
            link.flush()

    def is_host_down(self, host: str) -> bool:
        return host in self._hosts_down

    def links_of(self, host: str) -> list[SimConnection]:
        """Return the open connections to or from a machine, oldest first."""
        self._forget_ended()
        return [one for one in self._links if host in one.hosts]

    # -- for connections ---------------------------------------------------------------------------------------------

    @property
    def loop(self) -> SimLoop:
        return self._loop

    def latency_s(self) -> float:
        conditions = self.conditions
        low, high = conditions.latency_ms_min, conditions.latency_ms_max
        ms = low + (high - low) * self._rng.random()
        if conditions.stall_odds and self._rng.random() < conditions.stall_odds:
            ms += conditions.stall_ms_max * self._rng.random()
        return ms / 1000

    def pieces(self, data: bytes) -> Iterable[bytes]:
        if len(data) < 2 or self._rng.random() >= self.conditions.split_odds:
            return (data,)
        at = self._rng.randrange(1, len(data))
        return (data[:at], data[at:])

    def _forget_ended(self) -> None:
        self._links = [one for one in self._links if not one.has_ended]


class SimServer:
    """The server that `create_server` returns, with the part of asyncio's interface that the listener uses."""

    def __init__(
        self, network: SimNetwork, process: Process, factory: Factory, address: Address
    ) -> None:
        self.process = process
        self.factory = factory
        self.is_closed = False
        self._address = address
        self._network = network

    @property
    def sockets(self) -> tuple["SimServer", ...]:
        return (self,)

    def getsockname(self) -> Address:
        return self._address

    def close(self) -> None:
        self.is_closed = True
