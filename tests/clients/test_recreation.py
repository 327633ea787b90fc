"""Clients that go on while their topic is deleted and made anew, or their broker is restarted."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import KafkaException, TopicPartition
from kafka import KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from kafka.net.inet import KafkaNetSocket

from support import aiokafka_client, kafka_python_client
from support.broker_process import BrokerProcess
from support.confluent_client import ConfluentClient, Deliveries, consumer, producer
from support.message import Message
from support.topics import Topics

pytestmark = [
    pytest.mark.clients,
    pytest.mark.xdist_group("recreation"),
]

TIMEOUT_S = 60.0


@pytest.fixture(autouse=True)
def _failed_sockets_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """kafka-python forgets a socket that could not connect; some later test would be blamed for it."""
    connect = KafkaNetSocket.sock_connect

    async def connect_or_close(
        self: KafkaNetSocket, net: Any, sock: socket.socket, *args: Any, **kwargs: Any
    ) -> Any:
        try:
            return await connect(self, net, sock, *args, **kwargs)
        except BaseException:
            sock.close()
            raise

    monkeypatch.setattr(KafkaNetSocket, "sock_connect", connect_or_close)


def recreate(topics: Topics, topic: str) -> None:
    topics.delete(topic)
    topics.create(topic)


@pytest.fixture(params=["the topic is recreated", "the broker is restarted"])
def upset(
    request: pytest.FixtureRequest, broker: BrokerProcess, topics: Topics
) -> Callable[[str], int]:
    """Do it, and return how many of five messages written before are still there."""

    def run(topic: str) -> int:
        if request.param == "the broker is restarted":
            broker.restart()
            return 5
        recreate(topics, topic)
        return 0

    return run


def values(broker: BrokerProcess, topic: str) -> list[bytes | None]:
    received = ConfluentClient().read(broker.address, [(topic, 0)])[topic, 0]
    return [one.value for one in received]


def test_confluents_producer_goes_on(
    broker: BrokerProcess, topics: Topics, upset: Callable[[str], int]
) -> None:
    topic = topics.new("upset")
    sender = producer(broker.address, enable_idempotence=True)
    told = Deliveries()
    for number in range(5):
        sender.produce(topic, b"before %d" % number, partition=0, on_delivery=told)
    assert not sender.flush(TIMEOUT_S)
    left = upset(topic)
    for number in range(3):
        sender.produce(topic, b"after %d" % number, partition=0, on_delivery=told)
    assert not sender.flush(TIMEOUT_S)
    assert told.errors == []
    before = [b"before %d" % number for number in range(left)]
    assert values(broker, topic) == [*before, b"after 0", b"after 1", b"after 2"]


def test_kafka_pythons_producer_goes_on(
    broker: BrokerProcess, topics: Topics, upset: Callable[[str], int]
) -> None:
    topic = topics.new("upset")
    sender = KafkaProducer(bootstrap_servers=broker.address, enable_idempotence=True)
    try:
        for number in range(5):
            sender.send(topic, b"before %d" % number, partition=0).get(TIMEOUT_S)
        left = upset(topic)
        for number in range(3):
            sender.send(topic, b"after %d" % number, partition=0).get(TIMEOUT_S)
    finally:
        sender.close()
    before = [b"before %d" % number for number in range(left)]
    assert values(broker, topic) == [*before, b"after 0", b"after 1", b"after 2"]


def test_aiokafkas_producer_goes_on(
    broker: BrokerProcess, topics: Topics, upset: Callable[[str], int]
) -> None:
    topic = topics.new("upset")

    async def write() -> int:
        async with aiokafka_client.producer(
            broker.address, enable_idempotence=True, acks="all"
        ) as sender:
            for number in range(5):
                await sender.send_and_wait(topic, b"before %d" % number, partition=0)
            left = await asyncio.to_thread(upset, topic)
            for number in range(3):
                sent = sender.send_and_wait(topic, b"after %d" % number, partition=0)
                await asyncio.wait_for(sent, TIMEOUT_S)
            return left

    before = [b"before %d" % number for number in range(asyncio.run(write()))]
    assert values(broker, topic) == [*before, b"after 0", b"after 1", b"after 2"]


def fill(broker: BrokerProcess, topic: str, word: bytes, count: int) -> None:
    messages = [Message(value=b"%s %d" % (word, number)) for number in range(count)]
    ConfluentClient().write(broker.address, (topic, 0), messages, idempotent=False)


def test_confluents_consumer_goes_on(
    broker: BrokerProcess, topics: Topics, upset: Callable[[str], int]
) -> None:
    topic = topics.new("upset")
    fill(broker, topic, b"before", 5)
    reader = consumer(broker.address, auto_offset_reset="earliest", enable_partition_eof=False)
    reader.assign([TopicPartition(topic, 0, 0)])

    def read(count: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        while len(found) < count:
            message = reader.poll(TIMEOUT_S)
            assert message is not None, f"only {found} came"
            error = message.error()
            if error is None:
                found.append(message.value())
            elif not error.retriable() and error.name() != "UNKNOWN_TOPIC_OR_PART":
                raise KafkaException(error)
        return found

    try:
        assert read(5) == [b"before %d" % number for number in range(5)]
        upset(topic)
        fill(broker, topic, b"after", 3)
        assert read(3) == [b"after %d" % number for number in range(3)]
    finally:
        reader.close()


def test_kafka_pythons_consumer_goes_on(
    broker: BrokerProcess, topics: Topics, upset: Callable[[str], int]
) -> None:
    topic = topics.new("upset")
    fill(broker, topic, b"before", 5)
    reader = kafka_python_client.consumer(broker.address, auto_offset_reset="earliest")
    partition = KafkaPythonPartition(topic, 0)
    reader.assign([partition])
    reader.seek(partition, 0)

    def read(count: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        while len(found) < count:
            batch = reader.poll(timeout_ms=TIMEOUT_S * 1000, max_records=count - len(found))
            assert batch, f"only {found} came"
            found += [message.value for message in batch[partition]]
        return found

    try:
        assert read(5) == [b"before %d" % number for number in range(5)]
        if not upset(topic):
            # It fetches by name, takes the new topic for the old one cut short, and would go on at its end.
            reader.seek(partition, 0)
        fill(broker, topic, b"after", 3)
        assert read(3) == [b"after %d" % number for number in range(3)]
    finally:
        reader.close()


def test_aiokafkas_consumer_goes_on(
    broker: BrokerProcess, topics: Topics, upset: Callable[[str], int]
) -> None:
    topic = topics.new("upset")
    fill(broker, topic, b"before", 5)

    async def read() -> list[bytes | None]:
        async with aiokafka_client.consumer(broker.address, auto_offset_reset="earliest") as reader:
            partition = AiokafkaPartition(topic, 0)
            reader.assign([partition])
            reader.seek(partition, 0)
            first = [await asyncio.wait_for(reader.getone(), TIMEOUT_S) for _ in range(5)]
            assert [one.value for one in first] == [b"before %d" % n for n in range(5)]
            await asyncio.to_thread(upset, topic)
            await asyncio.to_thread(fill, broker, topic, b"after", 3)
            then = [await asyncio.wait_for(reader.getone(), TIMEOUT_S) for _ in range(3)]
            return [one.value for one in then]

    assert asyncio.run(read()) == [b"after %d" % number for number in range(3)]
