"""How consumers find their place and wait: by offset, by time, at the ends, and for messages not yet written."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from respool.broker.fetch.fetch_run import FetchAnswer, FetchRun
from respool.broker.outcome import Reply
from respool.testing import Broker
from support.all_clients import each_client
from support.broker_process import BrokerProcess
from support.confluent_client import ConfluentClient
from support.message import FetchSettings, KafkaClient, Message
from support.quick_broker import quick_broker
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("consuming")]

T0_MS = 1_700_000_000_000
# Not in order, as times from many machines are not.
TIMES = [T0_MS + 10, T0_MS + 30, T0_MS + 20, T0_MS + 50, T0_MS + 40]


def put(address: str, topic: str, messages: Sequence[Message], partition: int = 0) -> None:
    # Without idempotence, for librdkafka takes half a second to get a producer id.
    ConfluentClient().write(address, (topic, partition), messages, idempotent=False)


class Fetches:
    """The fetches of a broker in this process: those that wait, and in order the replies up to the first message."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: list[FetchRun] = []
        self.answered: list[tuple[FetchRun, int]] = []
        wait, encode = FetchRun.answer_when_more, FetchRun.encode

        async def recorded_wait(run: FetchRun, answer: FetchAnswer) -> Reply:
            self.waiting.append(run)
            return await wait(run, answer)

        def recorded_encode(run: FetchRun, answer: FetchAnswer) -> Reply:
            # A client may also ask about no partition, to end its session.
            if answer.partitions and not any(count for _, count in self.answered):
                self.answered.append((run, answer.record_bytes))
            return encode(run, answer)

        monkeypatch.setattr(FetchRun, "answer_when_more", recorded_wait)
        monkeypatch.setattr(FetchRun, "encode", recorded_encode)

    def wait_for_one(self) -> None:
        wait_until(lambda: self.waiting, "a consumer waits for messages", seconds=60)


@pytest.fixture
def quick() -> Iterator[Broker]:
    with quick_broker() as running:
        yield running


@pytest.fixture(scope="module")
def history(broker: BrokerProcess, topics: Topics) -> str:
    """A topic with five messages in several batches, some of two, and times out of order."""
    topic = topics.new("history")
    messages = [Message(value=b"%d" % n, timestamp_ms=time) for n, time in enumerate(TIMES)]
    for batch in (messages[:1], messages[1:3], messages[3:]):
        put(broker.address, topic, batch)
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
    quick: Broker, client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = quick.new_topic("awaited")
    fetches = Fetches(monkeypatch)
    patient = FetchSettings(wait_ms=25_000)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            client.read_from, quick.bootstrap, (topic, 0), 0, count=1, fetch=patient
        )
        fetches.wait_for_one()
        put(quick.bootstrap, topic, [Message(value=b"at last")])
        (received,) = waiting.result(60)
    assert received.value == b"at last"
    (reply,) = fetches.answered
    assert reply[0] is fetches.waiting[0]


@pytest.mark.parametrize("client", each_client())
def test_a_consumer_that_wants_many_bytes_waits_until_they_are_there(
    quick: Broker, client: KafkaClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = quick.new_topic("collected")
    fetches = Fetches(monkeypatch)
    greedy = FetchSettings(bytes_min=20_000, wait_ms=25_000)
    large = Message(value=b"x" * 8_000)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            client.read_from, quick.bootstrap, (topic, 0), 0, count=3, fetch=greedy
        )
        fetches.wait_for_one()
        for _ in range(3):
            put(quick.bootstrap, topic, [large])
        received = waiting.result(60)
    assert [one.offset for one in received] == [0, 1, 2]
    # Two were not enough: the reply to what it asked first has all of them.
    ((run, record_bytes),) = fetches.answered
    assert run is fetches.waiting[0]
    assert record_bytes > 3 * 8_000


@pytest.mark.parametrize("client", each_client())
def test_a_batch_larger_than_a_consumers_limit_comes_all_the_same(
    broker: BrokerProcess, topics: Topics, client: KafkaClient
) -> None:
    topic = topics.new("large")
    message = Message(value=b"x" * 100_000)
    for _ in range(3):
        put(broker.address, topic, [message])
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
        put(broker.address, topic, messages, number)
    received = client.read(broker.address, [(topic, number) for number in range(4)])
    assert {place: [one.value for one in messages] for place, messages in received.items()} == {
        (topic, number): [b"%d-%d" % (number, n) for n in range(10)] for number in range(4)
    }
