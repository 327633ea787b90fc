"""Consume, transform and produce in transactions, with `kill -9` of the client, the broker or both at random moments.

What a read_committed reader finds in the end is each message that went in, transformed, once and in order.
"""

import os
import random
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from crash.conftest import StartBroker
from support.broker_process import BrokerProcess
from support.confluent_client import Deliveries, consumer, producer
from support.topics import Topics
from support.transformer import MADE, Transformer
from support.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.xdist_group("kill")]

PARTITIONS = 3
SETTINGS = {
    "offsets_topic_partitions": 2,
    "transactions_topic_partitions": 2,
    "group_initial_rebalance_delay_ms": 100,
}
# The long run may be made of any size: 1 M messages and 100 kills are what it was made for.
LONG_MESSAGES = int(os.environ.get("RESPOOL_EXACTLY_ONCE_MESSAGES", "1000000"))
LONG_KILLS = int(os.environ.get("RESPOOL_EXACTLY_ONCE_KILLS", "100"))


@pytest.mark.parametrize("client", ["confluent", "kafka-python", "aiokafka"])
def test_each_message_is_transformed_exactly_once_whoever_is_killed(
    start_broker: StartBroker, client: str
) -> None:
    broker = start_broker(**SETTINGS)
    _run(broker, client, messages=12_000, kills=4, batch=100, seed=4)


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("client", ["confluent", "kafka-python"])
def test_a_million_messages_are_transformed_exactly_once_over_a_hundred_kills(
    start_broker: StartBroker, client: str
) -> None:
    broker = start_broker(**SETTINGS)
    batch = max(1, LONG_MESSAGES // LONG_KILLS // 12)
    _run(broker, client, messages=LONG_MESSAGES, kills=LONG_KILLS, batch=batch, seed=40)


def _run(
    broker: BrokerProcess, client: str, *, messages: int, kills: int, batch: int, seed: int
) -> None:
    rng = random.Random(seed)
    topics = Topics(broker.address)
    source = topics.new("rides", partitions=PARTITIONS)
    target = topics.new("charges", partitions=PARTITIONS)
    _fill(broker.address, source, messages)

    # Each life has its share and no more, so that work is left for all of them.
    share = messages // (kills + 1) // batch

    def start(commits_max: int | None = share) -> Transformer:
        return Transformer(
            client,
            broker.address,
            source=source,
            target=target,
            batch=batch,
            commits_max=commits_max,
        )

    worker = start()
    try:
        for _ in range(kills):
            worker.wait_for_commits(rng.randrange(0, max(2, share // 2)))
            # Into the middle of a transaction, wherever that is.
            time.sleep(rng.random() * 0.05)
            victim = rng.choice(["worker", "broker", "both"])
            if victim != "broker":
                worker.kill()
            if victim != "worker":
                broker.kill()
                broker.start()
            if victim == "broker":
                if worker.is_running:
                    continue
                worker.kill()
            worker = start()
        worker.kill()
        assert _done(broker.address, source) < messages, "all was done before the last kill"
        worker = start(commits_max=None)
        wait_until(
            lambda: _has_done_all(worker, broker.address, source, messages),
            "the whole topic transformed",
            seconds=60.0 + messages / 2_000,
        )
    finally:
        worker.kill()
    for number in range(PARTITIONS):
        expected = [MADE + value for value in _values(number, messages)]
        assert list(_read(broker.address, target, number)) == expected


def _has_done_all(worker: Transformer, address: str, source: str, messages: int) -> bool:
    assert worker.is_running, f"{worker.name} gave up: {worker.errors[-3000:].decode()}"
    return _done(address, source) == messages


def _values(partition: int, messages: int) -> Iterator[bytes]:
    return (b"%d" % number for number in range(partition, messages, PARTITIONS))


def _fill(address: str, topic: str, messages: int) -> None:
    sender, told = producer(address, queue_buffering_max_messages=2_000_000), Deliveries()
    for number in range(PARTITIONS):
        for value in _values(number, messages):
            sender.produce(topic, value, b"k", number, on_delivery=told)
            sender.poll(0)
    assert not sender.flush(120)
    assert not told.errors


def _done(address: str, source: str) -> int:
    """How much of the source its readers have committed."""
    settings = {"bootstrap.servers": address, "group.id": "transformers", "log_level": 0}
    # Whoever was killed may have left a transaction open; that is not waited for here.
    reader = Consumer({**settings, "isolation.level": "read_uncommitted"})
    try:
        places = [TopicPartition(source, number) for number in range(PARTITIONS)]
        return sum(max(0, one.offset) for one in reader.committed(places, 30))
    finally:
        reader.close()


def _read(address: str, topic: str, number: int) -> Iterator[bytes]:
    """What a read_committed reader finds, to the end."""
    reader = consumer(address, isolation_level="read_committed")
    reader.assign([TopicPartition(topic, number, 0)])
    try:
        while True:
            for message in reader.consume(5_000, 0.2):
                if message.error() is None:
                    yield message.value()
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    return
                else:
                    raise AssertionError(message.error())
    finally:
        reader.close()
