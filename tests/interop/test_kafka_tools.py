"""Kafka's own command line tools, with a cluster of Respool. `make interop-kafka` runs it."""

import json
import os
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from support.cluster_process import ClusterProcess
from support.kafka_tools import KafkaTools
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(
    "KAFKA_INTEROP" not in os.environ, reason="needs Java and Maven Central: make interop-kafka"
)

TOPIC = "rides"
MESSAGES = 100_000
VALUE = bytes(200)
WAIT_S = 60.0


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    """Kafka's tools with a cluster of four brokers, as `respool cluster up` starts it."""
    folder = tmp_path_factory.mktemp("four")
    arguments = ("--brokers=4", "--listen=127.0.0.1:0", "--set=offsets_topic_partitions=3")
    with ClusterProcess(folder / "data", *arguments) as cluster:
        cluster.wait_until_up()
        with KafkaTools(cluster.bootstrap, folder) as tools:
            yield tools
        cluster.stop()


@pytest.fixture(scope="module")
def filled(four: KafkaTools) -> KafkaTools:
    """The topic is on three brokers, and the fourth one leads all of it."""
    placed = ("--topic", TOPIC, "--replica-assignment", "4:3:2,4:3:2,4:3:2")
    four("kafka-topics", "--create", *placed)
    producer = Producer({"bootstrap.servers": four.bootstrap, "linger.ms": 5})
    for number in range(MESSAGES):
        producer.produce(TOPIC, key=str(number), value=VALUE)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    return four


def written(tools: KafkaTools, name: str, content: object) -> str:
    return tools.written(name, json.dumps(content))


def test_partitions_are_moved_with_a_throttle_that_ends_with_it(filled: KafkaTools) -> None:
    topics = written(filled, "topics.json", {"version": 1, "topics": [{"topic": TOPIC}]})
    generated = filled(
        "kafka-reassign-partitions",
        "--generate",
        "--topics-to-move-json-file",
        topics,
        "--broker-list",
        "1,2,3",
    )
    plan = written(filled, "plan.json", json.loads(generated.strip().splitlines()[-1]))
    of_plan = ("--reassignment-json-file", plan)
    begun = filled("kafka-reassign-partitions", "--execute", *of_plan, "--throttle", "200000")
    assert "Successfully started partition reassignments" in begun
    assert f"{TOPIC}-0" in filled("kafka-reassign-partitions", "--list")
    of_one = ("--describe", "--entity-type", "brokers", "--entity-name", "1")
    assert "follower.replication.throttled.rate=200000" in filled("kafka-configs", *of_one)

    filled(
        "kafka-reassign-partitions",
        "--execute",
        *of_plan,
        "--throttle",
        "1000000000",
        "--additional",
    )
    wait_until(
        lambda: (
            filled("kafka-reassign-partitions", "--verify", *of_plan).count("is completed") == 3
        ),
        "all are moved",
        seconds=WAIT_S,
    )
    assert "throttled" not in filled("kafka-configs", *of_one)
    of_topic = ("--describe", "--entity-type", "topics", "--entity-name", TOPIC)
    assert "throttled" not in filled("kafka-configs", *of_topic)
    assert "4" not in replicas(filled)
    assert "Leader: 4" not in filled("kafka-topics", "--describe", "--topic", TOPIC)
    ends = filled("kafka-get-offsets", "--topic", TOPIC).split()
    assert sum(int(one.rpartition(":")[2]) for one in ends) == MESSAGES


def test_a_move_is_cancelled(filled: KafkaTools) -> None:
    before = replicas(filled)
    placed = [{"topic": TOPIC, "partition": number, "replicas": [4, 1, 2]} for number in range(3)]
    plan = written(filled, "cancelled.json", {"version": 1, "partitions": placed})
    of_plan = ("--reassignment-json-file", plan)
    # So slow that it goes on until it is cancelled.
    filled("kafka-reassign-partitions", "--execute", *of_plan, "--throttle", "1000")
    assert f"{TOPIC}-2" in filled("kafka-reassign-partitions", "--list")
    cancelled = filled("kafka-reassign-partitions", "--cancel", *of_plan)
    assert "Successfully cancelled partition reassignments" in cancelled
    assert "No partition reassignments found" in filled("kafka-reassign-partitions", "--list")
    assert replicas(filled) == before


def replicas(tools: KafkaTools) -> str:
    """Of all partitions of the topic, in their order."""
    described = tools("kafka-topics", "--describe", "--topic", TOPIC)
    return " ".join(line.split("Replicas: ")[1].split()[0] for line in described.splitlines()[1:])


def test_leaders_are_elected(filled: KafkaTools) -> None:
    filled("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    described = filled("kafka-topics", "--describe", "--topic", TOPIC).splitlines()[1:]
    firsts = [one.split(",")[0] for one in replicas(filled).split()]
    assert [line.split("Leader: ")[1].split()[0] for line in described] == firsts


def test_groups_are_described_reset_and_deleted(filled: KafkaTools) -> None:
    reading = ("--topic", TOPIC, "--num-records", str(MESSAGES), "--group", "tools")
    filled("kafka-consumer-perf-test", *reading)
    of_group = ("--group", "tools")
    lines = filled("kafka-consumer-groups", "--describe", *of_group).split("\n")
    lags = [line.split()[5] for line in lines if line.startswith("tools")]
    assert lags == ["0", "0", "0"]
    reset = ("--reset-offsets", *of_group, "--topic", TOPIC, "--to-earliest", "--execute")
    assert filled("kafka-consumer-groups", *reset).split()[-1] == "0"
    assert "Successful" in filled(
        "kafka-consumer-groups", "--delete-offsets", *of_group, "--topic", TOPIC
    )
    assert "successful" in filled("kafka-consumer-groups", "--delete", *of_group)


@pytest.mark.parametrize("broker", ["1", "2", "3", "4"])
def test_hanging_transactions_are_looked_for_at_every_broker(
    filled: KafkaTools, broker: str
) -> None:
    filled("kafka-transactions", "find-hanging", "--broker-id", broker)


def test_folders_and_segments_are_read(filled: KafkaTools) -> None:
    described = filled("kafka-log-dirs", "--describe", "--topic-list", TOPIC)
    found = json.loads(described.strip().splitlines()[-1])
    assert [one["broker"] for one in found["brokers"]] == [1, 2, 3, 4]
    deleted = written(
        filled,
        "deleted.json",
        {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "offset": 10}]},
    )
    told = filled("kafka-delete-records", "--offset-json-file", deleted)
    assert "low_watermark: 10" in told
