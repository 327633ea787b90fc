"""Spark reading topics, beside a source in the same run that yields the same rows from memory."""

import json
import os
import subprocess
import sys
from typing import Any

from bench.broker_process import ROOT, BrokerProcess
from bench.load_client import LoadFailed
from bench.report import Column, Report, Table, mebibytes, millions, ratio, seconds
from bench.requests import Client
from bench.scale import MESSAGE_BYTES, Scale
from bench.spark_source_load import TASKS, TOPIC

ROWS_MAX = 20_000_000
# What `make interop-spark` fetched: Spark's own Kafka connector, and a Python with Spark of its version.
CONNECTOR = ROOT / ".cache" / "spark-kafka-connector"
TARGETS = {"count, topic": 2e6, "aggregation, topic": 1e6}

COLUMNS = (
    Column("what", "what"),
    Column("rows_per_s", "rows/s", millions),
    Column("rows_per_cpu_s", "/CPU-s of Spark", millions),
    Column("seconds", "seconds", seconds),
    Column("of_memory", "to memory", ratio),
    Column("cpu_of_memory", "by CPU", ratio),
    Column("of_connector", "to connector", ratio),
    Column("of_target", "of target", ratio),
    Column("worker_bytes", "worker MiB", mebibytes),
)


def run(scale: Scale, report: Report) -> None:
    rows = min(scale.arrow_messages, ROWS_MAX)
    table = Table(
        "spark-source",
        "Spark, local[2]: topics into frames, 4 partitions, a broker process of its own",
        COLUMNS,
    )
    with BrokerProcess() as broker:
        with Client(broker.host, broker.port) as client:
            client.create_topic(TOPIC, partitions=TASKS)
        report.progress(f"spark source: {rows / 1e6:g} M rows")
        repeats = max(2, scale.repeats)
        here = [sys.executable, "-m", "bench.spark_source_load"]
        found = _load([*here, broker.address, str(rows), str(repeats)])
        if _has_connector():
            report.progress("spark source: Spark's own Kafka connector")
            found |= _load(_connector(broker.address, rows, repeats))
    with BrokerProcess({"local_reads": "false"}) as broker:
        with Client(broker.host, broker.port) as client:
            client.create_topic(TOPIC, partitions=TASKS)
        report.progress("spark source: the same, sent")
        sent = _load([*here, broker.address, str(rows), str(repeats), "pairs"])
        found |= {f"{what}, sent": one for what, one in sent.items() if what in TARGETS}
    table.rows += [_row(what, one, found) for what, one in found.items()]
    table.notes += [
        f"{rows / 1e6:g} M messages of {MESSAGE_BYTES} bytes with keys of 8.",
        "Targets: 2 M rows/s into a count, 1 M into an aggregation, at least 0.75 of the same rows from memory.",
        "By CPU: CPU-seconds of the JVM and its Python processes for a row, memory's over the topic's. Less noisy.",
        "Rows of a replay and of a filter on time are those that were wanted; of others, those that were looked at.",
        "Local reads, the broker being on this machine; sent: as between machines (local_reads=false).",
        "Connector: Spark's own for Kafka, of Spark 4.0, on the same topic, if `make interop-spark` fetched it.",
        "Worker: the most resident memory of one Python process meanwhile.",
    ]
    report.add(table)


def _has_connector() -> bool:
    return (CONNECTOR / "python" / "installed").exists() and (CONNECTOR / "jars").exists()


def _connector(address: str, rows: int, repeats: int) -> list[str]:
    jars = ",".join(str(one) for one in sorted((CONNECTOR / "jars").glob("*.jar")))
    script = ROOT / "bench" / "spark_connector_load.py"
    python = CONNECTOR / "python" / "bin" / "python"
    return [str(python), str(script), address, TOPIC, str(rows), str(repeats), jars]


def _load(command: list[str]) -> dict[str, dict[str, float]]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": command[0]},
        check=False,
    )
    if done.returncode:
        raise LoadFailed(done.stderr[-2000:])
    told: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return told


def _row(what: str, one: dict[str, float], found: dict[str, dict[str, float]]) -> dict[str, Any]:
    rate = one["rows"] / one["seconds"]
    kind, _, source = what.partition(", ")
    memory = found.get(f"{kind}, memory") if source in {"topic", "topic, sent"} else None
    connector = found.get(f"{kind}, connector") if source in {"topic", ""} else None
    return {
        "what": what,
        "rows_per_s": rate,
        "rows_per_cpu_s": one["rows"] / one["cpu_s"] if "cpu_s" in one else None,
        "seconds": one["seconds"],
        "of_memory": None if memory is None else memory["seconds"] / one["seconds"],
        "cpu_of_memory": None if memory is None else memory["cpu_s"] / one["cpu_s"],
        "of_connector": None if connector is None else connector["seconds"] / one["seconds"],
        "of_target": rate / TARGETS[what] if what in TARGETS else None,
        "worker_bytes": one.get("worker_bytes"),
    }
