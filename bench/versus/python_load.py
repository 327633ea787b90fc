"""Python's Kafka clients as people use them, one message at a time.

As a command: `confluent-kafka|kafka-python|aiokafka produce|consume ADDRESS TOPIC COUNT`.
"""

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.load_client import announce
from bench.requests import fail_load
from bench.versus.payload import payloads

MESSAGE_BYTES = 100
SECONDS_MAX = 120.0
WARM_UP = 1_000
AT_ONCE = 500
QUEUE_MESSAGES_MAX = 500_000


def main() -> None:
    client, command, address, topic, count = sys.argv[1:]
    gc.disable()
    if client == "aiokafka":
        run = _aiokafka_produce if command == "produce" else _aiokafka_consume
        asyncio.run(run(address, topic, int(count)))
    else:
        LOADS[client, command](address, topic, int(count))


def _values() -> list[bytes]:
    return [text.encode() for text in payloads(MESSAGE_BYTES, count=1_000)]


def _confluent_produce(address: str, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": address, "queue.buffering.max.messages": QUEUE_MESSAGES_MAX}
    )
    failed: list[str] = []

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    values = _values()

    def send(number: int) -> None:
        for at in range(number):
            while True:
                try:
                    producer.produce(topic, values[at % len(values)], on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.01)
            if at % AT_ONCE == 0:
                producer.poll(0)
        if producer.flush(SECONDS_MAX) or failed:
            fail_load(f"confluent-kafka: not all was sent {failed[:1]}")

    send(WARM_UP)
    finish = announce()
    send(count)
    finish(count, count, count * MESSAGE_BYTES)


def _confluent_consume(address: str, topic: str, count: int) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 2,
        }
    )
    consumer.list_topics(topic, timeout=10)
    finish = announce()
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    for taken in range(count):
        message = consumer.poll(SECONDS_MAX)
        if message is None or message.error() is not None:
            fail_load(f"confluent-kafka: {taken} of {count} messages came")
    finish(count, count, count * MESSAGE_BYTES)


def _kafka_python_produce(address: str, topic: str, count: int) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, linger_ms=5)
    values = _values()

    def send(number: int) -> None:
        futures = [producer.send(topic, values[at % len(values)]) for at in range(number)]
        producer.flush(SECONDS_MAX)
        if not all(one.succeeded() for one in futures):
            fail_load("kafka-python: not all was sent")

    send(WARM_UP)
    finish = announce()
    send(count)
    finish(count, count, count * MESSAGE_BYTES)


def _kafka_python_consume(address: str, topic: str, count: int) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    finish = announce()
    deadline = time.monotonic() + SECONDS_MAX
    taken = 0
    while taken < count:
        if time.monotonic() > deadline:
            fail_load(f"kafka-python: {taken} of {count} messages came")
        taken += sum(len(found) for found in consumer.poll(timeout_ms=1000).values())
    finish(taken, taken, taken * MESSAGE_BYTES)


async def _aiokafka_produce(address: str, topic: str, count: int) -> None:
    from aiokafka import AIOKafkaProducer

    values = _values()
    async with AIOKafkaProducer(bootstrap_servers=address, linger_ms=5) as producer:

        async def send(number: int) -> None:
            futures = [await producer.send(topic, values[at % len(values)]) for at in range(number)]
            await producer.flush()
            await asyncio.wait_for(asyncio.gather(*futures), SECONDS_MAX)

        await send(WARM_UP)
        finish = announce()
        await send(count)
        finish(count, count, count * MESSAGE_BYTES)


async def _aiokafka_consume(address: str, topic: str, count: int) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.structs import TopicPartition

    async with AIOKafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest"
    ) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        finish = announce()
        taken = 0
        async with asyncio.timeout(SECONDS_MAX):
            while taken < count:
                found: dict[Any, list[Any]] = await consumer.getmany(timeout_ms=1000)
                taken += sum(len(one) for one in found.values())
        finish(taken, taken, taken * MESSAGE_BYTES)


LOADS: dict[tuple[str, str], Callable[[str, str, int], None]] = {
    ("confluent-kafka", "produce"): _confluent_produce,
    ("confluent-kafka", "consume"): _confluent_consume,
    ("kafka-python", "produce"): _kafka_python_produce,
    ("kafka-python", "consume"): _kafka_python_consume,
}


if __name__ == "__main__":
    main()
