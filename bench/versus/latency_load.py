"""The way of a message from the producer's call to the consumer's hands, at a given rate; librdkafka on both ends.

Messages carry the time at which they were due, on the machine's monotonic clock, which all processes share. So a sender
that falls behind does not hide it: what waits for it counts as latency.

As a command: `produce ADDRESS TOPIC COUNT RATE` or `consume ADDRESS TOPIC COUNT WARM_UP`.
"""

import gc
import json
import sys
import time
from struct import Struct

from bench.load_client import announce
from bench.report import quantile
from bench.requests import fail_load

MESSAGE_BYTES = 100
# How often the sender wakes; what is due in between is sent at once.
TICK_SECONDS = 0.001
# Short, so that the broker and not the client's waiting is measured; not 0, so that high rates still make batches.
LINGER_MS = "1"
SILENCE_SECONDS_MAX = 20.0
_DUE = Struct("<q")
_PADDING = bytes(MESSAGE_BYTES - _DUE.size)


def main() -> None:
    command, address, topic, count, last = sys.argv[1:]
    gc.disable()
    if command == "produce":
        _produce(address, topic, int(count), int(last))
    else:
        _consume(address, topic, int(count), int(last))


def _produce(address: str, topic: str, count: int, rate: int) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": LINGER_MS,
            "acks": "all",
            "delivery.report.only.error": True,
        }
    )
    producer.list_topics(topic, timeout=10)
    finish = announce()
    began_ns = time.monotonic_ns()
    sent = 0
    while sent < count:
        due = min(count, int((time.monotonic_ns() - began_ns) * rate / 1e9))
        while sent < due:
            due_ns = began_ns + int(sent * 1e9 / rate)
            producer.produce(topic, _DUE.pack(due_ns) + _PADDING)
            sent += 1
        producer.poll(0)
        time.sleep(TICK_SECONDS)
    if producer.flush(SILENCE_SECONDS_MAX):
        fail_load("latency producer: not all was sent")
    finish(sent, sent, sent * MESSAGE_BYTES)


def _consume(address: str, topic: str, count: int, warm_up: int) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    consumer.poll(0.5)
    announce()
    taken: list[float] = []
    while len(taken) < count:
        message = consumer.poll(SILENCE_SECONDS_MAX)
        if message is None or message.error() is not None:
            fail_load(f"latency consumer: {len(taken)} of {count} messages came")
        (due_ns,) = _DUE.unpack_from(message.value())
        taken.append((time.monotonic_ns() - due_ns) / 1e6)
    counted = taken[warm_up:]
    result = {
        "p50": quantile(counted, 0.5),
        "p99": quantile(counted, 0.99),
        "p99.9": quantile(counted, 0.999),
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
