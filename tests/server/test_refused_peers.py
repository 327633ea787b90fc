"""Peers that are refused again and again: named for what they are, and logged once a minute."""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable

import pytest

from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import encode_request
from respool.pacing.rate_limited_log import INTERVAL_S
from respool.server.client_connection import ClientConnection
from respool.server.listener import Listener
from respool.wire.api_table import Api
from server.fake_transport import FakeTransport

HTTP_REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
TLS_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(200)


@pytest.fixture(autouse=True)
def _at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="respool.server")


def connect(listener: Listener, broker: RunningBroker, data: bytes = b"") -> FakeTransport:
    transport = FakeTransport()
    connection = ClientConnection(broker=broker.broker, owner=listener)
    transport.attach(connection)
    if data:
        buffer = connection.get_buffer(-1)
        buffer[: len(data)] = data
        connection.buffer_updated(len(data))
    return transport


def play(broker: RunningBroker, story: Callable[[Listener], Awaitable[None]]) -> None:
    async def run() -> None:
        await story(Listener(broker.broker))
        await asyncio.sleep(0)

    broker.run(run())


def test_an_http_client_is_named_in_the_log_and_told_that_this_is_no_http_port(
    running_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(listener: Listener) -> None:
        transport = connect(listener, running_broker, HTTP_REQUEST)
        assert transport.is_closing()
        assert transport.sent.startswith(b"HTTP/1.1 400 ")

    play(running_broker, story)
    (line,) = caplog.messages
    assert line.startswith("closed the connection from 127.0.0.1: an HTTP client (GET)")
    assert "frame of" not in line


def test_a_tls_client_is_named_in_the_log_and_sent_nothing(
    running_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(listener: Listener) -> None:
        transport = connect(listener, running_broker, TLS_HELLO)
        assert transport.is_closing()
        assert transport.sent == b""

    play(running_broker, story)
    (line,) = caplog.messages
    assert line.startswith("closed the connection from 127.0.0.1: a TLS client")


def test_a_kafka_client_that_announces_too_much_later_is_not_taken_for_an_http_client(
    running_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(listener: Listener) -> None:
        request = encode_request(Api.API_VERSIONS, 0)
        whole = struct.pack(">i", len(request)) + bytes(request)
        transport = connect(listener, running_broker, whole + HTTP_REQUEST)
        assert transport.is_closing()
        assert b"HTTP/1.1" not in transport.sent

    play(running_broker, story)
    (line,) = caplog.messages
    assert "frame of 1195725856 bytes" in line


def test_a_peer_that_is_refused_many_times_is_logged_once_a_minute_with_a_count(
    running_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(listener: Listener) -> None:
        for _ in range(500):
            connect(listener, running_broker, HTTP_REQUEST)
            await asyncio.sleep(0)
        assert len(caplog.messages) == 1
        listener.sweep(asyncio.get_running_loop().time() + INTERVAL_S)

    play(running_broker, story)
    assert len(caplog.messages) == 2
    assert caplog.messages[1].endswith("(498 more like this since the last such line)")


def test_another_reason_of_the_same_peer_is_not_hidden(
    running_broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(listener: Listener) -> None:
        connect(listener, running_broker, HTTP_REQUEST)
        connect(listener, running_broker, TLS_HELLO)

    play(running_broker, story)
    assert len(caplog.messages) == 2


def test_connections_beyond_the_limit_are_logged_once_a_minute(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker = start_broker(connections_per_address_max=1)

    async def story(listener: Listener) -> None:
        for _ in range(100):
            connect(listener, broker)

    play(broker, story)
    (line,) = caplog.messages
    assert line == "refused a connection from 127.0.0.1: connections_per_address_max = 1"
