"""A stock consumer of a view, or of all that a topic has, and the log that it reads.

As a command: `consume ADDRESS TOPIC COUNT`. Its answer has the bytes that came through the client's sockets, too.
"""

import gc
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.load_client import announce
from bench.requests import Batch, Client, ProduceFrame, read_exactly
from bench.scale import KB, MESSAGE_BYTES
from bench.versus.librdkafka_load import take
from bench.versus.payload import payloads
from respool.records.batch import Codec
from respool.records.build import NewRecord, build_batch

# What the Java producer fills by itself, before it is compressed.
BATCH_BYTES = 16 * KB
# Different batches; each is sent many times.
VARIANTS = 1_000
STATISTICS_MS = 50
# How many records there are for one with this tag.
TAGS = {"rare": 1_000, "paid": 100}
_ACKS_LEADER = 1
_IN_FLIGHT = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TaggedLog:
    messages: int
    # How many have each tag.
    tagged: dict[str, int]


def fill_tagged(host: str, port: int, topic: str, *, log_bytes: int) -> TaggedLog:
    """Write batches of zstd, of `log_bytes` before they are compressed."""
    variants = tagged_batches()
    frames = [ProduceFrame(topic, batch, acks=_ACKS_LEADER) for batch, _ in variants]
    messages, tagged, size = 0, dict.fromkeys(TAGS, 0), 0
    waiting = number = 0
    with Client(host, port) as client:
        while size < log_bytes:
            frame, (batch, tags) = frames[number % VARIANTS], variants[number % VARIANTS]
            client.socket.sendall(frame.data)
            waiting += 1
            number += 1
            size += BATCH_BYTES
            messages += batch.messages
            for tag in tags:
                tagged[tag] += 1
            if waiting == _IN_FLIGHT:
                _take_replies(client, waiting)
                waiting = 0
        _take_replies(client, waiting)
        written = client.end_offset(topic)
    assert written == messages, f"{written} of {messages} messages were taken"
    return TaggedLog(messages=messages, tagged=tagged)


def _take_replies(client: Client, count: int) -> None:
    for _ in range(count):
        size = int.from_bytes(read_exactly(client.socket, 4), "big")
        read_exactly(client.socket, size)


def tagged_batches(count: int = VARIANTS) -> Sequence[tuple[Batch, list[str]]]:
    """Each batch, and the tags of its records that have one of those that are looked for."""
    rng = random.Random(1)
    # Old messages would be deleted while they are read.
    now_ms = int(time.time() * 1000)
    texts = [one.encode() for one in payloads(MESSAGE_BYTES)]
    messages = BATCH_BYTES // (MESSAGE_BYTES + 20)
    found = []
    for _ in range(count):
        records, tags = [], []
        for _ in range(messages):
            tag = next((one for one, odds in TAGS.items() if rng.random() < 1 / odds), "new")
            if tag in TAGS:
                tags.append(tag)
            records.append(
                NewRecord(
                    value=rng.choice(texts), timestamp_ms=now_ms, headers=(("tag", tag.encode()),)
                )
            )
        data = build_batch(records, codec=Codec.ZSTD)
        found.append((Batch(data=data, messages=messages), tags))
    return found


def main() -> None:
    command, address, topic, count = sys.argv[1:]
    assert command == "consume", command
    gc.disable()
    _consume(address, topic, int(count))


def _consume(address: str, topic: str, count: int) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    received = 0

    def on_statistics(text: str) -> None:
        nonlocal received
        brokers = json.loads(text)["brokers"].values()
        received = sum(one["rxbytes"] for one in brokers)

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 2,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": on_statistics,
        }
    )
    consumer.list_topics(topic, timeout=10)
    announce()
    began, cpu_began = time.perf_counter(), time.process_time()
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    taken, _ = take(consumer, count)
    result = {
        "seconds": time.perf_counter() - began,
        "cpu_s": time.process_time() - cpu_began,
        "requests": taken,
        "messages": taken,
    }
    # Not measured: the last statistics come after the last message.
    consumer.poll(3 * STATISTICS_MS / 1000)
    print(json.dumps(result | {"bytes": received}), flush=True)


if __name__ == "__main__":
    main()
