"""Kafka's own command line tools, with a cluster of Respool. `make interop-kafka` runs it."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.versus.java import java_command
from bench.versus.kafka_jars import KafkaJars, find_kafka
from confluent_kafka import Producer

from support.cluster_process import ClusterProcess
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(
    "KAFKA_INTEROP" not in os.environ, reason="needs Java and Maven Central: make interop-kafka"
)

TOOLS = "org.apache.kafka.tools"
TOPIC = "rides"
MESSAGES = 100_000
VALUE = bytes(200)
WAIT_S = 60.0


class Kafka:
    def __init__(self, jars: KafkaJars, cluster: ClusterProcess, folder: Path) -> None:
        self._jars = jars
        self.cluster = cluster
        self.folder = folder

    def tool(self, main_class: str, *arguments: str) -> str:
        """What it prints; it must end well."""
        server = ("--bootstrap-server", self.cluster.bootstrap)
        command = java_command(self._jars, main_class, *server, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        told = f"{' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, told
        assert "ERROR" not in done.stderr, told
        assert "Exception" not in done.stdout + done.stderr, told
        return done.stdout

    def topic(self, *arguments: str) -> str:
        return self.tool(f"{TOOLS}.TopicCommand", *arguments)

    def reassign(self, *arguments: str) -> str:
        return self.tool(f"{TOOLS}.reassign.ReassignPartitionsCommand", *arguments)

    def group(self, *arguments: str) -> str:
        return self.tool(f"{TOOLS}.consumer.group.ConsumerGroupCommand", *arguments)

    def configs(self, *arguments: str) -> str:
        return self.tool("kafka.admin.ConfigCommand", *arguments)

    def written(self, name: str, content: object) -> str:
        file = self.folder / name
        file.write_text(json.dumps(content))
        return str(file)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    folder = tmp_path_factory.mktemp("tools")
    arguments = ("--brokers=4", "--listen=127.0.0.1:0", "--set=offsets_topic_partitions=3")
    with ClusterProcess(folder / "data", *arguments) as cluster:
        cluster.wait_until_up()
        yield Kafka(find_kafka(), cluster, folder)
        cluster.stop()


@pytest.fixture(scope="module")
def filled(kafka: Kafka) -> Kafka:
    """The topic is on three brokers, and the fourth one leads all of it."""
    kafka.topic("--create", "--topic", TOPIC, "--replica-assignment", "4:3:2,4:3:2,4:3:2")
    producer = Producer({"bootstrap.servers": kafka.cluster.bootstrap, "linger.ms": 5})
    for number in range(MESSAGES):
        producer.produce(TOPIC, key=str(number), value=VALUE)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    return kafka


def test_partitions_are_moved_with_a_throttle_that_ends_with_it(filled: Kafka) -> None:
    topics = filled.written("topics.json", {"version": 1, "topics": [{"topic": TOPIC}]})
    generated = filled.reassign(
        "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2,3"
    )
    plan = filled.written("plan.json", json.loads(generated.strip().splitlines()[-1]))
    of_plan = ("--reassignment-json-file", plan)
    begun = filled.reassign("--execute", *of_plan, "--throttle", "200000")
    assert "Successfully started partition reassignments" in begun
    assert f"{TOPIC}-0" in filled.reassign("--list")
    of_one = ("--describe", "--entity-type", "brokers", "--entity-name", "1")
    assert "follower.replication.throttled.rate=200000" in filled.configs(*of_one)

    filled.reassign("--execute", *of_plan, "--throttle", "1000000000", "--additional")
    wait_until(
        lambda: filled.reassign("--verify", *of_plan).count("is completed") == 3,
        "all are moved",
        seconds=WAIT_S,
    )
    assert "throttled" not in filled.configs(*of_one)
    of_topic = ("--describe", "--entity-type", "topics", "--entity-name", TOPIC)
    assert "throttled" not in filled.configs(*of_topic)
    assert "4" not in replicas(filled)
    assert "Leader: 4" not in filled.topic("--describe", "--topic", TOPIC)
    ends = filled.tool(f"{TOOLS}.GetOffsetShell", "--topic", TOPIC).split()
    assert sum(int(one.rpartition(":")[2]) for one in ends) == MESSAGES


def replicas(kafka: Kafka) -> str:
    """Of all partitions of the topic, in their order."""
    described = kafka.topic("--describe", "--topic", TOPIC)
    return " ".join(line.split("Replicas: ")[1].split()[0] for line in described.splitlines()[1:])


def test_leaders_are_elected(filled: Kafka) -> None:
    filled.tool(
        f"{TOOLS}.LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions"
    )
    described = filled.topic("--describe", "--topic", TOPIC).splitlines()[1:]
    firsts = [one.split(",")[0] for one in replicas(filled).split()]
    assert [line.split("Leader: ")[1].split()[0] for line in described] == firsts


def test_groups_are_described_reset_and_deleted(filled: Kafka) -> None:
    reading = ("--topic", TOPIC, "--num-records", str(MESSAGES), "--group", "tools")
    filled.tool(f"{TOOLS}.ConsumerPerformance", *reading)
    of_group = ("--group", "tools")
    lines = filled.group("--describe", *of_group).split("\n")
    lags = [line.split()[5] for line in lines if line.startswith("tools")]
    assert lags == ["0", "0", "0"]
    reset = ("--reset-offsets", *of_group, "--topic", TOPIC, "--to-earliest", "--execute")
    assert filled.group(*reset).split()[-1] == "0"
    assert "Successful" in filled.group("--delete-offsets", *of_group, "--topic", TOPIC)
    assert "successful" in filled.group("--delete", *of_group)


@pytest.mark.parametrize("broker", ["1", "2", "3", "4"])
def test_hanging_transactions_are_looked_for_at_every_broker(filled: Kafka, broker: str) -> None:
    filled.tool(f"{TOOLS}.TransactionsCommand", "find-hanging", "--broker-id", broker)


def test_folders_and_segments_are_read(filled: Kafka) -> None:
    described = filled.tool(f"{TOOLS}.LogDirsCommand", "--describe", "--topic-list", TOPIC)
    found = json.loads(described.strip().splitlines()[-1])
    assert [one["broker"] for one in found["brokers"]] == [1, 2, 3, 4]
    deleted = filled.written(
        "deleted.json",
        {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "offset": 10}]},
    )
    told = filled.tool(f"{TOOLS}.DeleteRecordsCommand", "--offset-json-file", deleted)
    assert "low_watermark: 10" in told
