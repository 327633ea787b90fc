"""Too many clients, too slow, too greedy: the process does not grow with them, and well-behaved clients get on."""

import os
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from broker.wire_client import encode_request
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import Api
from support.broker_process import BrokerProcess
from support.raw_client import ConnectionEnded, RawClient, fetch_fields, produce_fields
from support.topics import Topics
from support.waiting import wait_until
from support.witness import Witness

pytestmark = [pytest.mark.xdist_group("hostile-crowds")]

MIB = 1024 * 1024
CONNECTIONS_MAX = 100
MEMORY_BYTES_MAX = 16 * MIB
# The budget, what allocators keep, and buffers of 64 KiB for every connection.
GROWTH_MAX = MEMORY_BYTES_MAX + 32 * MIB
SETTINGS = {
    "connections_per_address_max": CONNECTIONS_MAX,
    "memory_bytes_max": MEMORY_BYTES_MAX,
    "frame_bytes_max": 4 * MIB,
    "fetch_bytes_max": 8 * MIB,
    "frame_arrival_ms": 1_000,
    "reply_stall_ms": 1_000,
}
# Does not compress, and is close to the most a topic takes.
LARGE = build_batch([NewRecord(value=os.urandom(1_000_000))])
BATCHES = 12


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("hostile") / "data", SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def witness(broker: BrokerProcess) -> Witness:
    return Witness(broker)


@pytest.fixture(scope="module")
def history(broker: BrokerProcess) -> str:
    """A topic with more in it than one reply may hold."""
    topic = Topics(broker.address).new("history", respool_flush="os")
    with RawClient(broker.address) as client:
        for _ in range(BATCHES):
            assert client.produce(topic, LARGE).error_code == 0
    return topic


@pytest.fixture(autouse=True)
def _unharmed(witness: Witness) -> Iterator[None]:
    yield
    witness.testify()


def whole_history(topic: str) -> bytes:
    """A fetch of as much as may be, as a frame with its size."""
    frame = encode_request(Api.FETCH, 12, **fetch_fields(topic, [(0, 0)], 64 * MIB))
    return struct.pack(">i", len(frame)) + bytes(frame)


def read_history(broker: BrokerProcess, topic: str) -> None:
    """What a consumer does: one large batch after the other, asking again when nothing came."""
    with RawClient(broker.address) as client:
        for offset in range(BATCHES):

            def has_come(offset: int = offset) -> bool:
                fields = fetch_fields(topic, [(0, offset)], 2 * MIB, wait_ms=100)
                reply = client.ask(Api.FETCH, 12, **fields)
                return any(one.records for each in reply.responses for one in each.partitions)

            wait_until(has_come, f"the batch at {offset} comes")


def test_connections_beyond_the_limit_are_refused_and_those_within_go_on(
    broker: BrokerProcess, witness: Witness
) -> None:
    with ExitStack() as stack:
        within = [stack.enter_context(RawClient(broker.address)) for _ in range(CONNECTIONS_MAX)]
        assert all(client.ask(Api.API_VERSIONS, 0).error_code == 0 for client in within)
        for _ in range(50):
            with RawClient(broker.address) as beyond:
                beyond.wait_for_end()
        assert all(client.ask(Api.API_VERSIONS, 0).error_code == 0 for client in within)
    # Whoever leaves makes room, as soon as the broker has noticed.
    wait_until(lambda: _is_let_in(broker), "a new connection is let in")


def test_the_limit_on_all_connections_holds_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    data = tmp_path_factory.mktemp("crowded") / "data"
    with BrokerProcess(data, {"connections_max": 3}) as small, ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(RawClient(small.address))
            assert client.ask(Api.API_VERSIONS, 0).error_code == 0
        with RawClient(small.address) as fourth:
            fourth.wait_for_end()


def _is_let_in(broker: BrokerProcess) -> bool:
    with RawClient(broker.address) as client:
        try:
            return bool(client.ask(Api.API_VERSIONS, 0).error_code == 0)
        except ConnectionEnded:
            return False


def test_replies_to_one_client_that_reads_nothing_do_not_pile_up(
    broker: BrokerProcess, history: str
) -> None:
    before = broker.peak_resident_bytes()
    with RawClient(broker.address) as client:
        client.send(whole_history(history) * 300)
        # It is shown out when it has taken nothing for long enough.
        broker.wait_for_log("took nothing of its reply")
    assert broker.peak_resident_bytes() - before < GROWTH_MAX


def test_a_crowd_that_reads_nothing_stops_neither_consumers_nor_producers(
    broker: BrokerProcess, history: str
) -> None:
    before = broker.peak_resident_bytes()
    with ExitStack() as stack:
        for _ in range(50):
            client = stack.enter_context(RawClient(broker.address))
            client.send(whole_history(history) * 5)
        topic = Topics(broker.address).new("beside")
        with RawClient(broker.address) as producer:
            assert producer.produce(topic, LARGE).error_code == 0
        read_history(broker, history)
    assert broker.peak_resident_bytes() - before < GROWTH_MAX


def test_requests_that_do_not_arrive_whole_stop_nobody(broker: BrokerProcess, history: str) -> None:
    before = broker.peak_resident_bytes()
    topic = Topics(broker.address).new("beside")
    with ExitStack() as stack, ThreadPoolExecutor(8) as pool:
        halves = [stack.enter_context(RawClient(broker.address)) for _ in range(8)]
        half = struct.pack(">i", 4 * MIB) + bytes(3 * MIB)

        def send_half(client: RawClient) -> None:
            try:
                client.send(half)
            except ConnectionEnded:
                return

        sending = [pool.submit(send_half, client) for client in halves]
        # It waits for its turn: until those before it are shown out.
        with RawClient(broker.address, timeout_s=60) as producer:
            assert producer.produce(topic, LARGE).error_code == 0
        read_history(broker, history)
        for one in sending:
            one.result(30)
    assert broker.peak_resident_bytes() - before < GROWTH_MAX


def test_more_producers_than_memory_for_their_requests_all_get_on(broker: BrokerProcess) -> None:
    before = broker.peak_resident_bytes()
    topic = Topics(broker.address).new("crowded", respool_flush="os")

    def write(_: int) -> int:
        with RawClient(broker.address, timeout_s=60) as client:
            return sum(client.produce(topic, LARGE).error_code == 0 for _ in range(5))

    with ThreadPoolExecutor(40) as pool:
        assert list(pool.map(write, range(40))) == [5] * 40
    assert broker.peak_resident_bytes() - before < GROWTH_MAX


def test_a_client_that_pipelines_beyond_measure_is_read_only_as_fast_as_it_is_answered(
    broker: BrokerProcess,
) -> None:
    before = broker.peak_resident_bytes()
    topic = Topics(broker.address).new("pipelined")
    frame = bytes(encode_request(Api.PRODUCE, 9, **produce_fields(topic, LARGE, 0, -1)))
    with RawClient(broker.address) as client, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(client.send, (struct.pack(">i", len(frame)) + frame) * 150)
        for _ in range(150):
            client.receive_frame()
        sending.result(30)
        assert client.fetch(topic).high_watermark == 150
    assert broker.peak_resident_bytes() - before < GROWTH_MAX
