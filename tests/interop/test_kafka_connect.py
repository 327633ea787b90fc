"""Kafka Connect writes exactly once while its workers and a broker are killed. `make interop-kafka` runs it."""

import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support.broker_cluster import BrokerCluster
from support.committed_reader import CommittedReader
from support.java_process import JavaProcess
from support.ports import reserve_ports
from support.topics import Topics
from support.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(
        "KAFKA_INTEROP" not in os.environ, reason="needs Java and Maven Central: make interop-kafka"
    ),
    pytest.mark.timeout(600),
]

LINES = 3_000
WAIT_S = 120.0
CONNECTOR = {
    "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
    "topic": "lines",
    "batch.size": "50",
    # It does not start if exactly once cannot be had.
    "exactly.once.support": "required",
    "transaction.boundary": "poll",
}


class Worker(JavaProcess):
    """One of a group, with a REST server of its own."""

    def __init__(self, folder: Path, bootstrap: str, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "listeners": self.url,
            "exactly.once.source.support": "enabled",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "plugin.discovery": "only_scan",
            # One that is killed is missed soon, and its task is given to the other at once.
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
            # Whoever follows reads Connect's own topics to their end first, past what a killed one has left open.
            "transaction.timeout.ms": "10000",
            "producer.transaction.timeout.ms": "10000",
        }
        for store in ("offset", "config", "status"):
            settings[f"{store}.storage.topic"] = f"connect-{store}"
            settings[f"{store}.storage.replication.factor"] = "3"
        for store in ("offset", "status"):
            settings[f"{store}.storage.partitions"] = "3"
        file = folder / f"worker-{port}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        program = "org.apache.kafka.connect.cli.ConnectDistributed"
        super().__init__(folder, f"worker-{port}", program, str(file))

    def ask(self, path: str, *, method: str = "GET", body: object = None) -> Any:
        """None while it cannot answer: it starts, or workers are changing what each does."""
        request = urllib.request.Request(
            f"{self.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return json.loads(reply.read() or b"{}")
        except (urllib.error.URLError, OSError):
            return None


def runner(workers: list[Worker]) -> Worker | None:
    """Whoever says that the task runs, says at whom."""
    for one in workers:
        status = one.ask("/connectors/lines/status") if one.is_running else None
        for task in (status or {}).get("tasks", []):
            if task["state"] == "RUNNING":
                return next(each for each in workers if each.url.endswith(task["worker_id"]))
    return None


def test_a_source_writes_exactly_once_while_workers_and_a_broker_are_killed(
    cluster: BrokerCluster, tmp_path: Path
) -> None:
    Topics(cluster.bootstrap).create("lines", replicas=3)
    cluster.wait_until_known("lines")
    source = tmp_path / "lines.txt"
    written = 0

    def write() -> int:
        nonlocal written
        with source.open("a") as file:
            file.writelines(f"line {number}\n" for number in range(written, written + LINES))
        written += LINES
        return written - LINES * 3 // 4

    write()
    first, second = (Worker(tmp_path, cluster.bootstrap, port) for port in reserve_ports(2))
    workers = [first, second]
    config = {**CONNECTOR, "file": str(source)}
    with first, second, CommittedReader(cluster.bootstrap, ["lines"], partitions=1) as reader:
        wait_until(
            lambda: first.ask("/connectors/lines/config", method="PUT", body=config) is not None,
            "the connector is taken",
            seconds=WAIT_S,
            every_s=0.5,
        )
        # The one that has the task, in the middle of its work; the other one takes over.
        for _ in range(3):
            reader.read_until("lines", written - LINES * 3 // 4, seconds=WAIT_S)
            found: list[Worker] = []
            wait_until(
                lambda found=found: (found.extend(filter(None, [runner(workers)])), found)[1],  # type: ignore[misc]
                "the task runs",
                seconds=WAIT_S,
                every_s=0.2,
            )
            write()
            found[0].restart()
        reader.read_until("lines", write(), seconds=WAIT_S)
        cluster.brokers[2].kill()
        reader.read_until("lines", written - LINES // 2, seconds=WAIT_S)
        cluster.brokers[2].start()
        reader.read_until("lines", written, seconds=WAIT_S)
        cluster.wait_until_well()
        wait_until(
            lambda: any(
                one.ask("/connectors/lines", method="DELETE") is not None for one in workers
            ),
            "the connector is deleted",
            seconds=WAIT_S,
            every_s=0.5,
        )
    assert reader.values("lines", 0) == [b"line %d" % number for number in range(written)]
