"""Topics that nobody made: created on first use, unless the broker or the client says no."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaError
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from respool.testing import Broker
from support.all_clients import each_client
from support.confluent_client import ConfluentClient, Deliveries, consumer, producer
from support.kcat_client import KCAT, MISSING, KcatFailed, kcat
from support.message import KafkaClient, Message
from support.quick_broker import quick_broker
from support.topics import Topics

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("auto-creation")]

# The default of max.message.bytes, roughly.
LARGE = 1_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with quick_broker({"num_partitions": 3}) as running:
        yield running


@pytest.fixture(scope="module")
def topics(broker: Broker) -> Topics:
    return Topics(broker.bootstrap)


@pytest.fixture(scope="module")
def strict() -> Iterator[Broker]:
    """A broker that creates only what it is told to."""
    with quick_broker({"auto_create_topics": False}) as running:
        yield running


def names(broker: Broker) -> set[str]:
    return set(Topics(broker.bootstrap).admin.list_topics(timeout=60).topics)


@pytest.mark.parametrize("client", each_client())
def test_writing_to_a_topic_creates_it_with_the_brokers_number_of_partitions(
    broker: Broker, topics: Topics, client: KafkaClient
) -> None:
    topic = f"made-by-{client.name}"
    client.write(broker.bootstrap, (topic, 2), [Message(value=b"v")], idempotent=False)
    assert len(topics.admin.list_topics(topic, timeout=60).topics[topic].partitions) == 3
    assert client.bounds(broker.bootstrap, (topic, 2)) == (0, 1)


def test_a_client_that_does_not_want_to_create_topics_is_told_there_is_none(
    broker: Broker,
) -> None:
    reader = consumer(broker.bootstrap, allow_auto_create_topics=False)
    answer = reader.list_topics("not-made", timeout=60).topics["not-made"]
    reader.close()
    assert answer.error is not None
    assert answer.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert "not-made" not in names(broker)


def test_a_strict_broker_refuses_confluents_producer(strict: Broker) -> None:
    sender = producer(
        strict.bootstrap, message_timeout_ms=3_000, topic_metadata_propagation_max_ms=100
    )
    told = Deliveries()
    sender.produce("unknown", b"v", on_delivery=told)
    assert not sender.flush(10)
    assert [error.code() for error in told.errors] == [KafkaError.UNKNOWN_TOPIC_OR_PART]
    assert "unknown" not in names(strict)


def test_a_strict_broker_refuses_kafka_pythons_producer(strict: Broker) -> None:
    sender = KafkaProducer(bootstrap_servers=strict.bootstrap, max_block_ms=500)
    with pytest.raises(KafkaPythonError):
        sender.send("unknown", b"v").get(10)
    sender.close()
    assert "unknown" not in names(strict)


def test_a_strict_broker_refuses_aiokafkas_producer(strict: Broker) -> None:
    async def send() -> None:
        sender = AIOKafkaProducer(bootstrap_servers=strict.bootstrap, request_timeout_ms=500)
        await sender.start()
        try:
            await sender.send("unknown", b"v")
        finally:
            await sender.stop()

    with pytest.raises(AiokafkaError):
        asyncio.run(send())
    assert "unknown" not in names(strict)


@pytest.mark.skipif(KCAT is None, reason=MISSING)
def test_a_strict_broker_refuses_kcat(strict: Broker) -> None:
    with pytest.raises(KcatFailed, match=r"(?i)unknown topic"):
        kcat(
            strict.bootstrap, "-P", "-t", "unknown", "-Xtopic.metadata.propagation.max.ms=100",
            "-Xmessage.timeout.ms=3000", given="v\n",
        )  # fmt: skip
    assert "unknown" not in names(strict)


def test_a_consumer_that_was_there_before_its_topic_reads_it(strict: Broker) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            ConfluentClient().read_from, strict.bootstrap, ("late", 0), 0, count=1
        )
        Topics(strict.bootstrap).create("late")
        ConfluentClient().write(
            strict.bootstrap, ("late", 0), [Message(value=b"here")], idempotent=False
        )
        (received,) = waiting.result(60)
    assert received.value == b"here"


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_topic_does_not_stay_when_its_first_message_was_too_large(
    broker: Broker, idempotent: bool
) -> None:
    topic = f"too-large-{idempotent}"
    sender = producer(
        broker.bootstrap, message_max_bytes=3 * LARGE, enable_idempotence=idempotent, linger_ms=0
    )
    told = Deliveries()
    sender.produce(topic, b"v" * 2 * LARGE, on_delivery=told)
    assert not sender.flush(10)
    assert [error.code() for error in told.errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert topic not in names(broker)
    # The same producer goes on: the topic is created again.
    sender.produce(topic, b"v", on_delivery=told)
    assert not sender.flush(30)
    assert len(told.errors) == 1
    assert topic in names(broker)


def test_messages_behind_one_that_is_too_large_arrive(broker: Broker, topics: Topics) -> None:
    """They race with the deletion of the topic, whichever comes first."""
    topic = "too-large-at-first"
    sender = producer(broker.bootstrap, message_max_bytes=3 * LARGE, linger_ms=0)
    told = Deliveries()
    for value in (b"v" * 2 * LARGE, *[b"%d" % number for number in range(20)]):
        sender.produce(topic, value, partition=0, on_delivery=told)
        sender.poll(0)
    assert not sender.flush(30)
    assert [error.code() for error in told.errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert ConfluentClient().bounds(broker.bootstrap, (topic, 0))[1] >= 20


def test_kafka_pythons_producer_goes_on_after_a_first_message_that_was_too_large(
    broker: Broker,
) -> None:
    topic = "too-large-for-kafka-python"
    # An idempotent producer of this library gives up after its first failed batch.
    sender = KafkaProducer(
        bootstrap_servers=broker.bootstrap, max_request_size=3 * LARGE, enable_idempotence=False
    )
    with pytest.raises(KafkaPythonError):
        sender.send(topic, b"v" * 2 * LARGE).get(10)
    assert topic not in names(broker)
    assert sender.send(topic, b"v").get(20).offset == 0
    sender.close()


def test_a_deleted_topic_stays_gone_while_clients_ask_for_it(
    broker: Broker, topics: Topics
) -> None:
    """Their questions allow the topic's creation, so the first one would create it."""
    sender, reader = producer(broker.bootstrap), KafkaConsumer(bootstrap_servers=broker.bootstrap)
    try:
        topics.create("short-lived")
        topics.admin.delete_topics(["short-lived"])["short-lived"].result(10)
        for _ in range(3):
            answer = sender.list_topics("short-lived", timeout=10).topics["short-lived"]
            assert answer.error is not None
            assert answer.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            assert not reader.partitions_for_topic("short-lived")
        assert "short-lived" not in names(broker)
        # A client that asks for the creation gets it at once.
        topics.create("short-lived")
        assert "short-lived" in names(broker)
    finally:
        reader.close()
