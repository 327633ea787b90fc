"""Delayed messages with the Java client. `make interop-kafka` runs it."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from bench.versus.java import java_command

from support.broker_cluster import BrokerCluster
from support.java_process import OPTIONS, PROGRAMS, interop_jars
from support.topics import Topics

pytestmark = pytest.mark.skipif(
    "KAFKA_INTEROP" not in os.environ, reason="needs Java and Maven Central: make interop-kafka"
)

SECONDS_MAX = 180.0


def test_the_java_client_sends_and_receives_delayed_messages(
    cluster: BrokerCluster, tmp_path: Path
) -> None:
    topic = Topics(cluster.bootstrap).new("java-reminders", replicas=3, respool_delay="true")
    program = (str(PROGRAMS / "DelayedSender.java"), cluster.bootstrap, topic)
    done = subprocess.run(
        java_command(interop_jars(), *program, options=OPTIONS),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen = json.loads(done.stdout)
    at_once = [f"now {number}" for number in range(3)]
    assert seen["values"] == [*at_once, "later 0", "later 1", "later 2", "last"]
    assert seen["early"] == 0
    assert seen["delivered from what was sent"]
    assert seen["lag"] == 0
    assert "respool-delay" in seen["refused"]
