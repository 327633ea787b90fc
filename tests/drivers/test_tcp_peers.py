"""Requests to a tiny server of our own: answers come back in order, or the one who asked is told why not."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import uvloop

from respool.drivers.tcp_peers import LANDING_BYTES, TcpPeers
from respool.model.ids import BrokerId
from respool.ports.peers import PeerRefused, Peers, PeerUnreachable
from support.ports import reserve_port

ONE, TWO = BrokerId(1), BrokerId(2)

Talk = Callable[["Visit"], Awaitable[None]]


class Visit:
    """A connection, as the server sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def frame(self) -> bytes:
        size = int.from_bytes(await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    def answer(self, frame: bytes) -> None:
        self.writer.write(len(frame).to_bytes(4) + frame)


async def echo(visit: Visit) -> None:
    while True:
        visit.answer(b"echo " + await visit.frame())


class Server:
    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self.port = 0


@asynccontextmanager
async def serving(talk: Talk) -> AsyncIterator[Server]:
    made = Server()

    async def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = Visit(reader, writer)
        made.visits.append(visit)
        try:
            await talk(visit)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(visited, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        for visit in made.visits:
            visit.writer.transport.abort()
        await server.wait_closed()


@asynccontextmanager
async def peers_of(*servers: Server, **limits: int) -> AsyncIterator[TcpPeers]:
    addresses = {
        BrokerId(number): ("127.0.0.1", server.port)
        for number, server in enumerate(servers, start=1)
    }
    peers = TcpPeers(addresses, **cast("Any", limits))
    try:
        yield peers
    finally:
        await peers.close()


Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Tell a story on the plain loop and on the one the broker runs on."""

    def run(story: Callable[[], Awaitable[None]]) -> None:
        async def tell() -> None:
            async with asyncio.timeout(60):
                await story()

        request.param(tell())

    return run


async def outcome(request: Awaitable[bytes | memoryview]) -> bytes | memoryview | str:
    try:
        return await request
    except PeerUnreachable as error:
        return str(error)


def test_a_reply_comes_back(run: Run) -> None:
    async def story() -> None:
        async with serving(echo) as server, peers_of(server) as peers:
            port: Peers = peers
            assert await port.request(ONE, b"hello") == b"echo hello"
            assert await port.request(ONE, b"") == b"echo "

    run(story)


def test_requests_share_one_connection_and_are_answered_in_order(run: Run) -> None:
    async def story() -> None:
        async with serving(echo) as server, peers_of(server, requests_in_flight_max=3) as peers:
            asked = [peers.request(ONE, b"%d" % number) for number in range(50)]
            assert await asyncio.gather(*asked) == [b"echo %d" % number for number in range(50)]
            assert len(server.visits) == 1

    run(story)


def test_requests_are_sent_before_earlier_ones_are_answered_up_to_the_limit(run: Run) -> None:
    async def story() -> None:
        under_way: list[int] = []

        async def hold_three(visit: Visit) -> None:
            held = [await visit.frame() for _ in range(3)]
            while held:
                under_way.append(len(peers._connections[ONE, 0]._waiting))
                visit.answer(b"echo " + held.pop(0))
                held.append(await visit.frame())

        async with (
            serving(hold_three) as server,
            peers_of(server, requests_in_flight_max=3) as peers,
        ):
            asked = [asyncio.create_task(peers.request(ONE, b"%d" % n)) for n in range(10)]
            assert await asyncio.gather(*asked[:7]) == [b"echo %d" % n for n in range(7)]
            assert under_way[0] == 3
            assert max(under_way) == 3
        for request in asked[8:]:
            assert "closed" in str(await outcome(request))

    run(story)


def test_a_reply_may_come_in_pieces_and_replies_may_come_together(run: Run) -> None:
    async def dribble(visit: Visit) -> None:
        first, second = await visit.frame(), await visit.frame()
        data = b"".join(len(part).to_bytes(4) + part for part in (first * 3, second * 3))
        for piece in (data[:2], data[2:6], data[6:7], data[7:]):
            visit.writer.write(piece)
            await visit.writer.drain()
            await asyncio.sleep(0)

    async def story() -> None:
        async with serving(dribble) as server, peers_of(server) as peers:
            replies = await asyncio.gather(*(peers.request(ONE, frame) for frame in (b"ab", b"cd")))
            assert replies == [b"ababab", b"cdcdcd"]

    run(story)


def test_peers_are_told_apart(run: Run) -> None:
    async def other(visit: Visit) -> None:
        while True:
            await visit.frame()
            visit.answer(b"I am two")

    async def story() -> None:
        async with (
            serving(echo) as one,
            serving(other) as two,
            peers_of(one, two) as peers,
        ):
            assert await peers.request(TWO, b"x") == b"I am two"
            assert await peers.request(ONE, b"x") == b"echo x"

    run(story)


def test_nobody_listening_is_unreachable(run: Run) -> None:
    async def story() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            peers = TcpPeers({ONE: ("127.0.0.1", port)})
            with pytest.raises(
                PeerUnreachable, match=f"broker 1 at 127.0.0.1:{port}: .*refused|Connect call"
            ):
                await peers.request(ONE, b"x")
            with pytest.raises(PeerUnreachable, match="broker 2: no address"):
                await peers.request(TWO, b"x")
            await peers.close()

    run(story)


def test_a_port_that_nobody_listens_on_refuses_and_that_is_more_than_unreachable(run: Run) -> None:
    async def story() -> None:
        peers = TcpPeers({ONE: ("127.0.0.1", reserve_port())})
        with pytest.raises(PeerRefused, match="broker 1 at "):
            await peers.request(ONE, b"x")
        with pytest.raises(PeerRefused, match="broker 1 at "):
            await peers.hold(ONE, on_reached=lambda: pytest.fail("reached"), ms_max=1_000)
        await peers.close()

    run(story)


def test_silence_an_unknown_broker_and_a_name_that_is_none_are_no_refusals(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async def never(*args: Any, **kwargs: Any) -> None:
            await asyncio.Event().wait()

        peers = TcpPeers({ONE: ("name.invalid", 1)}, connect_timeout_ms=10)
        errors = []
        for broker in (ONE, TWO):
            with pytest.raises(PeerUnreachable) as raised:
                await peers.hold(broker, on_reached=lambda: None, ms_max=1_000)
            errors.append(raised.value)
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
        with pytest.raises(PeerUnreachable) as raised:
            await peers.hold(ONE, on_reached=lambda: None, ms_max=1_000)
        assert not any(isinstance(error, PeerRefused) for error in [*errors, raised.value])

    run(story)


def test_a_connection_is_held_until_the_peer_ends_it(run: Run) -> None:
    go = asyncio.Event()

    async def wait(visit: Visit) -> None:
        await go.wait()

    async def story() -> None:
        async with serving(wait) as server, peers_of(server) as peers:
            reached = asyncio.Event()
            held = asyncio.ensure_future(peers.hold(ONE, on_reached=reached.set, ms_max=1_000_000))
            await reached.wait()
            assert not held.done()
            go.set()
            await held

    run(story)


def test_a_connection_is_held_no_longer_than_asked_and_not_when_the_peer_is_elsewhere(
    run: Run,
) -> None:
    async def story() -> None:
        async with serving(echo) as server, peers_of(server) as peers:
            await peers.hold(ONE, on_reached=lambda: None, ms_max=1)
            reached = asyncio.Event()
            held = asyncio.ensure_future(peers.hold(ONE, on_reached=reached.set, ms_max=1_000_000))
            await reached.wait()
            peers.move_to({})
            await held
            # Those that are held do not outlive the rest.
            peers.move_to({ONE: ("127.0.0.1", server.port)})
            reached.clear()
            held = asyncio.ensure_future(peers.hold(ONE, on_reached=reached.set, ms_max=1_000_000))
            await reached.wait()
            await peers.close()
            await held

    run(story)


@pytest.mark.parametrize("seed", range(6))
def test_replies_of_any_size_come_whole_however_they_are_cut_on_their_way(
    run: Run, seed: int
) -> None:
    """Small ones share the memory they land in, large ones get their own: also just below and above what fits."""
    rng = random.Random(seed)
    edge = LANDING_BYTES - 4
    sizes = [
        rng.choice((0, 1, rng.randint(2, 500), edge - 1, edge, edge + 1, 3 * LANDING_BYTES + 7))
        for _ in range(40)
    ]
    replies = [rng.randbytes(size) for size in sizes]

    async def cut_up(visit: Visit) -> None:
        for _ in replies:
            await visit.frame()
        stream = b"".join(len(one).to_bytes(4) + one for one in replies)
        at = 0
        while at < len(stream):
            step = rng.choice((1, 3, 5, 1_000, LANDING_BYTES, 200_000))
            visit.writer.write(stream[at : at + step])
            await visit.writer.drain()
            # One piece at a time, mostly.
            await asyncio.sleep(0)
            at += step
        await visit.reader.read()

    async def story() -> None:
        async with serving(cut_up) as server, peers_of(server) as peers:
            got = await asyncio.gather(*(peers.request(ONE, b"?") for _ in replies))
            assert [bytes(one) for one in got] == replies

    run(story)


def test_a_broken_connection_fails_all_who_wait_and_the_next_request_connects_anew(
    run: Run,
) -> None:
    async def hang_up_first(visit: Visit) -> None:
        if len(visits) == 1:
            await visit.frame()
            await visit.frame()
            return
        await echo(visit)

    visits: list[Visit] = []

    async def story() -> None:
        nonlocal visits
        async with serving(hang_up_first) as server, peers_of(server) as peers:
            visits = server.visits
            failed = await asyncio.gather(
                outcome(peers.request(ONE, b"1")), outcome(peers.request(ONE, b"2"))
            )
            for text in failed:
                assert f"broker 1 at 127.0.0.1:{server.port}" in str(text)
            assert await peers.request(ONE, b"3") == b"echo 3"
            assert len(server.visits) == 2

    run(story)


def test_no_answer_in_time_ends_the_connection_so_that_late_replies_reach_nobody(run: Run) -> None:
    async def answer_late(visit: Visit) -> None:
        if len(visits) == 1:
            await visit.frame()
            await visit.reader.read()
            return
        await echo(visit)

    visits: list[Visit] = []

    async def story() -> None:
        nonlocal visits
        async with serving(answer_late) as server, peers_of(server, request_timeout_ms=50) as peers:
            visits = server.visits
            with pytest.raises(PeerUnreachable, match="broker 1: no answer within 50 ms"):
                await peers.request(ONE, b"slow")
            peers._request_timeout_ms = 60_000
            assert await peers.request(ONE, b"next") == b"echo next"
            assert len(server.visits) == 2

    run(story)


def test_what_did_not_get_through_in_time_is_not_sent_any_more(run: Run) -> None:
    """The system would go on trying for minutes, and deliver what was sent again elsewhere by then."""

    async def story() -> None:
        ends: asyncio.Queue[str] = asyncio.Queue()

        async def talk(visit: Visit) -> None:
            await visit.reader.readexactly(4)
            try:
                await visit.reader.read()
                ends.put_nowait("all was sent, and then the end")
            except ConnectionResetError:
                ends.put_nowait("reset")

        async with serving(talk) as server, peers_of(server, request_timeout_ms=50) as peers:
            assert "50 ms" in str(await outcome(peers.request(ONE, b"late")))
            assert await ends.get() == "reset"

    run(story)


def test_a_connection_that_does_not_come_about_in_time_is_unreachable(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async def never(*args: Any, **kwargs: Any) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
        peers = TcpPeers({ONE: ("127.0.0.1", 1)}, connect_timeout_ms=10)
        with pytest.raises(PeerUnreachable, match="no connection within 10 ms"):
            await peers.request(ONE, b"x")

    run(story)


def test_one_who_stops_waiting_does_not_get_others_the_wrong_reply(run: Run) -> None:
    arrived, go = asyncio.Event(), asyncio.Event()

    async def wait_then_echo(visit: Visit) -> None:
        frames = [await visit.frame(), await visit.frame()]
        arrived.set()
        await go.wait()
        for frame in frames:
            visit.answer(b"echo " + frame)
        await echo(visit)

    async def story() -> None:
        async with serving(wait_then_echo) as server, peers_of(server) as peers:
            first = asyncio.create_task(peers.request(ONE, b"1"))
            second = asyncio.create_task(peers.request(ONE, b"2"))
            await arrived.wait()
            first.cancel()
            go.set()
            assert await second == b"echo 2"
            assert first.cancelled()
            assert await peers.request(ONE, b"3") == b"echo 3"
            assert len(server.visits) == 1

    run(story)


@pytest.mark.parametrize("announced", [1001, 2**31, 2**32 - 1])
def test_a_reply_beyond_the_limit_is_refused_before_it_is_read(run: Run, announced: int) -> None:
    async def boast(visit: Visit) -> None:
        await visit.frame()
        visit.writer.write(announced.to_bytes(4))
        await visit.reader.read()

    async def story() -> None:
        async with serving(boast) as server, peers_of(server, reply_bytes_max=1000) as peers:
            with pytest.raises(PeerUnreachable, match="limit 1000"):
                await peers.request(ONE, b"x")

    run(story)


def test_a_reply_of_exactly_the_limit_is_taken(run: Run) -> None:
    async def fill(visit: Visit) -> None:
        await visit.frame()
        visit.answer(b"x" * 1000)
        await visit.reader.read()

    async def story() -> None:
        async with serving(fill) as server, peers_of(server, reply_bytes_max=1000) as peers:
            assert await peers.request(ONE, b"x") == b"x" * 1000

    run(story)


def test_a_reply_nobody_asked_for_ends_the_connection(run: Run) -> None:
    async def chatter(visit: Visit) -> None:
        await visit.frame()
        visit.answer(b"asked for")
        visit.answer(b"not asked for")
        await visit.reader.read()

    async def story() -> None:
        async with serving(chatter) as server, peers_of(server) as peers:
            assert await peers.request(ONE, b"1") == b"asked for"
            await peers._connections[ONE, 0].gone.wait()
            assert peers._connections[ONE, 0].ended == "it sent an unexpected reply"
            assert await peers.request(ONE, b"2") == b"asked for"
            assert len(server.visits) == 2

    run(story)


def test_a_peer_that_moved_is_asked_at_its_new_address(run: Run) -> None:
    async def story() -> None:
        async with serving(echo) as old, serving(echo) as new:
            addresses = {ONE: ("127.0.0.1", old.port)}
            peers = TcpPeers(addresses)
            await peers.request(ONE, b"x")
            addresses[ONE] = ("127.0.0.1", new.port)
            await peers.request(ONE, b"x")
            assert (len(old.visits), len(new.visits)) == (1, 1)
            await peers.close()

    run(story)


def test_closing_fails_those_who_wait_and_later_requests(run: Run) -> None:
    arrived = asyncio.Event()

    async def silent(visit: Visit) -> None:
        await visit.frame()
        arrived.set()
        await visit.reader.read()

    async def story() -> None:
        async with serving(silent) as server:
            async with peers_of(server) as peers:
                waiting = asyncio.create_task(outcome(peers.request(ONE, b"x")))
                await arrived.wait()
            assert "closed by this broker" in str(await waiting)
            with pytest.raises(PeerUnreachable, match="closed"):
                await peers.request(ONE, b"x")

    run(story)
