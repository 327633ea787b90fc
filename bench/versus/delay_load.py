"""Delayed messages: how late each comes to a consumer, by the machine's wall clock, which all processes share.

As a command: `respool|nats send ADDRESS TOPIC COUNT RATE DELAY_MS`, `respool|nats receive ADDRESS TOPIC COUNT WARM_UP`,
or `respool fill ADDRESS TOPIC COUNT DUE_MS`: that many messages, all due at one time.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from struct import Struct
from typing import Any

from bench.load_client import announce
from bench.report import quantile
from bench.requests import fail_load
from bench.versus.other_programs import use_clients

MESSAGE_BYTES = 100
TICK_SECONDS = 0.001
SILENCE_SECONDS_MAX = 30.0
_DUE = Struct("<q")
_PADDING = bytes(MESSAGE_BYTES - _DUE.size)


def main() -> None:
    server, command, address, topic, count, *rest = sys.argv[1:]
    gc.disable()
    numbers = [int(one) for one in (count, *rest)]
    if server == "nats":
        use_clients()
        run = _nats_send if command == "send" else _nats_receive
        asyncio.run(run(address, topic, *numbers))
    else:
        commands: dict[str, Callable[..., None]] = {
            "send": _send,
            "receive": _receive,
            "fill": _fill,
        }
        commands[command](address, topic, *numbers)


def value_of(due_ms: int) -> bytes:
    return _DUE.pack(due_ms) + _PADDING


def _producer(address: str) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": "1",
            "queue.buffering.max.messages": 1_000_000,
            "delivery.report.only.error": True,
        }
    )


def _send(address: str, topic: str, count: int, rate: int, delay_ms: int) -> None:
    producer = _producer(address)
    producer.list_topics(topic, timeout=10)
    finish = announce()
    began = time.monotonic()
    sent = 0
    while sent < count:
        wanted = min(count, int((time.monotonic() - began) * rate))
        while sent < wanted:
            # Not all at one millisecond.
            due_ms = int(time.time() * 1000) + delay_ms + sent % 97
            producer.produce(topic, value_of(due_ms), headers={"respool-deliver-at": str(due_ms)})
            sent += 1
        producer.poll(0)
        time.sleep(TICK_SECONDS)
    if producer.flush(SILENCE_SECONDS_MAX):
        fail_load("delay producer: not all was sent")
    finish(sent, sent, sent * MESSAGE_BYTES)


def _fill(address: str, topic: str, count: int, due_ms: int) -> None:
    producer = _producer(address)
    producer.list_topics(topic, timeout=10)
    finish = announce()
    headers, value = {"respool-deliver-at": str(due_ms)}, value_of(due_ms)
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, headers=headers)
                break
            except BufferError:
                producer.poll(0.01)
        if not number % 1_000:
            producer.poll(0)
    if producer.flush(SILENCE_SECONDS_MAX):
        fail_load("delay producer: not all was sent")
    finish(count, count, count * MESSAGE_BYTES)


def _receive(address: str, topic: str, count: int, warm_up: int) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    consumer.poll(0.5)
    announce()
    late_ms: list[float] = []
    while len(late_ms) < count:
        message = consumer.poll(SILENCE_SECONDS_MAX)
        if message is None or message.error() is not None:
            fail_load(f"delay consumer: {len(late_ms)} of {count} messages came")
        late_ms.append(_lateness_ms(message.value()))
    _report(late_ms[warm_up:])


def _lateness_ms(value: bytes) -> float:
    due_ms: int = _DUE.unpack_from(value)[0]
    return time.time_ns() / 1e6 - due_ms


def _report(late_ms: list[float]) -> None:
    result = {
        "least": min(late_ms),
        "p50": quantile(late_ms, 0.5),
        "p99": quantile(late_ms, 0.99),
    }
    print(json.dumps(result), flush=True)


# -- NATS: a schedule for each message --------------------------------------------------------------------------------


async def _nats_send(address: str, stream: str, count: int, rate: int, delay_ms: int) -> None:
    import nats

    connection = await nats.connect(f"nats://{address}")
    await _make_stream(connection, stream)
    jetstream = connection.jetstream(publish_async_max_pending=1_000)
    finish = announce()
    began = time.monotonic()
    sent = 0
    while sent < count:
        wanted = min(count, int((time.monotonic() - began) * rate))
        while sent < wanted:
            due_ms = int(time.time() * 1000) + delay_ms + sent % 97
            due = datetime.fromtimestamp(due_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            headers = {
                "Nats-Schedule": f"@at {due}",
                "Nats-Schedule-Target": f"{stream}.due",
            }
            await jetstream.publish_async(
                f"{stream}.later.{sent}", value_of(due_ms), headers=headers
            )
            sent += 1
        await asyncio.sleep(TICK_SECONDS)
    await jetstream.publish_async_completed()
    finish(sent, sent, sent * MESSAGE_BYTES)
    await connection.close()


async def _make_stream(connection: Any, stream: str) -> None:
    """Its client does not know the setting."""
    config = {
        "name": stream,
        "subjects": [f"{stream}.>"],
        "storage": "file",
        "allow_msg_schedules": True,
        "allow_msg_ttl": True,
    }
    reply = await connection.request(f"$JS.API.STREAM.CREATE.{stream}", json.dumps(config).encode())
    found = json.loads(reply.data)
    if "error" in found and "in use" not in found["error"]["description"]:
        fail_load(f"nats: {found['error']}")


async def _nats_receive(address: str, stream: str, count: int, warm_up: int) -> None:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig

    connection = await nats.connect(f"nats://{address}")
    await _make_stream(connection, stream)
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    subscription = await connection.jetstream().subscribe(
        f"{stream}.due", stream=stream, config=config
    )
    announce()
    late_ms: list[float] = []
    while len(late_ms) < count:
        message = await subscription.next_msg(timeout=SILENCE_SECONDS_MAX)
        late_ms.append(_lateness_ms(message.data))
    _report(late_ms[warm_up:])
    await connection.close()


if __name__ == "__main__":
    main()
