"""A topic that is shrunk from 12 to 6 partitions while clients write and a group reads: what both notice of it.

Writers are three kinds of clients at a fixed pace, most of it librdkafka's; the group commits every second. Then the
rate that one librdkafka producer reaches into the shrunk topic, and into one that was never shrunk.
"""

import asyncio
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.request import urlopen

from bench.broker_process import BrokerFailed, BrokerProcess
from bench.report import Column, Report, Table, count, megabytes, milliseconds, seconds
from bench.requests import Client
from bench.scale import Scale
from bench.versus.ports import free_ports

TOPIC, OTHER = "shrinking", "unshrunk"
BEFORE, AFTER = 12, 6
MESSAGE = bytes(10_000)
KEYS = 1_000
TIMEOUT_S = 60.0
COMMIT_MS = 1_000
# Messages per second of 10 kB: 16, 2 and 2 MB/s.
PACES = {"librdkafka": 1_600, "kafka-python": 200, "aiokafka": 200}
TICK_S = 0.02
HELD = "respool_shrink_writes_held_seconds"
BARRIER = "respool_shrink_barrier_seconds"

COLUMNS = (
    Column("messages", "messages during it", count),
    Column("bytes_per_s", "MB/s written", megabytes),
    Column("errors", "client errors", count),
    Column("slowest_s", "slowest acknowledgement around it, ms", milliseconds),
    Column("held_s", "writers held, at most ms (histogram)", milliseconds),
    Column("barrier_s", "barrier, mean s", seconds),
    Column("shrunk_per_s", "MB/s into the shrunk topic", megabytes),
    Column("unshrunk_per_s", "MB/s into an unshrunk one", megabytes),
)


def run(scale: Scale, report: Report) -> None:
    table = Table(
        "shrink", f"A topic shrunk from {BEFORE} to {AFTER} partitions under load", COLUMNS
    )
    report.progress("shrink")
    (port,) = free_ports(1)
    with BrokerProcess({"metrics_listen": f"127.0.0.1:{port}"}) as broker:
        with Client(broker.host, broker.port) as client:
            settings = {"respool.flush": "os", "respool.partitions.shrink": "true"}
            for name in (TOPIC, OTHER):
                client.create_topic(name, partitions=BEFORE, settings=settings)
        row = _shrink_under_load(broker, port, max(4.0, scale.seconds * 2))
        row |= {
            "shrunk_per_s": _rate(broker, TOPIC, scale.seconds),
            "unshrunk_per_s": _rate(broker, OTHER, scale.seconds),
        }
    table.rows.append(row)
    wanted = sum(PACES.values()) * len(MESSAGE) / 1e6
    table.notes.append(
        f"{wanted:.0f} MB/s of 10 kB messages are asked for: {PACES}; a librdkafka group commits every second."
    )
    report.add(table)


class _Load:
    """What all writers did."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.errors: list[str] = []
        # When each message was acknowledged, and how long that took.
        self.acknowledged: list[tuple[float, float]] = []

    def on_done(self, begun_s: float, error: object = None) -> None:
        now_s = time.perf_counter()
        if error is None:
            self.acknowledged.append((now_s, now_s - begun_s))
        else:
            self.errors.append(str(error))

    def pace(self, per_s: int, send: Callable[[int], None]) -> None:
        """Call `send` `per_s` times a second, with a number, until the load ends."""
        begun_s, sent = time.perf_counter(), 0
        while not self.ended.is_set():
            due = int((time.perf_counter() - begun_s) * per_s)
            while sent < due:
                send(sent)
                sent += 1
            self.ended.wait(TICK_S)


def _shrink_under_load(broker: BrokerProcess, port: int, seconds_each: float) -> dict[str, float]:
    load = _Load()
    works = (_write_librdkafka, _write_kafka_python, _write_aiokafka, _read)
    threads = [threading.Thread(target=one, args=(broker.address, load)) for one in works]
    for thread in threads:
        thread.start()
    time.sleep(seconds_each)
    begun_s, cut = time.perf_counter(), len(load.acknowledged)
    _shrink(broker.address)
    time.sleep(seconds_each)
    ended_s = time.perf_counter()
    load.ended.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    during = [one for one in load.acknowledged[cut:] if one[0] < ended_s]
    if not during:
        raise BrokerFailed(f"nothing was acknowledged after the shrink: {load.errors[:3]}")
    metrics = _metrics(port)
    barriers = _sample(metrics, f"{BARRIER}_count")
    return {
        "messages": len(during),
        "bytes_per_s": len(during) * len(MESSAGE) / (ended_s - begun_s),
        "errors": len(load.errors),
        "slowest_s": max((took for at, took in during if at < begun_s + 2.0), default=0.0),
        "held_s": _largest_bucket(metrics, HELD),
        "barrier_s": _sample(metrics, f"{BARRIER}_sum") / barriers if barriers else 0.0,
    }


def _shrink(address: str) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_partitions([NewPartitions(TOPIC, AFTER)])[TOPIC].result(TIMEOUT_S)


def _key(number: int) -> bytes:
    return b"%d" % (number % KEYS)


def _write_librdkafka(address: str, load: _Load) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5})

    def send(number: int) -> None:
        begun_s = time.perf_counter()
        producer.produce(
            TOPIC,
            MESSAGE,
            key=_key(number),
            on_delivery=lambda error, _: load.on_done(begun_s, error),
        )
        producer.poll(0)

    load.pace(PACES["librdkafka"], send)
    producer.flush(TIMEOUT_S)


def _write_kafka_python(address: str, load: _Load) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, enable_idempotence=True, acks="all")

    def send(number: int) -> None:
        begun_s = time.perf_counter()
        sent = producer.send(TOPIC, MESSAGE, key=_key(number))
        sent.add_callback(lambda _: load.on_done(begun_s))
        sent.add_errback(lambda error: load.on_done(begun_s, error))

    load.pace(PACES["kafka-python"], send)
    producer.close(TIMEOUT_S)


def _write_aiokafka(address: str, load: _Load) -> None:
    asyncio.run(_write_from_a_loop(address, load))


async def _write_from_a_loop(address: str, load: _Load) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True)
    await producer.start()
    begun_s, sent = time.perf_counter(), 0
    while not load.ended.is_set():
        while sent < int((time.perf_counter() - begun_s) * PACES["aiokafka"]):
            sent_s = time.perf_counter()
            future: Any = await producer.send(TOPIC, MESSAGE, key=_key(sent))
            future.add_done_callback(lambda one, at=sent_s: load.on_done(at, one.exception()))
            sent += 1
        await asyncio.sleep(TICK_S)
    await producer.stop()


def _read(address: str, load: _Load) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": COMMIT_MS,
        }
    )
    consumer.subscribe([TOPIC])
    while not load.ended.is_set():
        consumer.consume(1_000, timeout=0.1)
    consumer.close()


def _rate(broker: BrokerProcess, topic: str, seconds_each: float) -> float:
    """Bytes per second of one librdkafka producer, as fast as it can."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
    acknowledged = 0

    def on_delivery(error: object, _: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    begun_s, number = time.perf_counter(), 0
    while time.perf_counter() - begun_s < seconds_each:
        with suppress(BufferError):
            producer.produce(topic, MESSAGE, key=_key(number), on_delivery=on_delivery)
            number += 1
        producer.poll(0)
    producer.flush(TIMEOUT_S)
    return acknowledged * len(MESSAGE) / (time.perf_counter() - begun_s)


# -- what the broker counts --------------------------------------------------------------------------------------------


def _metrics(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
        text: str = reply.read().decode()
    return text


def _sample(metrics: str, name: str) -> float:
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", metrics, re.MULTILINE)
    return float(found[1]) if found else 0.0


def _largest_bucket(metrics: str, name: str) -> float:
    """The upper bound of the largest observation, in seconds; infinite beyond the last bound."""
    buckets = re.findall(rf'^{name}_bucket{{le="([^"]+)"}} (\S+)$', metrics, re.MULTILINE)
    total = float(buckets[-1][1]) if buckets else 0.0
    return next((float(bound) for bound, value in buckets if float(value) == total), 0.0)
