"""librdkafka at its full speed, driven in batches from Python so that Python is not what bounds it.

As a command: `produce ADDRESS TOPIC COUNT MESSAGE_BYTES [NAME=VALUE ...]` or `consume ADDRESS TOPIC COUNT`.
"""

import gc
import sys
import time
from typing import Any

from bench.load_client import announce
from bench.requests import fail_load
from bench.versus.payload import payloads

AT_ONCE = 10_000
QUEUE_MESSAGES_MAX = 1_000_000
FLUSH_SECONDS_MAX = 120.0
SILENCE_SECONDS_MAX = 30.0


def main() -> None:
    command, address, topic, count, *rest = sys.argv[1:]
    # Messages come and go by the million, and none of them refers to another.
    gc.disable()
    if command == "consume":
        _consume(address, topic, int(count))
    else:
        settings = dict(one.split("=", 1) for one in rest[1:])
        _produce(address, topic, int(count), int(rest[0]), settings)


def _produce(
    address: str, topic: str, count: int, message_bytes: int, settings: dict[str, str]
) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": address,
            "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
            # Only failures are reported: else Python would handle every message once more.
            "delivery.report.only.error": True,
            **settings,
        }
    )
    texts = [one.encode() for one in payloads(message_bytes)]
    failed: list[str] = []

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    def send(number: int) -> None:
        batch = [{"value": text} for text in texts[:number]]
        while batch:
            producer.produce_batch(topic, batch, on_delivery=on_delivery)
            # Those the queue has no room for carry a mark.
            batch = [{"value": one["value"]} for one in batch if "_error" in one]
            producer.poll(0.002 if batch else 0)

    producer.list_topics(topic, timeout=10)
    send(AT_ONCE)
    producer.flush(FLUSH_SECONDS_MAX)
    finish = announce()
    for start in range(0, count, AT_ONCE):
        send(min(AT_ONCE, count - start))
    left = producer.flush(FLUSH_SECONDS_MAX)
    if left or failed:
        fail_load(f"librdkafka producer: {left} unsent, {len(failed)} failed {failed[:1]}")
    finish(count, count, count * message_bytes)


def _consume(address: str, topic: str, count: int) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            # The library wants a name; nothing is committed under it.
            "group.id": "bench",
            "enable.auto.commit": False,
            # Else it rests for a second whenever its own queue is full.
            "fetch.queue.backoff.ms": 2,
        }
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    finish = announce()
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    taken, byte_count = take(consumer, count)
    finish(taken, taken, byte_count)
    # Closing it may wait for a broker; nobody waits for that.
    sys.stdout.flush()


def take(consumer: Any, count: int) -> tuple[int, int]:
    """Take that many messages, and return how many there were and their bytes."""
    taken = byte_count = 0
    last_seen = time.perf_counter()
    while taken < count:
        messages = consumer.consume(min(AT_ONCE, count - taken), timeout=0.1)
        if messages:
            error = messages[-1].error()
            if error is not None:
                fail_load(f"librdkafka consumer: {error}")
            taken += len(messages)
            byte_count += len(messages) * len(messages[0])
            last_seen = time.perf_counter()
        elif time.perf_counter() - last_seen > SILENCE_SECONDS_MAX:
            fail_load(f"librdkafka consumer: {taken} of {count} messages came")
    return taken, byte_count


if __name__ == "__main__":
    main()
