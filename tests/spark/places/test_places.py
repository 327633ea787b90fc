"""The same job gives the same result on one machine, on a cluster of processes, and through Spark Connect."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from respool.testing import Broker
from support.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]
RIDES = 2_000
CITIES = ("Berlin", "Lagos", "Lima")


@pytest.fixture
def rides(broker: Broker) -> Broker:
    broker.create_topic("rides", partitions=3)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RIDES):
        producer.produce("rides", str(number), CITIES[number % 3])
    assert producer.flush(60) == 0
    return broker


def run_at(place: str, broker: Broker, folder: Path) -> Any:
    out = f"copies-{place.partition(':')[0].partition('[')[0]}"
    broker.create_topic(out, partitions=2)
    run = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).parent / "same_job.py"),
            *(place, broker.bootstrap, str(folder), out),
        ],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-6_000:]
    return json.loads(run.stdout.splitlines()[-1])


def expected() -> dict[str, list[Any]]:
    totals = [
        [city, float(sum(range(first, RIDES, 3))), len(range(first, RIDES, 3))]
        for first, city in enumerate(CITIES)
    ]
    return {"totals": totals, "copied": [RIDES, RIDES]}


def test_on_one_machine(rides: Broker, tmp_path: Path) -> None:
    assert run_at("local[2]", rides, tmp_path) == expected()


def test_on_a_cluster_of_a_master_and_two_workers(rides: Broker, tmp_path: Path) -> None:
    with SparkCluster(tmp_path) as cluster:
        assert run_at(cluster.url, rides, tmp_path) == expected()


def test_through_spark_connect(rides: Broker, tmp_path: Path) -> None:
    assert run_at("connect", rides, tmp_path) == expected()
