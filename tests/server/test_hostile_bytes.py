"""Bytes that no client should send, over real sockets. They cost their sender the connection, nobody else anything."""

import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection
from io import BytesIO

import pytest
from kio.schema.api_versions.v0.response import ApiVersionsResponse
from kio.serial import entity_reader

from broker.wire_client import CORRELATION_ID, encode_request
from respool.wire.api_table import API_TABLE, Api
from support.broker_process import BrokerProcess
from support.raw_client import ConnectionEnded, RawClient
from support.waiting import wait_until
from support.witness import Witness

pytestmark = [pytest.mark.xdist_group("hostile-bytes")]

FRAME_BYTES_MAX = 10 * 1024 * 1024
SETTINGS = {
    "frame_bytes_max": FRAME_BYTES_MAX,
    "frame_arrival_ms": 1_000,
    "memory_bytes_max": 64 * 1024 * 1024,
}
UNSUPPORTED_VERSION = 35
INVALID_TOPIC = 17
UNKNOWN_TOPIC = 3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("hostile") / "data", SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def witness(broker: BrokerProcess) -> Witness:
    return Witness(broker)


@pytest.fixture(autouse=True)
def _unharmed(witness: Witness) -> Iterator[None]:
    """After every test a new client is served, and all it ever wrote is there."""
    yield
    witness.testify()


def header(key: int, version: int, correlation_id: int = 7) -> bytes:
    """A request header that every version understands, with a null client id."""
    return struct.pack(">hhih", key, version, correlation_id, -1)


# Frames.


@pytest.mark.parametrize("seed", range(8))
def test_random_bytes_end_the_connection(broker: BrokerProcess, seed: int) -> None:
    rng = random.Random(seed)
    with RawClient(broker.address) as client:
        # A length that cannot be, or one that the bytes fulfil.
        first = rng.choice([b"\xff", b"\x00\x00\x00\x40"])
        client.send(first + rng.randbytes(1_000))
        client.wait_for_end()


@pytest.mark.parametrize(
    "greeting",
    [
        bytes.fromhex("1603010200010001fc0303") + bytes(200),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        bytes(64),
    ],
    ids=["tls", "ssh", "zeros"],
)
def test_other_protocols_end_the_connection(broker: BrokerProcess, greeting: bytes) -> None:
    with RawClient(broker.address) as client:
        client.send(greeting)
        client.wait_for_end()


def test_an_http_client_is_told_that_this_is_no_http_port(broker: BrokerProcess) -> None:
    host, port = broker.address.rsplit(":", 1)
    connection = HTTPConnection(host, int(port), timeout=30)
    connection.request("GET", "/metrics")
    reply = connection.getresponse()
    assert reply.status == HTTPStatus.BAD_REQUEST
    assert b"Kafka protocol" in reply.read()
    connection.close()


@pytest.mark.parametrize("size", [2**31 - 1, FRAME_BYTES_MAX + 1, -1, -(2**31), 0, 7])
def test_a_frame_size_that_cannot_be_ends_the_connection_at_once(
    broker: BrokerProcess, size: int
) -> None:
    before = broker.resident_bytes()
    with RawClient(broker.address) as client:
        client.send(struct.pack(">i", size))
        client.wait_for_end()
    assert broker.resident_bytes() - before < 5_000_000


def test_an_announced_frame_costs_no_memory_before_it_comes(broker: BrokerProcess) -> None:
    before = broker.resident_bytes()
    clients = [RawClient(broker.address) for _ in range(100)]
    for client in clients:
        client.send(struct.pack(">i", FRAME_BYTES_MAX) + bytes(100))
    with RawClient(broker.address) as other:
        assert other.ask(Api.API_VERSIONS, 0).error_code == 0
    # A hundred times ten megabytes were announced; 64 KiB of buffer each is what they got.
    assert broker.resident_bytes() - before < 40_000_000
    for client in clients:
        client.socket.close()


@pytest.mark.parametrize("part", [b"\x00", struct.pack(">i", 100), struct.pack(">i", 100) + b"abc"])
def test_a_frame_that_does_not_arrive_whole_in_time_ends_the_connection(
    broker: BrokerProcess, part: bytes
) -> None:
    with RawClient(broker.address) as client:
        client.send(part)
        client.wait_for_end()


def test_a_client_that_trickles_bytes_does_not_get_more_time(broker: BrokerProcess) -> None:
    with RawClient(broker.address) as client:
        client.send(struct.pack(">i", 10_000))
        ended = False

        def trickle() -> bool:
            nonlocal ended
            try:
                client.send(b"x")
                client.send(b"x")
            except ConnectionEnded:
                ended = True
            return ended

        wait_until(trickle, "the broker ends the connection", seconds=10)


# Requests.


@pytest.mark.parametrize("key", [999, -1, 32767, -32768, 10_000])
def test_an_unknown_api_ends_the_connection(broker: BrokerProcess, key: int) -> None:
    with RawClient(broker.address) as client:
        client.send_frame(header(key, 0) + bytes(20))
        client.wait_for_end()


@pytest.mark.parametrize("api", [api for api in API_TABLE if api != Api.API_VERSIONS])
def test_a_version_that_is_not_served_ends_the_connection(broker: BrokerProcess, api: int) -> None:
    spec = API_TABLE[api]
    for version in (spec.version_min - 1, spec.version_max + 1, 32767):
        with RawClient(broker.address) as client:
            client.send_frame(header(api, version) + bytes(20))
            client.wait_for_end()


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
def test_a_too_new_api_versions_request_is_answered_in_the_oldest_form(
    broker: BrokerProcess, version: int
) -> None:
    with RawClient(broker.address) as client:
        client.send_frame(
            header(Api.API_VERSIONS, version, 1234) + b"\x00some fields of later days"
        )
        frame = client.receive_frame()
        assert frame[4:8] == struct.pack(">i", 1234)
        body, size = entity_reader(ApiVersionsResponse)(frame, 8)
        assert size == len(frame) - 8
        assert body.error_code == UNSUPPORTED_VERSION
        ranges = {int(one.api_key): (one.min_version, one.max_version) for one in body.api_keys}
        assert ranges[Api.API_VERSIONS] == (0, API_TABLE[Api.API_VERSIONS].version_max)
        # The connection goes on, as clients expect that ask again.
        software = {"client_software_name": "tester", "client_software_version": "1"}
        assert client.ask(Api.API_VERSIONS, 3, **software).error_code == 0


@pytest.mark.parametrize("api", list(API_TABLE))
def test_a_body_of_garbage_never_gets_more_than_the_connection(
    broker: BrokerProcess, api: int
) -> None:
    """Answered, refused or hung up on: any of these, as long as the broker lives and says nothing but frames."""
    spec = API_TABLE[api]
    rng = random.Random(api)
    for version in range(spec.version_min, spec.version_max + 1):
        for size in (0, 1, 30, 200):
            with RawClient(broker.address) as client, suppress(ConnectionEnded):
                client.send_frame(header(api, version) + rng.randbytes(size))
                # Whatever came of it, this one has a form; after its reply nothing is outstanding.
                client.send_frame(encode_request(Api.API_VERSIONS, 0))
                while client.receive_frame()[4:8] != struct.pack(">i", CORRELATION_ID):
                    pass


@pytest.mark.parametrize("length", [2**31 - 1, 10**6, -2])
def test_an_array_length_that_the_bytes_cannot_hold_ends_the_connection(
    broker: BrokerProcess, length: int
) -> None:
    before = broker.resident_bytes()
    with RawClient(broker.address) as client:
        client.send_frame(header(Api.METADATA, 1) + struct.pack(">i", length) + bytes(8))
        client.wait_for_end()
    assert broker.resident_bytes() - before < 5_000_000


def test_a_request_is_answered_however_its_bytes_are_cut(broker: BrokerProcess) -> None:
    request = bytes(encode_request(Api.METADATA, 12, topics=[], allow_auto_topic_creation=False,
        include_topic_authorized_operations=False))  # fmt: skip
    stream = BytesIO()
    for _ in range(20):
        stream.write(struct.pack(">i", len(request)) + request)
    data = stream.getvalue()
    rng = random.Random(5)
    with RawClient(broker.address) as client:
        while data:
            count = rng.randrange(1, 40)
            client.send(data[:count])
            data = data[count:]
        frames = {client.receive_frame() for _ in range(20)}
    assert len(frames) == 1


# Names.

BAD_NAMES = [
    "..",
    ".",
    "",
    "../escape",
    "../../../../tmp/escape",
    "/tmp/escape",
    "a/b",
    "a\\b",
    "a\x00b",
    "a\nb",
    "naïve",
    "x" * 250,
    "topic-0/../../escape",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_topic_name_that_could_be_a_path_makes_no_folder(
    broker: BrokerProcess, name: str
) -> None:
    before = sorted(broker.data.parent.rglob("*"))
    with RawClient(broker.address) as client:
        wish = {
            "name": name,
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        created = client.ask(
            Api.CREATE_TOPICS, 5, topics=[wish], timeout=1_000, validate_only=False
        )
        assert [one.error_code for one in created.topics] == [INVALID_TOPIC]
        described = client.ask(
            Api.METADATA,
            9,
            topics=[{"name": name}],
            allow_auto_topic_creation=True,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        assert [one.error_code for one in described.topics] == [INVALID_TOPIC]
        assert client.produce(name, b"").error_code in {UNKNOWN_TOPIC, INVALID_TOPIC}
        assert client.fetch(name).error_code in {UNKNOWN_TOPIC, INVALID_TOPIC}
        deleted = client.ask(Api.DELETE_TOPICS, 4, topic_names=[name], timeout=1_000)
        assert deleted.responses[0].error_code in {UNKNOWN_TOPIC, INVALID_TOPIC}
    assert sorted(broker.data.parent.rglob("*")) == before
