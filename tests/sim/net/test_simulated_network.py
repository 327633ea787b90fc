"""The simulated network does what TCP does, for better and for worse."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from respool.sim.net.simulated_network import SimNetwork
from respool.sim.net.simulated_transport import WINDOW_BYTES
from respool.sim.runtime.process import Process
from respool.sim.runtime.sim_loop import SimLoop

ADDRESS = ("127.0.0.1", 9092)
Story = Callable[["TwoMachines"], Coroutine[Any, Any, None]]


class End(asyncio.Protocol):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.received = b""
        self.lost: Exception | str | None = "not lost"
        self.is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = error

    def pause_writing(self) -> None:
        self.is_paused = True

    def resume_writing(self) -> None:
        self.is_paused = False


class TwoMachines:
    """A server and a client, each on a machine of its own."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.network = SimNetwork(loop, Random(7))
        loop.network = self.network
        self.server_process = loop.new_process("server")
        self.client_process = loop.new_process("client")
        self.accepted: list[End] = []

    def _accept(self) -> End:
        self.accepted.append(End())
        return self.accepted[-1]

    async def listen(self) -> None:
        async def listen() -> Any:
            return await self.loop.create_server(self._accept, *ADDRESS)

        self.server = await self.server_process.spawn(listen())

    async def connect(self) -> End:
        async def connect() -> Any:
            return await self.loop.create_connection(End, *ADDRESS)

        _, end = await self.client_process.spawn(connect())
        assert isinstance(end, End)
        return end

    async def both(self) -> tuple[End, End]:
        await self.listen()
        client = await self.connect()
        await asyncio.sleep(1)
        return client, self.accepted[-1]


def play(story: Story) -> None:
    loop = SimLoop(1)

    async def run() -> None:
        await story(TwoMachines(loop))

    loop.run(run)
    assert loop.unhandled == []


def end_process(machines: TwoMachines, process: Process, *, power_cut: bool) -> None:
    process.kill()
    machines.network.on_process_gone(process, power_cut=power_cut)


def test_bytes_arrive_in_order_and_take_a_while() -> None:
    async def story(machines: TwoMachines) -> None:
        client, server = await machines.both()
        machines.network.conditions.split_odds = 0.5
        sent = b"".join(b"%d," % number for number in range(200))
        for number in range(200):
            client.transport.write(b"%d," % number)
        assert server.received == b""
        await asyncio.sleep(1)
        assert server.received == sent

    play(story)


def test_nobody_listens_is_told_at_once() -> None:
    async def story(machines: TwoMachines) -> None:
        with pytest.raises(ConnectionRefusedError):
            await machines.connect()
        await machines.listen()
        machines.server.close()
        with pytest.raises(ConnectionRefusedError):
            await machines.connect()

    play(story)


def test_a_cut_holds_back_one_way_until_it_heals() -> None:
    async def story(machines: TwoMachines) -> None:
        client, server = await machines.both()
        machines.network.cut("client", "server")
        client.transport.write(b"question")
        server.transport.write(b"news")
        await asyncio.sleep(60)
        assert server.received == b""
        assert client.received == b"news"
        machines.network.heal()
        await asyncio.sleep(1)
        assert server.received == b"question"

    play(story)


def test_a_connection_cannot_be_made_through_a_cut() -> None:
    async def story(machines: TwoMachines) -> None:
        await machines.listen()
        machines.network.cut("server", "client")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(machines.connect(), 100)

    play(story)


def test_closing_delivers_what_was_sent_before() -> None:
    async def story(machines: TwoMachines) -> None:
        client, server = await machines.both()
        client.transport.write(b"last words")
        client.transport.close()
        await asyncio.sleep(1)
        assert server.received == b"last words"
        assert server.lost is None
        assert client.lost is None

    play(story)


def test_a_reset_loses_what_was_under_way() -> None:
    async def story(machines: TwoMachines) -> None:
        client, server = await machines.both()
        client.transport.write(b"never")
        (link,) = machines.network.links_of("server")
        link.reset()
        await asyncio.sleep(1)
        assert server.received == b""
        assert isinstance(client.lost, ConnectionResetError)
        assert isinstance(server.lost, ConnectionResetError)
        assert machines.network.links_of("server") == []

    play(story)


def test_a_lost_reply_comes_after_its_request_was_heard() -> None:
    async def story(machines: TwoMachines) -> None:
        client, server = await machines.both()
        (link,) = machines.network.links_of("server")
        link.loses_next_reply = True
        client.transport.write(b"question")
        await asyncio.sleep(1)
        assert server.received == b"question"
        server.transport.write(b"answer")
        await asyncio.sleep(1)
        assert client.received == b""
        assert isinstance(client.lost, ConnectionResetError)

    play(story)


def test_the_machine_of_a_killed_process_closes_its_connections() -> None:
    async def story(machines: TwoMachines) -> None:
        client, server = await machines.both()
        end_process(machines, machines.server_process, power_cut=False)
        await asyncio.sleep(1)
        assert isinstance(client.lost, ConnectionResetError)
        # The dead are told nothing.
        assert server.lost == "not lost"
        with pytest.raises(ConnectionRefusedError):
            await machines.connect()

    play(story)


def test_of_a_machine_without_power_nobody_hears_until_it_is_up_again() -> None:
    async def story(machines: TwoMachines) -> None:
        client, _ = await machines.both()
        end_process(machines, machines.server_process, power_cut=True)
        client.transport.write(b"anybody?")
        await asyncio.sleep(60)
        assert client.lost == "not lost"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(machines.connect(), 100)
        machines.network.on_host_up("server")
        client.transport.write(b"anybody?")
        await asyncio.sleep(1)
        assert isinstance(client.lost, ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await machines.connect()

    play(story)


def test_a_paused_process_accepts_and_reads_later() -> None:
    async def story(machines: TwoMachines) -> None:
        await machines.listen()
        machines.server_process.is_paused = True
        client = await machines.connect()
        client.transport.write(b"patience")
        await asyncio.sleep(30)
        assert machines.accepted == []
        machines.server_process.is_paused = False
        await asyncio.sleep(1)
        assert machines.accepted[0].received == b"patience"

    play(story)


def test_a_writer_is_told_to_pause_while_nobody_reads() -> None:
    async def story(machines: TwoMachines) -> None:
        client, server = await machines.both()
        server.transport.pause_reading()
        client.transport.write(bytes(WINDOW_BYTES + 100))
        await asyncio.sleep(1)
        assert client.is_paused
        assert client.transport.get_write_buffer_size() == 100
        server.transport.resume_reading()
        await asyncio.sleep(1)
        assert not client.is_paused
        assert len(server.received) == WINDOW_BYTES + 100

    play(story)
