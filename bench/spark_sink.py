"""Spark writing topics, beside the same rows dropped, and what the source reads; and how short a batch can be."""

import json
import os
import subprocess
import sys
from typing import Any

from bench.broker_process import ROOT, BrokerProcess
from bench.load_client import LoadFailed
from bench.report import Column, Report, Table, millions, ratio, seconds
from bench.requests import Client
from bench.scale import MESSAGE_BYTES, Scale
from bench.spark_sink_load import TARGET
from bench.spark_source_load import TASKS, TOPIC

ROWS_MAX = 5_000_000
READING = "read into a count"


def _milliseconds(value: float) -> str:
    return f"{value:.0f} ms"


RATES = (
    Column("what", "what"),
    Column("rows_per_s", "rows/s", millions),
    Column("rows_per_cpu_s", "/CPU-s of Spark", millions),
    Column("seconds", "seconds", seconds),
    Column("of_source", "of the source", ratio),
)
SHORTEST_BATCHES = (
    Column("what", "what"),
    Column("batch_ms", "a batch", _milliseconds),
    Column("writing_ms", "of it writing", _milliseconds),
)


def run(scale: Scale, report: Report) -> None:
    rows = min(scale.arrow_messages, ROWS_MAX)
    with BrokerProcess() as broker:
        with Client(broker.host, broker.port) as client:
            client.create_topic(TOPIC, partitions=TASKS)
            client.create_topic(TARGET, partitions=TASKS)
        report.progress(f"spark sink: {rows / 1e6:g} M rows")
        found = _load(broker.address, rows, repeats=max(2, scale.repeats))
    rates = Table("spark-sink", "Spark, local[2]: frames into a topic of 4 partitions", RATES)
    shortest = Table(
        "spark-floor", "Spark: the shortest batch, 100 rows of 4 partitions", SHORTEST_BATCHES
    )
    for what, one in found.items():
        if "batch_ms" in one:
            shortest.rows.append({"what": what.removeprefix("floor, "), **one})
        else:
            rates.rows.append(_rate(what, one, found[READING]))
    rates.notes += [
        f"{rows / 1e6:g} M messages of {MESSAGE_BYTES} bytes with keys of 8. Target: half the source's rate.",
        "Of the source: beside the same number of rows read into a count in the same run.",
        "Rows from a Python source cost that on the way, too; of those that Spark keeps in memory, only the sink does.",
    ]
    shortest.notes += [
        "Medians of 20 batches. Of a batch, Spark's own files (offsets, commits) are a part with any sink."
    ]
    report.add(rates)
    report.add(shortest)


def _rate(what: str, one: dict[str, float], reading: dict[str, float]) -> dict[str, Any]:
    return {
        "what": what,
        "rows_per_s": one["rows"] / one["seconds"],
        "rows_per_cpu_s": one["rows"] / one["cpu_s"],
        "seconds": one["seconds"],
        "of_source": None if what == READING else reading["seconds"] / one["seconds"],
    }


def _load(address: str, rows: int, *, repeats: int) -> dict[str, dict[str, float]]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.spark_sink_load", address, str(rows), str(repeats)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=False,
    )
    if done.returncode:
        raise LoadFailed(done.stderr[-2000:])
    told: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return told
