"""How consumers find their place and wait: by offset, by time, at the ends, and for messages not yet written."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from respool.wire.api_table import Api
from support.all_clients import each_client
from support.broker_process import BrokerProcess
from support.confluent_client import ConfluentClient
from support.message import FetchSettings, KafkaClient, Message
from support.metrics import METRICS, counted, metrics_port
from support.raw_client import RawClient
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("consuming")]

T0_MS = 1_700_000_000_000
# Not in order, as times from many machines are not.
TIMES = [T0_MS + 10, T0_MS + 30, T0_MS + 20, T0_MS + 50, T0_MS + 40]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", METRICS) as running:
        yield running


def put(broker: BrokerProcess, topic: str, messages: Sequence[Message], partition: int = 0) -> None:
    # Without idempotence, for librdkafka takes half a second to get a producer id.
    ConfluentClient().write(broker.address, (topic, partition), messages, idempotent=False)


def count_requests(broker: BrokerProcess, api: str) -> float:
    """As of the broker's last report, which comes every second."""
    return counted(metrics_port(broker), "respool_requests_total", api=api)


def count_fetches(broker: BrokerProcess) -> float:
    """As of now: a report that knows of our own request knows of all before it."""
    before = count_requests(broker, "DescribeCluster")
    with RawClient(broker.address) as client:
        client.ask(Api.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
    wait_until(
        lambda: count_requests(broker, "DescribeCluster") > before, "the broker reports its counts"
    )
    return count_requests(broker, "Fetch")


@pytest.fixture(scope="module")
def history(broker: BrokerProcess, topics: Topics) -> str:
    """A topic with five messages in several batches, some of two, and times out of order."""
    topic = topics.new("history")
    messages = [Message(value=b"%d" % n, timestamp_ms=time) for n, time in enumerate(TIMES)]
    for batch in (messages[:1], messages[1:3], messages[3:]):
        put(broker, topic, batch)
    return topic


@pytest.mark.parametrize("client", each_client())
@pytest.mark.parametrize("offset", range(5))
def test_reading_starts_at_any_offset_also_inside_a_batch(
    broker: BrokerProcess, history: str, client: KafkaClient, offset: int
) -> None:
    received = client.read_from(broker.address, (history, 0), offset, count=5 - offset)
    assert [one.offset for one in received] == list(range(offset, 5))
    assert [one.value for one in received] == [b"%d" % n for n in range(offset, 5)]


@pytest.mark.parametrize("client", each_client())
def test_a_time_is_answered_with_the_first_offset_at_or_after_it(
    broker: BrokerProcess, history: str, client: KafkaClient
) -> None:
    for wished in range(T0_MS + 5, T0_MS + 60, 5):
        expected = next((n for n, time in enumerate(TIMES) if time >= wished), None)
        assert client.offset_at(broker.address, (history, 0), wished) == expected


@pytest.mark.parametrize("client", each_client())
def test_the_ends_of_a_partition_are_told(
    broker: BrokerProcess, topics: Topics, history: str, client: KafkaClient
) -> None:
    assert client.bounds(broker.address, (history, 0)) == (0, 5)
    assert client.bounds(broker.address, (topics.new("empty"), 0)) == (0, 0)


@pytest.mark.parametrize("client", each_client())
def test_a_waiting_consumer_gets_what_is_written_later_without_asking_again_and_again(
    broker: BrokerProcess, topics: Topics, client: KafkaClient
) -> None:
    topic = topics.new("awaited")
    before, since_s = count_fetches(broker), time.monotonic()
    patient = FetchSettings(wait_ms=10_000)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            client.read_from, broker.address, (topic, 0), 0, count=1, fetch=patient
        )
        wait_until(lambda: count_requests(broker, "Fetch") > before, "a consumer asks for messages")
        put(broker, topic, [Message(value=b"at last")])
        (received,) = waiting.result(20)
    assert received.value == b"at last"
    # The fetch that waited, a few that clients send before they are closed, and one more for each wait in vain.
    in_vain = (time.monotonic() - since_s) // (patient.wait_ms / 1000)
    assert count_fetches(broker) - before <= 5 + in_vain


@pytest.mark.parametrize("client", each_client())
def test_a_consumer_that_wants_many_bytes_waits_until_they_are_there(
    broker: BrokerProcess, topics: Topics, client: KafkaClient
) -> None:
    topic = topics.new("collected")
    before, since_s = count_requests(broker, "Fetch"), time.monotonic()
    greedy = FetchSettings(bytes_min=20_000, wait_ms=15_000)
    large = Message(value=b"x" * 8_000)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            client.read_from, broker.address, (topic, 0), 0, count=3, fetch=greedy
        )
        wait_until(lambda: count_requests(broker, "Fetch") > before, "a consumer asks for messages")
        asked = count_fetches(broker)
        put(broker, topic, [large])
        put(broker, topic, [large])
        # Not enough: it still waits for the answer to what it asked first, or to the next after each time in vain.
        asked_again = count_fetches(broker) - asked
        assert asked_again <= (time.monotonic() - since_s) // (greedy.wait_ms / 1000)
        put(broker, topic, [large])
        received = waiting.result(25)
    assert [one.offset for one in received] == [0, 1, 2]


@pytest.mark.parametrize("client", each_client())
def test_a_batch_larger_than_a_consumers_limit_comes_all_the_same(
    broker: BrokerProcess, topics: Topics, client: KafkaClient
) -> None:
    topic = topics.new("large")
    message = Message(value=b"x" * 100_000)
    for _ in range(3):
        put(broker, topic, [message])
    small = FetchSettings(partition_bytes_max=1_000)
    received = client.read_from(broker.address, (topic, 0), 0, count=3, fetch=small)
    assert [one.value for one in received] == [message.value] * 3


@pytest.mark.parametrize("client", each_client())
def test_several_partitions_are_read_at_once(
    broker: BrokerProcess, topics: Topics, client: KafkaClient
) -> None:
    topic = topics.new("wide", partitions=4)
    for number in range(4):
        messages = [Message(value=b"%d-%d" % (number, n)) for n in range(10)]
        put(broker, topic, messages, number)
    received = client.read(broker.address, [(topic, number) for number in range(4)])
    assert {place: [one.value for one in messages] for place, messages in received.items()} == {
        (topic, number): [b"%d-%d" % (number, n) for n in range(10)] for number in range(4)
    }
