"""End to end with Arrow tables: written durably, then read, beside confluent-kafka doing the same in the same run."""

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from bench.broker_process import ROOT, BrokerProcess
from bench.load_client import LoadClient, LoadFailed, Measured, measure_command, measured
from bench.report import (
    Column,
    Report,
    Table,
    mebibytes,
    megabytes,
    millions,
    percent,
    ratio,
    seconds,
)
from bench.requests import Client
from bench.scale import MESSAGE_BYTES, Scale

TARGET = 2e6
TARGET_RATIO = 5.0

COLUMNS = (
    Column("what", "what"),
    Column("messages_per_s", "messages/s", millions),
    Column("bytes_per_s", "MB/s", megabytes),
    Column("messages_per_cpu_s", "/broker CPU-s", millions),
    Column("messages_per_client_cpu_s", "/client CPU-s", millions),
    Column("broker_cores", "broker CPU", percent),
    Column("client_cores", "client CPU", percent),
    Column("memory_bytes", "client MiB", mebibytes),
    Column("of_target", "of 2 M/s", ratio),
    Column("of_confluent", "to confluent", ratio),
)
FIRST_COLUMNS = (
    Column("what", "first use in a fresh process"),
    Column("seconds", "seconds", seconds),
    Column("cpu_s", "CPU-s", seconds),
)


def run(scale: Scale, report: Report) -> None:
    table = Table(
        "arrow",
        "Arrow tables end to end: acks=all, idempotent, flush=always, a broker process of its own",
        COLUMNS,
    )
    theirs = _confluent(scale, report)
    table.rows += [_row(what, one) for what, one in theirs.items()]
    written, read = theirs.values()
    table.rows.append(_row("confluent-kafka, both", _both(written, read)))
    count = scale.arrow_messages
    for what, command, partitions, codec, messages in (
        ("1 partition", "write", 1, "none", count),
        ("4 partitions", "write", 4, "none", count // 4),
        ("4 partitions, by key", "write-keyed", 4, "none", count // 4),
        ("4 partitions, lz4", "write", 4, "lz4", count // 4),
        ("4 partitions, zstd", "write", 4, "zstd", count // 4),
    ):
        with BrokerProcess() as broker:
            _create(broker, "tables", partitions)
            report.progress(f"arrow: write {what}")
            ours, memory = _measure(broker, command, messages, codec)
            table.rows.append(_row(f"write, {what}", ours, memory, beside=written))
            report.progress(f"arrow: read {what}")
            again, memory = _measure(broker, "read", messages, codec)
            table.rows.append(_row(f"read, {what}", again, memory, beside=read))
            both = _row(f"both, {what}", _both(ours, again), beside=_both(written, read))
            table.rows.append(both | {"of_target": None})
    table.notes += [
        f"{count / 1e6:g} M messages of {MESSAGE_BYTES} bytes with one partition, a quarter of it else.",
        f"Targets: 2 M/s writing, 2 M/s reading, and {TARGET_RATIO:.0f} times confluent-kafka for both together.",
        "Client memory: the most it took while it worked, beyond its table and libraries.",
        _bound(table.rows),
    ]
    report.add(table)
    report.add(_first_use(report))


def _confluent(scale: Scale, report: Report) -> dict[str, Measured]:
    with BrokerProcess() as broker:
        # The name that its load client uses.
        _create(broker, "bench", 1)
        found = {}
        for what, command in (
            ("confluent-kafka, write", "produce-idempotent"),
            ("confluent-kafka, read", "consume"),
        ):
            report.progress(f"arrow: {what}")
            found[what] = measure_command(
                broker, "bench.librdkafka", command, broker.address, str(scale.librdkafka_messages)
            )
    return found


def _measure(
    broker: BrokerProcess, command: str, messages: int, codec: str
) -> tuple[Measured, float]:
    client = LoadClient("bench.arrow_load", command, broker.address, "tables", str(messages), codec)
    try:
        client.wait_until_ready()
        before = broker.cpu()
        client.go()
        result = client.wait_for_result()
        spent = broker.cpu() - before
    finally:
        client.end()
    return measured(result, spent), result["memory_bytes"]


def _row(
    what: str, one: Measured, memory_bytes: float | None = None, *, beside: Measured | None = None
) -> dict[str, Any]:
    return {
        "what": what,
        "messages_per_s": one.messages_per_s,
        "bytes_per_s": one.bytes_per_s,
        "messages_per_cpu_s": one.messages_per_cpu_s,
        "messages_per_client_cpu_s": one.messages / one.client_cpu_s,
        "broker_cores": one.broker_cpu_s / one.seconds,
        "client_cores": one.client_cpu_s / one.seconds,
        "memory_bytes": memory_bytes,
        "of_target": None if beside is None else one.messages_per_s / TARGET,
        "of_confluent": None if beside is None else one.messages_per_s / beside.messages_per_s,
    }


def _both(written: Measured, read: Measured) -> Measured:
    """Messages written and then read, over the time of both; the few that warmed up were read too."""
    return Measured(
        seconds=written.seconds + read.seconds * written.messages / read.messages,
        requests=0,
        messages=written.messages,
        bytes=written.bytes,
        client_cpu_s=written.client_cpu_s + read.client_cpu_s,
        broker_cpu_s=written.broker_cpu_s + read.broker_cpu_s,
        broker_system_s=written.broker_system_s + read.broker_system_s,
    )


def _bound(rows: list[dict[str, Any]]) -> str:
    """Of the plain write and read: what is used up."""
    told = []
    for what in ("write", "read"):
        row = next(one for one in rows if one["what"] == f"{what}, 1 partition")
        broker, client = row["broker_cores"], row["client_cores"]
        cores = os.cpu_count() or 1
        if broker + client > 0.85 * cores:
            why = f"the machine's {cores} cores"
        elif broker > 0.85:
            why = "the broker's one loop"
        elif client > 0.85:
            why = "the client's CPU"
        elif what == "write":
            why = (
                "waiting for the disk: at most five batches of 1 MiB are under way for a partition"
            )
        else:
            why = "waiting for each other: neither side is busy all the time"
        told.append(f"{what} by {why} (broker {broker:.0%}, client {client:.0%})")
    return "Bound with one partition: " + "; ".join(told) + "."


def _first_use(report: Report) -> Table:
    table = Table("arrow-first", "Arrow client: first use, imports included", FIRST_COLUMNS)
    with BrokerProcess() as broker:
        _create(broker, "tables", 1)
        for command, what in (("first-write", "write_table"), ("first-read", "read_table")):
            report.progress(f"arrow: {command}")
            with tempfile.TemporaryDirectory() as empty:
                cold = _first(broker, command, {"NUMBA_CACHE_DIR": empty})
                warm = _first(broker, command, {"NUMBA_CACHE_DIR": empty})
            table.rows += [
                {"what": f"{what}, kernels compiled before"} | warm,
                {"what": f"{what}, kernels compiled now"} | cold,
            ]
    table.notes.append("Target: under 1 s with kernels compiled before.")
    return table


def _first(broker: BrokerProcess, command: str, environment: dict[str, str]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.arrow_load", command, broker.address, "tables", "1", "none"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
        check=False,
    )
    if done.returncode:
        raise LoadFailed(done.stderr[-500:])
    told: dict[str, float] = json.loads(done.stdout)
    return told


def _create(broker: BrokerProcess, topic: str, partitions: int) -> None:
    with Client(broker.host, broker.port) as client:
        client.create_topic(topic, partitions=partitions)
