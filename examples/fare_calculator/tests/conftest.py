"""A broker with the service's topics, and two hands: one puts rides in, one takes fares out."""

import json
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from fare_calculator import FARES, REJECTED, RIDES, FareCalculator

from respool.testing import Broker

WEEK_MS = 7 * 24 * 3600 * 1000


@pytest.fixture
def broker() -> Iterator[Broker]:
    topics = {RIDES: {"partitions": 1, "retention.ms": WEEK_MS}, FARES: 1, REJECTED: 1}
    with Broker(topics=topics) as running:
        yield running


@pytest.fixture
def ride(broker: Broker) -> Callable[..., None]:
    """Put a ride into the topic: `ride("r1", km=2, minutes=5)`, or any text."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "log_level": 0,
        }
    )

    def put(name: str, text: str | None = None, **fields: float) -> None:
        value = json.dumps(fields) if text is None else text
        # By the broker's clock, which tests move.
        producer.produce(RIDES, key=name, value=value, timestamp=broker.clock.now_ms)
        assert producer.flush(30) == 0

    return put


@pytest.fixture
def read(broker: Broker) -> Callable[[str], dict[str, list[str]]]:
    """What a topic holds, committed: the values under each key."""

    def take(topic: str) -> dict[str, list[str]]:
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "test",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: dict[str, list[str]] = {}
        # The next one is an error: the end of the partition.
        while (message := consumer.poll(30)) is not None and not message.error():
            found.setdefault(message.key().decode(), []).append(message.value().decode())
        consumer.close()
        return found

    return take


@pytest.fixture
def calculator(broker: Broker) -> Iterator[FareCalculator]:
    running = FareCalculator(broker.bootstrap)
    yield running
    running.close()


def work(calculator: FareCalculator, rides: int) -> None:
    """Let it charge that many."""
    done = 0
    for _ in range(60):
        done += calculator.step()
        if done >= rides:
            return
    pytest.fail(f"only {done} of {rides} rides were charged")
