"""End to end with Arrow tables: written durably, then read, beside confluent-kafka doing the same in the same run."""

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import psutil

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
from bench.warm_memory import WarmMemory

# A message in the log, about.
ROW_BYTES = 112
TARGET = 2e6
# Of one core; and of all cores, idle.
BUSY = 0.85
BUSY_IDLE_MAX = 0.1
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
    Column("cpu_of_confluent", "by CPU", ratio),
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
    with WarmMemory(count * ROW_BYTES) as warm:
        _measure_all(table, report, warm, count=count, written=written, read=read)
    table.notes += [
        f"{count / 1e6:g} M messages of {MESSAGE_BYTES} bytes with one partition, a quarter of it else.",
        f"Targets: 2 M/s writing, 2 M/s reading, and {TARGET_RATIO:.0f} times confluent-kafka for both together.",
        f"confluent-kafka: {scale.librdkafka_messages / 1e6:g} M messages, not compressed, also beside rows that are.",
        "By CPU: CPU-seconds of client and broker for a message, theirs over ours; less noisy than rates.",
        "Client memory: the most it took while it worked, beyond its table and libraries.",
        _bound(table.rows),
    ]
    report.add(table)
    report.add(_first_use(report))


def _measure_all(
    table: Table,
    report: Report,
    warm: WarmMemory,
    *,
    count: int,
    written: Measured,
    read: Measured,
) -> None:
    for what, command, partitions, codec, messages in (
        ("1 partition", "write", 1, "none", count),
        ("4 partitions", "write", 4, "none", count // 4),
        ("4 partitions, by key", "write-keyed", 4, "none", count // 4),
        ("4 partitions, lz4", "write", 4, "lz4", count // 4),
        ("4 partitions, zstd", "write", 4, "zstd", count // 4),
    ):
        warm.refill()
        with BrokerProcess() as broker:
            _create(broker, "tables", partitions)
            report.progress(f"arrow: write {what}")
            with warm.released_during(broker.written_bytes):
                ours, extra = _measure(broker, command, messages, codec)
            table.rows.append(_row(f"write, {what}", ours, extra, beside=written))
            report.progress(f"arrow: read {what}")
            again, extra = _measure(broker, "read", messages, codec)
            table.rows.append(_row(f"read, {what}", again, extra, beside=read))
            both = _row(f"both, {what}", _both(ours, again), beside=_both(written, read))
            table.rows.append(both | {"of_target": None})


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
) -> tuple[Measured, dict[str, float]]:
    client = LoadClient("bench.arrow_load", command, broker.address, "tables", str(messages), codec)
    try:
        client.wait_until_ready()
        before, idle_before = broker.cpu(), _idle_seconds()
        client.go()
        result = client.wait_for_result()
        spent, idle_s = broker.cpu() - before, _idle_seconds() - idle_before
    finally:
        client.end()
    extra = {"memory_bytes": result["memory_bytes"], "idle_cores": idle_s / result["seconds"]}
    return measured(result, spent), extra


def _idle_seconds() -> float:
    """Of all cores together since the machine's start; also those that wait for a disk."""
    times = psutil.cpu_times()
    return float(times.idle + times.iowait)


def _row(
    what: str,
    one: Measured,
    extra: dict[str, float] | None = None,
    *,
    beside: Measured | None = None,
) -> dict[str, Any]:
    return {
        "what": what,
        "messages_per_s": one.messages_per_s,
        "bytes_per_s": one.bytes_per_s,
        "messages_per_cpu_s": one.messages_per_cpu_s,
        "messages_per_client_cpu_s": one.messages / one.client_cpu_s,
        "broker_cores": one.broker_cpu_s / one.seconds,
        "client_cores": one.client_cpu_s / one.seconds,
        "of_target": None if beside is None else one.messages_per_s / TARGET,
        "of_confluent": None if beside is None else one.messages_per_s / beside.messages_per_s,
        "cpu_of_confluent": None if beside is None else _cpu_s(beside) / _cpu_s(one),
    } | (extra or {})


def _cpu_s(one: Measured) -> float:
    """Of both sides, for a message."""
    return (one.client_cpu_s + one.broker_cpu_s) / one.messages


def _both(written: Measured, read: Measured) -> Measured:
    """Messages written and then read, over the time of both; the few that warmed up were read too."""
    share = written.messages / read.messages
    return Measured(
        seconds=written.seconds + read.seconds * share,
        requests=0,
        messages=written.messages,
        bytes=written.bytes,
        client_cpu_s=written.client_cpu_s + read.client_cpu_s * share,
        broker_cpu_s=written.broker_cpu_s + read.broker_cpu_s * share,
        broker_system_s=written.broker_system_s + read.broker_system_s * share,
    )


def _bound(rows: list[dict[str, Any]]) -> str:
    """Of the plain write and read: what is used up. Where nothing is, they wait, and we do not know for what."""
    cores = os.cpu_count() or 1
    told = []
    for what in ("write", "read"):
        row = next(one for one in rows if one["what"] == f"{what}, 1 partition")
        broker, client, idle = row["broker_cores"], row["client_cores"], row["idle_cores"]
        others = max(0.0, cores - idle - broker - client)
        if idle < BUSY_IDLE_MAX * cores:
            why = f"the machine's {cores} cores"
        elif broker > BUSY:
            why = "the broker's one loop"
        elif client > BUSY:
            why = "the client's CPU"
        else:
            why = "waiting (for the disk or for each other: not told apart here)"
        used = f"broker {broker:.0%}, client {client:.0%}, kernel and others {others:.0%}"
        told.append(f"{what} by {why}: {used}, idle {idle:.0%}")
    return "Bound with one partition, in cores: " + "; ".join(told) + "."


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
