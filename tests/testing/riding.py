"""What tests of the test broker do with a client: put messages in, and see what is there."""

from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from respool.testing import Broker

WAIT_S = 20.0


def producer(broker: Broker, **settings: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "log_level": 0,
            "linger.ms": 0,
            "reconnect.backoff.max.ms": 100,
            **settings,
        }
    )


def consumer(broker: Broker, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "log_level": 0,
            "group.id": "riders",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 100,
            **settings,
        }
    )


def send(to: Producer, topic: str, *values: str, timestamp_ms: int = 0) -> list[Exception | None]:
    """What became of each: None for one that was acknowledged."""
    outcomes: list[Exception | None] = []
    for value in values:
        to.produce(
            topic,
            value,
            timestamp=timestamp_ms,
            on_delivery=lambda error, _: outcomes.append(error),
        )
        assert to.flush(WAIT_S) == 0
    return outcomes


def values_in(broker: Broker, topic: str, **settings: Any) -> list[str]:
    """All messages of a topic with one partition, read anew."""
    reader = consumer(broker, **settings)
    try:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S)
        reader.assign([TopicPartition(topic, 0, low)])
        values: list[str] = []
        position = low
        while position < high:
            message = reader.poll(WAIT_S)
            assert message is not None, f"read {len(values)} up to {position} of {high}"
            assert message.error() is None
            values.append(message.value().decode())
            position = message.offset() + 1
        return values
    finally:
        reader.close()


def offsets_of(broker: Broker, topic: str) -> tuple[int, int]:
    """The first offset there is, and the next one."""
    reader = consumer(broker)
    try:
        found: tuple[int, int] = reader.get_watermark_offsets(
            TopicPartition(topic, 0), timeout=WAIT_S
        )
        return found
    finally:
        reader.close()
