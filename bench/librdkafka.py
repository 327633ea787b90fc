"""End to end with a client we did not write: confluent-kafka's producer, then its consumer, each in its own process.

The client's Python loop handles one message at a time, so it is what bounds the rate here; the broker's CPU beside it
says how much of a broker such a client keeps busy.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from bench.broker_process import BrokerProcess
from bench.load_client import Measured, announce, measure_command
from bench.report import Column, Report, Table, megabytes, millions, percent
from bench.requests import Client, fail_load
from bench.scale import MESSAGE_BYTES, Scale

TOPIC = "bench"
CONSUME_AT_ONCE = 10_000
SILENCE_SECONDS_MAX = 20.0
QUEUE_MESSAGES_MAX = 200_000

COLUMNS = (
    Column("what", "client"),
    Column("messages_per_s", "messages/s", millions),
    Column("bytes_per_s", "MB/s", megabytes),
    Column("messages_per_cpu_s", "messages per broker CPU-s", millions),
    Column("broker_cores", "broker CPU", percent),
    Column("client_cores", "client CPU", percent),
)


def run(scale: Scale, report: Report) -> None:
    table = Table("librdkafka", "End to end with librdkafka (confluent-kafka)", COLUMNS)
    for is_idempotent in (False, True):
        with BrokerProcess() as broker:
            with Client(broker.host, broker.port) as client:
                client.create_topic(TOPIC)
            kind = "idempotent producer" if is_idempotent else "producer"
            report.progress(f"librdkafka: {kind}")
            command = "produce-idempotent" if is_idempotent else "produce"
            made = _measure(broker, command, scale)
            table.rows.append(_row(f"{kind}, acks=all, flush=always", made))
            if not is_idempotent:
                report.progress("librdkafka: consumer")
                taken = _measure(broker, "consume", scale)
                table.rows.append(_row("consumer", taken))
    table.notes.append(
        f"{scale.librdkafka_messages:,} messages of {MESSAGE_BYTES} bytes each; "
        "linger.ms=5, fetch.queue.backoff.ms=5, other settings are the client's defaults."
    )
    report.add(table)


def _measure(broker: BrokerProcess, command: str, scale: Scale) -> Measured:
    return measure_command(
        broker, "bench.librdkafka", command, broker.address, str(scale.librdkafka_messages)
    )


def _row(what: str, one: Measured) -> dict[str, Any]:
    return {
        "what": what,
        "messages_per_s": one.messages_per_s,
        "bytes_per_s": one.bytes_per_s,
        "messages_per_cpu_s": one.messages_per_cpu_s,
        "broker_cores": one.broker_cpu_s / one.seconds,
        "client_cores": one.client_cpu_s / one.seconds,
    }


# The client's side.


def main() -> None:
    command, address, count = sys.argv[1:]
    if command == "consume":
        _consume(address, int(count))
    else:
        _produce(address, int(count), is_idempotent=command == "produce-idempotent")


def _produce(address: str, count: int, *, is_idempotent: bool) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 5,
            "acks": "all",
            "enable.idempotence": is_idempotent,
            "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
        }
    )
    failed: list[str] = []

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    value = b"x" * MESSAGE_BYTES
    producer.list_topics(TOPIC, timeout=10)
    finish = announce()
    _produce_all(producer, value, count, on_delivery)
    left = producer.flush(60)
    if left or failed:
        fail_load(f"librdkafka producer: {left} unsent, {len(failed)} failed {failed[:1]}")
    finish(count, count, count * MESSAGE_BYTES)


def _produce_all(
    producer: Any, value: bytes, count: int, on_delivery: Callable[[object, object], None]
) -> None:
    for number in range(count):
        while True:
            try:
                producer.produce(TOPIC, value, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1_000 == 0:
            producer.poll(0)


def _consume(address: str, count: int) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            # The library wants a name; nothing is committed under it.
            "group.id": "bench",
            "enable.auto.commit": False,
            # Else it rests for a second whenever its own queue is full.
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.list_topics(TOPIC, timeout=10)
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    # Until the first messages come the library finds its way: that is no part of the rate.
    before = _consume_until(consumer, 1)
    finish = announce()
    taken = _consume_until(consumer, count - before)
    finish(taken, taken, taken * MESSAGE_BYTES)
    consumer.close()


def _consume_until(consumer: Any, count: int) -> int:
    """Take messages until there were at least that many, and return how many there were."""
    taken = 0
    last_seen = time.perf_counter()
    while taken < count:
        messages = consumer.consume(CONSUME_AT_ONCE, timeout=0.05)
        errors = [str(one.error()) for one in messages if one.error() is not None]
        if errors:
            fail_load(f"librdkafka consumer: {errors[0]}")
        taken += len(messages)
        now = time.perf_counter()
        if messages:
            last_seen = now
        elif now - last_seen > SILENCE_SECONDS_MAX:
            fail_load(f"librdkafka consumer: {taken} of {count} messages came")
    return taken


if __name__ == "__main__":
    main()
