"""What transactions cost: many small ones a second, and a fast producer that commits every 100 ms."""

import sys
import time
from statistics import median
from typing import Any

from bench.broker_process import BrokerProcess
from bench.load_client import Measured, announce, measure_command
from bench.report import Column, Report, Table, count, megabytes, millions, percent, ratio
from bench.requests import Client, fail_load
from bench.scale import MESSAGE_BYTES, Scale
from bench.transaction_load import TransactionSpec

TOPIC = "bench"
PARTITIONS = 4
MESSAGES = 10
PRODUCERS = (16, 64)
SMALL_TARGET = 2_000
CPU_TARGET = 1.0
COMMIT_EVERY_S = 0.1
SHARE_TARGET = 0.8
# The two producers in turn, so that a change of the machine's mood meets both.
TURNS = 3
QUEUE_MESSAGES_MAX = 200_000

SMALL_COLUMNS = (
    Column("what", "protocol"),
    Column("producers", "producers", count),
    Column("per_s", "transactions/s", count),
    Column("target", "target", count),
    Column("cpu", "broker CPU", percent),
    Column("cpu_target", "budget", percent),
    Column("per_cpu_s", "transactions per broker CPU-s", count),
    Column("client_cpu", "client CPU", percent),
)
LARGE_COLUMNS = (
    Column("what", "producer"),
    Column("messages_per_s", "messages/s", millions),
    Column("bytes_per_s", "MB/s", megabytes),
    Column("share", "of the plain one", ratio),
    Column("target", "target", ratio),
    Column("broker_cores", "broker CPU", percent),
    Column("client_cores", "client CPU", percent),
)


def run(scale: Scale, report: Report) -> None:
    _small(scale, report)
    _large(scale, report)


def _small(scale: Scale, report: Report) -> None:
    title = f"Transactions: small ones, {MESSAGES} messages of {MESSAGE_BYTES} bytes each"
    table = Table("small transactions", title, SMALL_COLUMNS)
    for version in (1, 2):
        for producers in PRODUCERS:
            report.progress(f"transactions: version {version}, {producers} producers")
            with BrokerProcess() as broker:
                spec = small_transactions(
                    broker, producers=producers, seconds=scale.seconds, version=version
                )
                done = measure_command(broker, "bench.transaction_load", spec.text())
            table.rows.append(_small_row(version, producers, done))
    table.notes.append(
        "One batch a transaction, one connection a producer, all producers in step; every step waits for a sync of the "
        "disk. Version 1: AddPartitionsToTxn, Produce, EndTxn. Version 2 (KIP-890): Produce, EndTxn."
    )
    report.add(table)


def small_transactions(
    broker: BrokerProcess, *, producers: int, seconds: float, version: int = 1
) -> TransactionSpec:
    """A fresh topic for them, and what its load client is to do."""
    with Client(broker.host, broker.port) as client:
        client.create_topic(TOPIC, partitions=PARTITIONS)
    return TransactionSpec(
        host=broker.host,
        port=broker.port,
        topic=TOPIC,
        partitions=PARTITIONS,
        producers=producers,
        messages=MESSAGES,
        seconds=seconds,
        version=version,
    )


def _small_row(version: int, producers: int, done: Measured) -> dict[str, Any]:
    return {
        "what": f"version {version}",
        "producers": producers,
        "per_s": done.requests / done.seconds,
        "target": SMALL_TARGET,
        "cpu": done.broker_cpu_s / done.seconds,
        "cpu_target": CPU_TARGET,
        "per_cpu_s": done.requests / done.broker_cpu_s,
        "client_cpu": done.client_cpu_s / done.seconds,
    }


def _large(scale: Scale, report: Report) -> None:
    table = Table("transactional producer", "Transactions: a commit every 100 ms", LARGE_COLUMNS)
    runs: dict[str, list[Measured]] = {"plain": [], "transactional": []}
    with BrokerProcess() as broker:
        with Client(broker.host, broker.port) as client:
            client.create_topic(TOPIC, partitions=PARTITIONS)
        for turn in range(TURNS):
            for kind, done in runs.items():
                report.progress(f"transactions: {kind} producer, turn {turn + 1} of {TURNS}")
                messages = str(scale.librdkafka_messages)
                done.append(
                    measure_command(broker, "bench.transactions", kind, broker.address, messages)
                )
    shares = [
        one.messages_per_s / plain.messages_per_s
        for one, plain in zip(runs["transactional"], runs["plain"], strict=True)
    ]
    table.rows.append(_large_row("idempotent, no transactions", runs["plain"]))
    transactional = _large_row("transactional", runs["transactional"])
    table.rows.append({**transactional, "share": median(shares), "target": SHARE_TARGET})
    table.notes.append(
        f"librdkafka, {scale.librdkafka_messages:,} messages a turn, median of {TURNS} turns; shares by turn: "
        + ", ".join(f"{share:.2f}" for share in shares)
        + "."
    )
    report.add(table)


def _large_row(what: str, runs: list[Measured]) -> dict[str, Any]:
    one = sorted(runs, key=lambda run: run.messages_per_s)[len(runs) // 2]
    return {
        "what": what,
        "messages_per_s": one.messages_per_s,
        "bytes_per_s": one.bytes_per_s,
        "broker_cores": one.broker_cpu_s / one.seconds,
        "client_cores": one.client_cpu_s / one.seconds,
    }


# The client's side.


def main() -> None:
    from confluent_kafka import Producer

    kind, address, count_text = sys.argv[1:]
    is_transactional, left = kind == "transactional", int(count_text)
    settings: dict[str, Any] = {
        "bootstrap.servers": address,
        "linger.ms": 5,
        "acks": "all",
        "enable.idempotence": True,
        "queue.buffering.max.messages": QUEUE_MESSAGES_MAX,
    }
    if is_transactional:
        settings["transactional.id"] = "bench"
    producer = Producer(settings)
    failed: list[str] = []

    def on_delivery(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    value = b"x" * MESSAGE_BYTES
    producer.list_topics(TOPIC, timeout=10)
    if is_transactional:
        producer.init_transactions(30)
    finish = announce()
    messages, transactions = left, 0
    while left:
        if is_transactional:
            producer.begin_transaction()
        left = _produce_for_a_while(producer, value, left, on_delivery)
        if is_transactional:
            producer.commit_transaction(30)
            transactions += 1
    if producer.flush(60) or failed:
        fail_load(f"{kind} producer: {len(failed)} failed {failed[:1]}")
    finish(transactions, messages, messages * MESSAGE_BYTES)


def _produce_for_a_while(producer: Any, value: bytes, left: int, on_delivery: Any) -> int:
    until = time.perf_counter() + COMMIT_EVERY_S
    while left:
        try:
            producer.produce(TOPIC, value, on_delivery=on_delivery)
            left -= 1
        except BufferError:
            producer.poll(0.01)
        if not left % 1_000:
            producer.poll(0)
            if time.perf_counter() >= until:
                break
    return left


if __name__ == "__main__":
    main()
