"""Producers of every kind write while their topic is shrunk and grown: nothing fails, is lost, doubled or reordered."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions
from kafka import KafkaProducer

from support.broker_process import BrokerProcess
from support.topics import Topics

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("shrinking")]

KEYS = 24
TIMEOUT_S = 60.0
# Sends one round of messages, one for each key, and waits until all are acknowledged.
SendRound: TypeAlias = Callable[[int], None]


def key_of(number: int) -> bytes:
    return b"key-%d" % number


def value_of(number: int, turn: int) -> bytes:
    return b"%d:%d" % (number, turn)


@contextmanager
def confluent(address: str, topic: str, *, transactional: bool = False) -> Iterator[SendRound]:
    settings = {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 0}
    if transactional:
        settings["transactional.id"] = topic
    producer = Producer(settings)
    if transactional:
        producer.init_transactions(TIMEOUT_S)
    failed: list[object] = []

    def send(turn: int) -> None:
        if transactional:
            producer.begin_transaction()
        for number in range(KEYS):
            producer.produce(
                topic,
                value_of(number, turn),
                key=key_of(number),
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(TIMEOUT_S) == 0
        if transactional:
            producer.commit_transaction(TIMEOUT_S)
        assert failed == []

    yield send


def confluent_in_transactions(address: str, topic: str) -> object:
    return confluent(address, topic, transactional=True)


@contextmanager
def kafka_python(address: str, topic: str, *, idempotent: bool = True) -> Iterator[SendRound]:
    producer = KafkaProducer(
        bootstrap_servers=address, enable_idempotence=idempotent, acks="all", linger_ms=0
    )

    def send(turn: int) -> None:
        sent = [
            producer.send(topic, value_of(number, turn), key=key_of(number))
            for number in range(KEYS)
        ]
        for one in sent:
            one.get(TIMEOUT_S)

    try:
        yield send
    finally:
        producer.close()


def kafka_python_plain(address: str, topic: str) -> object:
    return kafka_python(address, topic, idempotent=False)


@contextmanager
def aiokafka(address: str, topic: str) -> Iterator[SendRound]:
    with asyncio.Runner() as runner:

        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True)
            await producer.start()
            return producer

        producer = runner.run(start())

        async def send_all(turn: int) -> None:
            sent = [
                await producer.send(topic, value_of(number, turn), key=key_of(number))
                for number in range(KEYS)
            ]
            await asyncio.wait_for(asyncio.gather(*sent), TIMEOUT_S)

        try:
            yield lambda turn: runner.run(send_all(turn))
        finally:
            runner.run(producer.stop())


def change(topics: Topics, topic: str, count: int) -> None:
    topics.admin.create_partitions([NewPartitions(topic, count)])[topic].result(TIMEOUT_S)


def read_everything(address: str, topic: str, count: int) -> dict[int, list[bytes]]:
    """The values of each partition, up to its end."""
    reader = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": topic,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    reader.assign([TopicPartition(topic, number, 0) for number in range(count)])
    found: dict[int, list[bytes]] = {number: [] for number in range(count)}
    ended: set[int] = set()
    while len(ended) < count:
        message = reader.poll(TIMEOUT_S)
        assert message is not None
        if message.error():
            ended.add(message.partition())
        else:
            found[message.partition()].append(message.value())
    reader.close()
    return found


@pytest.mark.parametrize(
    "producing",
    [confluent, confluent_in_transactions, kafka_python, kafka_python_plain, aiokafka],
)
def test_a_producer_notices_nothing_of_shrinks_and_growths(
    broker: BrokerProcess, topics: Topics, producing: Callable[[str, str], object]
) -> None:
    topic = topics.new(
        "shrinking",
        partitions=6,
        respool_partitions_shrink="true",
        respool_shrink_barrier_ms="0",
    )
    turn = 0
    with producing(broker.address, topic) as send:  # type: ignore[attr-defined]
        for count in (6, 3, 1, 6, 2):
            if turn:
                change(topics, topic, count)
            for _ in range(3):
                send(turn)
                turn += 1
    found = read_everything(broker.address, topic, 6)
    seen: dict[int, list[int]] = {number: [] for number in range(KEYS)}
    for values in found.values():
        by_key: dict[int, list[int]] = {}
        for value in values:
            number, at = map(int, value.split(b":"))
            by_key.setdefault(number, []).append(at)
        for number, turns in by_key.items():
            assert turns == sorted(turns)
            seen[number] += turns
    assert {number: sorted(turns) for number, turns in seen.items()} == {
        number: list(range(turn)) for number in range(KEYS)
    }
    # The last six rounds but three went to all, the last three to the first two.
    assert all(int(value.split(b":")[1]) < turn - 3 for one in range(2, 6) for value in found[one])
