"""A connection to peers that do everything wrong: each time a typed error, and nothing more goes through."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from respool.client.kafka.connection import Connection, ReplyBuffer
from respool.client.kafka.errors import (
    BrokerUnreachable,
    ClientClosed,
    ConnectionLost,
    ProtocolBroken,
    VersionUnsupported,
)
from respool.client.kafka.transport import LinkSettings
from respool.client.kafka.versions import VersionRange
from respool.wire.api_table import Api
from support.scripted_broker import HANG_UP, ScriptedBroker

FETCH = 13
Answer = Callable[[bytes], bytes]


@contextmanager
def connected(broker: ScriptedBroker, **settings: int) -> Iterator[Connection]:
    with Connection(("127.0.0.1", broker.port), LinkSettings(**settings)) as connection:  # type: ignore[arg-type]
        connection.open()
        yield connection


@contextmanager
def peer(answer: bytes) -> Iterator[tuple[str, int]]:
    """Answers the first request with these bytes, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            line, _ = listener.accept()
            with line:
                line.recv(65_536)
                line.sendall(answer)

        thread = Thread(target=serve)
        thread.start()
        yield listener.getsockname()
        thread.join()


def fields(broker: ScriptedBroker) -> dict[str, object]:
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "partition_max_bytes": 1_000,
    }
    return {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1_000,
        "topics": [{"topic_id": broker.topic_id, "partitions": [partition]}],
        "forgotten_topics_data": [],
    }


def test_replies_come_in_the_order_of_requests_also_with_several_on_their_way() -> None:
    with ScriptedBroker() as broker, connected(broker) as connection:
        broker.append(b"one")
        for _ in range(3):
            connection.send(Api.FETCH, FETCH, fields(broker))
        assert connection.in_flight == 3
        buffer = ReplyBuffer()
        sizes = {len(connection.receive(buffer)) for _ in range(3)}
        assert len(sizes) == 1
        assert connection.in_flight == 0


def test_the_newest_version_that_both_speak_is_taken() -> None:
    with ScriptedBroker() as broker:
        broker.versions[Api.FETCH] = (4, 12)
        with connected(broker) as connection:
            assert connection.version(Api.FETCH, VersionRange(12, 13)) == 12
            with pytest.raises(VersionUnsupported, match="Fetch 4 to 12, this client 13 to 17"):
                connection.version(Api.FETCH, VersionRange(13, 17))
            del broker.versions[Api.FETCH]
        with connected(broker) as connection, pytest.raises(VersionUnsupported):
            connection.version(Api.FETCH, VersionRange(12, 13))


def test_a_broker_that_knows_only_old_forms_of_api_versions_is_asked_in_the_oldest() -> None:
    with ScriptedBroker() as broker:
        broker.versions[Api.API_VERSIONS] = (0, 0)
        broker.versions[Api.FETCH] = (4, 11)
        with connected(broker) as connection:
            assert connection.version(Api.FETCH, VersionRange(4, 13)) == 11


@pytest.mark.parametrize("size", [-1, 0, 3, 1_001, 2**31 - 1])
def test_a_reply_of_an_impossible_size_is_not_read(size: int) -> None:
    settings = LinkSettings(frame_bytes_max=1_000)
    with peer(struct.pack(">i", size)) as address, Connection(address, settings) as connection:
        with pytest.raises(ProtocolBroken, match=f"a reply of {size} bytes"):
            connection.open()
        assert not connection.is_open


@pytest.mark.parametrize("answer", [b"", b"\0", struct.pack(">i", 100) + b"x" * 50])
def test_an_end_within_a_frame_is_a_lost_connection(answer: bytes) -> None:
    with peer(answer) as address, Connection(address, LinkSettings()) as connection:
        with pytest.raises(ConnectionLost, match="bytes of a reply had come"):
            connection.open()
        assert not connection.is_open


def test_something_that_is_no_broker_is_told_so() -> None:
    answer = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with (
        peer(answer) as address,
        Connection(address, LinkSettings()) as connection,
        pytest.raises(ProtocolBroken),
    ):
        connection.open()


def test_an_answer_to_another_request_is_refused() -> None:
    with ScriptedBroker() as broker, connected(broker) as connection:
        broker.script.append(lambda request: struct.pack(">ii", 4, request.correlation_id + 1))
        connection.send(Api.FETCH, FETCH, fields(broker))
        with pytest.raises(ProtocolBroken, match="answered request 3, not 2"):
            connection.receive()
        with pytest.raises(ClientClosed):
            connection.send(Api.FETCH, FETCH, fields(broker))


def test_bytes_that_are_no_reply_are_refused() -> None:
    with ScriptedBroker() as broker, connected(broker) as connection:
        broker.script.append(lambda request: struct.pack(">iiB", 5, request.correlation_id, 0))
        with pytest.raises(ProtocolBroken):
            connection.request(Api.FETCH, FETCH, fields(broker))


def test_a_silent_broker_is_given_up() -> None:
    settings = LinkSettings(request_timeout_ms=50)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Connection(listener.getsockname(), settings) as connection,
        pytest.raises(ConnectionLost, match=r"silent for 0\.05 s"),
    ):
        connection.open()


def test_nobody_there_is_said_with_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with (
        Connection(address, LinkSettings()) as connection,
        pytest.raises(BrokerUnreachable, match=f":{address[1]}"),
    ):
        connection.open()


def test_a_thread_that_waits_is_woken() -> None:
    caught: list[BaseException] = []

    def wait(connection: Connection) -> None:
        try:
            connection.open()
        except ClientClosed as error:
            caught.append(error)

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        Connection(listener.getsockname(), LinkSettings()) as connection,
    ):
        thread = Thread(target=wait, args=(connection,))
        thread.start()
        line, _ = listener.accept()
        connection.interrupt()
        thread.join(10)
        line.close()
    assert len(caught) == 1


def test_an_idle_connection_that_the_broker_ended_is_seen_as_such() -> None:
    with ScriptedBroker() as broker, connected(broker) as connection:
        assert connection.is_fresh
        broker.script.append(lambda _: HANG_UP)
        with pytest.raises(ConnectionLost):
            connection.request(Api.FETCH, FETCH, fields(broker))
        assert not connection.is_fresh


def test_a_kept_buffer_serves_one_reply_after_the_other_and_large_ones_are_not_kept() -> None:
    buffer = ReplyBuffer(keep_bytes_max=100)
    first = buffer.room(50)
    first[0] = 1
    assert buffer.room(40)[0] == 1
    assert len(buffer.room(100)) == 100
    large = buffer.room(101)
    large[0] = 7
    assert buffer.room(100)[0] != 7
