"""Views with the Java client and Kafka's tools. `make interop-kafka` runs it."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from bench.versus.java import java_command
from confluent_kafka import Producer

from support.broker_cluster import BrokerCluster
from support.java_process import OPTIONS, PROGRAMS, interop_jars
from support.kafka_tools import KafkaTools, rows
from support.topics import Topics

pytestmark = pytest.mark.skipif(
    "KAFKA_INTEROP" not in os.environ, reason="needs Java and Maven Central: make interop-kafka"
)

END = 200
MATCHES = [*range(10), 100]
SECONDS_MAX = 180.0


def quiet_view(cluster: BrokerCluster, topic: str) -> str:
    """A view that shows nothing of the second half of its topic."""
    topics = Topics(cluster.bootstrap)
    topics.create(topic, replicas=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(END):
        headers = {"tag": "paid" if number in MATCHES else "open"}
        producer.produce(topic, b"%d" % number, partition=0, headers=headers)
    assert producer.flush(30) == 0
    return topics.view(f"{topic}.v.paid", of=topic, where="tag = 'paid'")


def consumed(tools: KafkaTools, view: str, *arguments: str) -> list[str]:
    """What the console consumer prints until nothing more comes; the tool calls that an error."""
    printed = tools.ask(
        "kafka-console-consumer",
        "--topic",
        view,
        "--group",
        "paid",
        "--timeout-ms",
        "5000",
        *arguments,
    )
    assert "TimeoutException" in printed.err
    return printed.out.split()


def test_the_java_client_comes_to_a_quiet_end(cluster: BrokerCluster, tmp_path: Path) -> None:
    view = quiet_view(cluster, "java-rides")
    program = (str(PROGRAMS / "ViewReader.java"), cluster.bootstrap, "java-rides", view, str(END))
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
    for isolation in ("read_committed", "read_uncommitted"):
        assert seen[isolation] == MATCHES
        assert (seen[f"{isolation} committed"], seen[f"{isolation} lag"]) == (END, 0)
        assert seen[f"{isolation} again"] == [100]
    assert (seen["after skips"], seen["next"]) == ([], [END + 30])
    assert seen["refused"] == f"'{view}' is a view of 'java-rides': write to 'java-rides' instead"


def test_kafkas_tools_read_describe_and_change_a_view(
    cluster: BrokerCluster, tools: KafkaTools
) -> None:
    view = quiet_view(cluster, "tool-rides")
    assert consumed(tools, view, "--from-beginning") == [str(number) for number in MATCHES]
    (described,) = rows(tools("kafka-consumer-groups", "--describe", "--group", "paid"))
    assert (described["TOPIC"], described["CURRENT-OFFSET"], described["LAG"]) == (
        view,
        str(END),
        "0",
    )
    # These look for the name among all topics, which do not show a view that is not listed.
    assert view not in tools("kafka-topics", "--list").split()
    assert tools.ask("kafka-topics", "--describe", "--topic", view).code == 1
    # It knows Kafka's settings only, and asks no broker.
    made = tools.ask(
        "kafka-topics", "--create", "--topic", "x", "--config", "respool.view.of=tool-rides",
        "--config", "respool.view.where=exists(tag)",
    )  # fmt: skip
    assert made.code == 1
    assert "Unknown topic config name: respool.view." in made.everything
    change = ("--entity-type", "topics", "--entity-name", view, "--alter", "--add-config")
    tools("kafka-configs", *change, "respool.view.listed=true")

    assert view in tools("kafka-topics", "--list").split()
    shown = tools("kafka-topics", "--describe", "--topic", view)
    assert "PartitionCount: 1\tReplicationFactor: 3" in shown
    assert "respool.view.of=tool-rides" in shown
    assert tools("kafka-get-offsets", "--topic", view).split() == [f"{view}:0:{END}"]
    reset = ("--reset-offsets", "--group", "paid", "--topic", view, "--to-offset", "5", "--execute")
    tools("kafka-consumer-groups", *reset)
    assert consumed(tools, view) == [str(number) for number in MATCHES[5:]]
    tools("kafka-topics", "--delete", "--topic", view)
    assert "tool-rides" in tools("kafka-topics", "--list").split()
