"""Delayed messages from and to stock clients: mixed, compressed, idempotent and transactional batches."""

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaProducer
from kafka.errors import InvalidRecordError

from respool.testing import Broker
from support.all_clients import INSTALLED
from support.confluent_client import ConfluentClient
from support.message import CODECS, KafkaClient, Message, Place, Received

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("delayed-messages")]

READER = ConfluentClient()
# kcat gives all messages of a call the same headers.
WRITERS = [client for client in INSTALLED if client.name != "kcat"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def place(broker: Broker, request: pytest.FixtureRequest) -> Place:
    topic = "".join(one if one.isalnum() else "-" for one in request.node.name)
    broker.create_topic(topic, respool_delay="true")
    return topic, 0


def delayed(value: bytes, delay: str) -> Message:
    return Message(key=b"k", value=value, headers=(("respool-delay", delay.encode()),))


def values(broker: Broker, place: Place, client: KafkaClient = READER) -> list[bytes | None]:
    return [one.value for one in received(broker, place, client)]


def received(broker: Broker, place: Place, client: KafkaClient = READER) -> list[Received]:
    return client.read(broker.bootstrap, [place])[place]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("client", WRITERS, ids=lambda client: client.name)
def test_mixed_batch_of_any_client_in_any_codec(
    broker: Broker, place: Place, client: KafkaClient, codec: str
) -> None:
    messages = [
        Message(key=b"k", value=b"now", headers=(("tag", b"a"),)),
        delayed(b"an hour", "1h"),
        delayed(b"a minute", "1m"),
        Message(key=b"k", value=b"now, too"),
    ]
    client.write(broker.bootstrap, place, messages, codec=codec)
    assert values(broker, place) == [b"now", b"now, too"]
    broker.clock.advance(minutes=1)
    assert values(broker, place) == [b"now", b"now, too", b"a minute"]
    broker.clock.advance(hours=1)
    for reader in INSTALLED:
        assert values(broker, place, reader) == [b"now", b"now, too", b"a minute", b"an hour"]


def test_a_week_passes_at_once(broker: Broker, place: Place) -> None:
    messages = [delayed(b"%d" % minute, f"{minute}m") for minute in (*range(500, 0, -1),)]
    READER.write(broker.bootstrap, place, messages)
    broker.clock.advance(days=7)
    assert values(broker, place) == [b"%d" % minute for minute in range(1, 501)]


def test_order_of_a_thousand_delays(broker: Broker, place: Place) -> None:
    READER.write(broker.bootstrap, place, [delayed(b"%d" % one, "1h") for one in range(1_000)])
    broker.clock.advance(hours=1)
    assert values(broker, place) == [b"%d" % one for one in range(1_000)]


def test_transactions_of_confluent_kafka(broker: Broker, place: Place) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": place[0],
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    for value, commit in ((b"committed", True), (b"aborted", False), (b"next", True)):
        producer.begin_transaction()
        producer.produce(place[0], value, headers={"respool-delay": "1m"})
        if commit:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
    assert values(broker, place) == []
    broker.clock.advance(minutes=2)
    assert values(broker, place) == [b"committed", b"next"]


def test_transactions_of_aiokafka(broker: Broker, place: Place) -> None:
    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=place[0])
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(
                    place[0], b"committed", headers=[("respool-delay", b"1m")]
                )
            await producer.begin_transaction()
            await producer.send_and_wait(place[0], b"aborted", headers=[("respool-delay", b"1m")])
            await producer.abort_transaction()
        finally:
            await producer.stop()

    asyncio.run(write())
    broker.clock.advance(minutes=2)
    assert values(broker, place) == [b"committed"]


def test_malformed_delay_fails_its_batch_in_confluent_kafka(broker: Broker, place: Place) -> None:
    with pytest.raises(KafkaException) as failed:
        READER.write(broker.bootstrap, place, [delayed(b"bad", "soon")])
    assert failed.value.args[0].code() == KafkaError.INVALID_RECORD
    assert values(broker, place) == []


def test_malformed_delay_fails_its_batch_in_kafka_python(broker: Broker, place: Place) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, enable_idempotence=False, retries=0
    )
    try:
        with pytest.raises(InvalidRecordError):
            producer.send(place[0], b"bad", headers=[("respool-delay", b"soon")]).get(30)
    finally:
        producer.close()
    assert values(broker, place) == []


def test_group_of_a_quiet_topic_has_no_lag(broker: Broker, place: Place) -> None:
    READER.write(broker.bootstrap, place, [delayed(b"%d" % one, "1h") for one in range(10)])
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": place[0],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(*place, 0)])
        message = consumer.poll(30)
        assert message is not None
        assert message.error().code() == KafkaError._PARTITION_EOF
        assert consumer.position([TopicPartition(*place)])[0].offset == 10
        (committed,) = consumer.commit(offsets=[TopicPartition(*place, 10)], asynchronous=False)
        assert committed.offset == 10
    finally:
        consumer.close()
