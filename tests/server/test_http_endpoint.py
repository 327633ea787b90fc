"""Real sockets on one loop; time that passes is the loop's deadlines, called by hand."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from respool.model.errors import SettingsError
from respool.server import http_endpoint
from respool.server.http_endpoint import (
    CONNECTIONS_MAX,
    HttpConnection,
    HttpEndpoint,
    Page,
    text_page,
)
from respool.server.http_request import OK

Story = Callable[[HttpEndpoint, int], Awaitable[None]]


async def hello() -> Page:
    return Page([b"hel", b"lo\n"])


async def broken() -> Page:
    raise RuntimeError("as the test wants it")


def with_endpoint(story: Story) -> None:
    async def run() -> None:
        endpoint = HttpEndpoint({"/hello": hello, "/broken": broken})
        _, port = await endpoint.start("127.0.0.1", 0)
        try:
            await story(endpoint, port)
        finally:
            endpoint.close()
            # Connections that are closed say so in the loop's next turns.
            while endpoint._connections:
                await asyncio.sleep(0)

    asyncio.run(run())


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    reply = await reader.read()
    writer.close()
    await writer.wait_closed()
    return reply


async def connections(endpoint: HttpEndpoint, count: int) -> list[HttpConnection]:
    while len(endpoint._connections) < count:
        await asyncio.sleep(0)
    return list(endpoint._connections)


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()


def test_a_page_is_sent_with_its_length_and_the_connection_closed() -> None:
    async def story(_: HttpEndpoint, port: int) -> None:
        head, body = (await ask(port, get("/hello?name=x"))).split(b"\r\n\r\n")
        assert body == b"hello\n"
        lines = head.decode().split("\r\n")
        assert lines[0] == "HTTP/1.1 200 OK"
        assert "Content-Length: 6" in lines
        assert "Connection: close" in lines

    with_endpoint(story)


def test_head_is_the_same_without_the_body() -> None:
    async def story(_: HttpEndpoint, port: int) -> None:
        whole = await ask(port, get("/hello"))
        assert await ask(port, get("/hello", "HEAD")) == whole.removesuffix(b"hello\n")

    with_endpoint(story)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/"), b"404 Not Found"),
        (get("/metrics/"), b"404 Not Found"),
        (get("/hello", "POST") + b"a body", b"405 Method Not Allowed"),
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (get("/hello" + "x" * 10_000), b"431 Request Header Fields Too Large"),
        (get("/broken"), b"500 Internal Server Error"),
    ],
)
def test_everything_else_is_refused_by_its_status(request_bytes: bytes, status: bytes) -> None:
    async def story(_: HttpEndpoint, port: int) -> None:
        reply = await ask(port, request_bytes)
        assert reply.startswith(b"HTTP/1.1 " + status + b"\r\n")
        assert (b"Allow: GET, HEAD" in reply) == (b"405" in status)

    with_endpoint(story)


def test_a_silent_connection_does_not_hold_the_endpoint() -> None:
    async def story(endpoint: HttpEndpoint, port: int) -> None:
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        silent.write(b"GET /he")
        await connections(endpoint, 1)
        assert (await ask(port, get("/hello"))).endswith(b"hello\n")
        silent.close()

    with_endpoint(story)


def test_a_silent_connection_is_closed_when_its_time_is_over() -> None:
    async def story(endpoint: HttpEndpoint, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /hello HTTP/1.1\r\n")
        (connection,) = await connections(endpoint, 1)
        timer = connection._deadline
        assert 0 < timer.when() - asyncio.get_running_loop().time() <= http_endpoint.REQUEST_S
        timer._callback()  # type: ignore[attr-defined]
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()

    with_endpoint(story)


def test_silent_connections_make_room_for_the_next_however_many_they_are() -> None:
    async def story(endpoint: HttpEndpoint, port: int) -> None:
        crowd = []
        for count in range(1, 2 * CONNECTIONS_MAX + 1):
            crowd.append(await asyncio.open_connection("127.0.0.1", port))
            await connections(endpoint, min(count, CONNECTIONS_MAX))
        assert (await ask(port, get("/hello"))).endswith(b"hello\n")
        assert len(endpoint._connections) <= CONNECTIONS_MAX
        for _, writer in crowd:
            writer.close()

    with_endpoint(story)


def test_with_only_requests_under_way_another_is_turned_away() -> None:
    async def run() -> None:
        go_on = asyncio.Event()

        async def slow() -> Page:
            await go_on.wait()
            return text_page(OK, "slow")

        endpoint = HttpEndpoint({"/slow": slow})
        _, port = await endpoint.start("127.0.0.1", 0)
        waiting = [asyncio.ensure_future(ask(port, get("/slow"))) for _ in range(CONNECTIONS_MAX)]
        while not all(one.has_request for one in await connections(endpoint, CONNECTIONS_MAX)):
            await asyncio.sleep(0)
        assert b"503 Service Unavailable" in await ask(port, b"")
        go_on.set()
        assert all(b"200 OK" in one for one in await asyncio.gather(*waiting))
        endpoint.close()

    asyncio.run(run())


def test_who_takes_nothing_of_a_reply_is_dropped_when_its_time_is_over() -> None:
    async def run() -> None:
        async def large() -> Page:
            return Page([b"x" * (1 << 25)])

        endpoint = HttpEndpoint({"/large": large})
        _, port = await endpoint.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(get("/large"))
        (connection,) = await connections(endpoint, 1)
        while connection._answering is None or not connection._answering.done():
            await asyncio.sleep(0)
        assert connection in endpoint._connections
        connection._deadline._callback()  # type: ignore[attr-defined]
        while endpoint._connections:
            await asyncio.sleep(0)
        writer.transport.abort()
        endpoint.close()
        del reader

    asyncio.run(run())


def test_an_address_in_use_is_a_settings_error() -> None:
    async def story(_: HttpEndpoint, port: int) -> None:
        with pytest.raises(
            SettingsError,
            match=f"metrics_listen = 127.0.0.1:{port}: something listens there already; choose another",
        ):
            await HttpEndpoint({}).start("127.0.0.1", port)

    with_endpoint(story)
