"""Spark's own `format("kafka")` reads and writes Respool's topics, in batches and as streams: `make interop-spark`.

It needs Maven Central, and PySpark of the connector's version in an environment of its own; so it is not part of
`make test`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from interop.connector_job import ROWS
from respool.testing import Broker
from support.topics import Topics

HERE = Path(__file__).parent
CACHE = HERE.parent.parent / ".cache" / "spark-kafka-connector"
SPARK = "4.0.0"
HISTORY = 1_000
FIRST_MS = 1_700_000_000_000

pytestmark = [
    pytest.mark.skipif(
        "SPARK_INTEROP" not in os.environ, reason="fetches from Maven Central: make interop-spark"
    ),
    pytest.mark.timeout(1_200),
]


@pytest.fixture(scope="module")
def jars() -> str:
    folder = CACHE / "jars"
    if not folder.exists():
        fetched = subprocess.run(
            [
                *("mvn", "-q", "-B", "-f", str(HERE / "pom.xml")),
                *("dependency:copy-dependencies", f"-DoutputDirectory={folder}"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert fetched.returncode == 0, f"Maven Central cannot be reached: {fetched.stdout}"
    return ",".join(str(one) for one in sorted(folder.glob("*.jar")))


@pytest.fixture(scope="module")
def python() -> Path:
    """A Python that has Spark of the connector's version."""
    home = CACHE / "python"
    made = home / "bin" / "python"
    if not (home / "installed").exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        subprocess.run(
            [made, "-m", "pip", "install", "--quiet", f"pyspark=={SPARK}", "setuptools<80"],
            check=True,
        )
        (home / "installed").touch()
    return made


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def test_sparks_own_connector_reads_and_writes_in_batches_and_streams(
    broker: Broker, jars: str, python: Path, tmp_path: Path
) -> None:
    for topic in ("batch", "streamed"):
        broker.create_topic(topic, partitions=2)
    broker.create_topic("history", partitions=2, **{"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(HISTORY):
        producer.produce(
            "history", b"%d" % number, partition=number % 2, timestamp=FIRST_MS + number * 1_000
        )
    producer.flush()

    run = subprocess.run(
        [python, HERE / "connector_job.py", broker.bootstrap, tmp_path, jars],
        env={**os.environ, "PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr[-5_000:]
    seen = json.loads(run.stdout.splitlines()[-1])
    once = [ROWS, ROWS, sum(range(ROWS))]
    assert seen["batch"] == seen["pattern"] == seen["splits"] == seen["committed"] == once
    assert seen["headers"] == ROWS
    assert seen["from offsets"][0] == ROWS - 200
    assert seen["since a time"] == [500, 500, sum(range(500, 1_000))]
    assert seen["between times"] == [100, 100, sum(range(100, 200))]
    assert seen["streamed 0"] == once
    assert seen["streamed 1"] == [2 * ROWS, 2 * ROWS, sum(range(2 * ROWS))]


def test_sparks_own_connector_comes_to_the_quiet_end_of_a_view(
    broker: Broker, jars: str, python: Path, tmp_path: Path
) -> None:
    """It waits for the record at each offset that it was promised, and fails after two minutes without one."""
    broker.create_topic("rides", partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    shown = [*range(20), 200]
    for number in range(400):
        headers = {"tag": "paid" if number in shown else "open"}
        producer.produce("rides", b"%d" % number, partition=number % 2, headers=headers)
    assert producer.flush(30) == 0
    view = Topics(broker.bootstrap).view("rides.v.paid", of="rides", where="tag = 'paid'")

    run = subprocess.run(
        [python, HERE / "view_job.py", broker.bootstrap, view, tmp_path, jars],
        env={**os.environ, "PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr[-5_000:]
    seen = json.loads(run.stdout.splitlines()[-1])
    assert seen == dict.fromkeys(
        ("batch", "splits", "committed", "streamed 0", "streamed 1"), shown
    )
