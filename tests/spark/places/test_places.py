"""The same job gives the same result on one machine, on a cluster of processes, and through Spark Connect.

`make test` starts a Spark only for executors in processes of their own; `make fuzz` starts one for each place, and a
master and workers that are processes, too.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from respool.testing import Broker
from support import spark_same_job
from support.spark_cluster import SparkCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RIDES = 2_000
CITIES = ("Berlin", "Lagos", "Lima")
# A master and two workers inside the driver, and an executor of one core in a process of its own for each.
EXECUTORS = "local-cluster[2,1,1024]"


@pytest.fixture
def rides(broker: Broker) -> Broker:
    broker.create_topic("rides", partitions=3)
    broker.create_topic("copies", partitions=2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RIDES):
        producer.produce("rides", str(number), CITIES[number % 3])
    assert producer.flush(60) == 0
    return broker


def run_at(place: str, broker: Broker, folder: Path) -> Any:
    done = subprocess.run(
        [
            sys.executable,
            spark_same_job.__file__,
            *(place, broker.bootstrap, str(folder), "copies"),
        ],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6_000:]
    return json.loads(done.stdout.splitlines()[-1])


@contextmanager
def connect_server(spark: "SparkSession") -> Iterator[str]:
    """The address at which this Spark takes Spark Connect's clients."""
    jvm: Any = spark._jvm
    services = jvm.org.apache.spark.sql.connect.service
    # Scala's object: what Java sees of its class lacks the port.
    service = getattr(getattr(services, "SparkConnectService$"), "MODULE$")
    service.start(spark.sparkContext._jsc.sc())
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        nothing = jvm.scala.Option.empty()
        service.stop(nothing, nothing)


def expected() -> dict[str, list[Any]]:
    totals = [
        [city, float(sum(range(first, RIDES, 3))), len(range(first, RIDES, 3))]
        for first, city in enumerate(CITIES)
    ]
    return {"totals": totals, "copied": [RIDES, RIDES]}


def test_on_one_machine(spark: "SparkSession", rides: Broker, tmp_path: Path) -> None:
    assert spark_same_job.run(spark, rides.bootstrap, str(tmp_path), "copies") == expected()


def test_through_spark_connect(spark: "SparkSession", rides: Broker, tmp_path: Path) -> None:
    with connect_server(spark) as address:
        assert run_at(address, rides, tmp_path) == expected()


@pytest.mark.spark
@pytest.mark.xdist_group("spark-processes")
def test_with_executors_that_are_processes(rides: Broker, tmp_path: Path) -> None:
    assert run_at(EXECUTORS, rides, tmp_path) == expected()


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.skipif(os.environ.get("RESPOOL_FUZZ") != "long", reason="make fuzz")
@pytest.mark.parametrize("place", ["local[2]", "connect", "a cluster"])
def test_in_processes_of_its_own(rides: Broker, tmp_path: Path, place: str) -> None:
    if place != "a cluster":
        assert run_at(place, rides, tmp_path) == expected()
        return
    with SparkCluster(tmp_path) as cluster:
        assert run_at(cluster.url, rides, tmp_path) == expected()
