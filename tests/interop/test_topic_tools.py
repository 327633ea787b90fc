"""Kafka's tools for topics: each verb, and what it prints. `make interop-kafka` runs it."""

import json
import os
import re

import pytest
from confluent_kafka import Producer

from support.broker_cluster import BrokerCluster
from support.kafka_tools import KafkaTools
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(
    "KAFKA_INTEROP" not in os.environ, reason="needs Java and Maven Central: make interop-kafka"
)

FIRST_MS = 1_700_000_000_000
MESSAGES = 100


@pytest.fixture(scope="module")
def filled(cluster: BrokerCluster, tools: KafkaTools) -> str:
    """A topic of two partitions; message n was written at FIRST_MS + n, into partition n % 2."""
    topic = "filled"
    tools("kafka-topics", "--create", "--topic", topic, "--partitions", "2")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "batch.num.messages": 10})
    for number in range(MESSAGES):
        producer.produce(topic, b"%d" % number, partition=number % 2, timestamp=FIRST_MS + number)
    assert producer.flush(30) == 0
    return topic


def described(tools: KafkaTools, *arguments: str) -> list[dict[str, str]]:
    """What `--describe` says of a topic, and then of each partition, as words."""
    lines = tools("kafka-topics", "--describe", *arguments).splitlines()
    return [
        dict(cell.split(": ", 1) for cell in line.split("\t") if ": " in cell) for line in lines
    ]


def test_topics_are_created_listed_described_grown_and_deleted(tools: KafkaTools) -> None:
    of_topic = ("--topic", "made")
    configs = ("--config", "retention.ms=1234567", "--config", "cleanup.policy=compact,delete")
    many = ("--partitions", "2", "--replication-factor", "2")
    made = tools("kafka-topics", "--create", *of_topic, *many, *configs)
    assert made == "Created topic made.\n"
    assert "made" in tools("kafka-topics", "--list").splitlines()
    assert "made" in tools("kafka-topics", "--list", "--exclude-internal").splitlines()
    assert tools("kafka-topics", "--create", "--if-not-exists", *of_topic) == ""
    twice = tools.ask("kafka-topics", "--create", *of_topic)
    assert twice.code == 1
    assert "TopicExistsException" in twice.err

    topic, *partitions = described(tools, *of_topic)
    assert (topic["PartitionCount"], topic["ReplicationFactor"]) == ("2", "2")
    assert "retention.ms=1234567" in topic["Configs"]
    assert "cleanup.policy=compact,delete" in topic["Configs"]
    assert [one["Partition"] for one in partitions] == ["0", "1"]
    for one in partitions:
        assert one["Leader"] in one["Replicas"].split(",")
        assert sorted(one["Isr"].split(",")) == sorted(one["Replicas"].split(","))
    by_id = described(tools, "--topic-id", topic["TopicId"])
    assert by_id[0]["Topic"] == "made"
    assert described(tools, *of_topic, "--topics-with-overrides")[0]["Topic"] == "made"

    tools("kafka-topics", "--alter", *of_topic, "--partitions", "4")
    assert described(tools, *of_topic)[0]["PartitionCount"] == "4"
    fewer = tools.ask("kafka-topics", "--alter", *of_topic, "--partitions", "3")
    assert fewer.code == 1
    assert "InvalidPartitions" in fewer.everything
    tools("kafka-topics", "--delete", *of_topic)
    wait_until(lambda: "made" not in tools("kafka-topics", "--list").split(), "it is gone")
    assert tools("kafka-topics", "--delete", "--if-exists", *of_topic) == ""
    again = tools.ask("kafka-topics", "--describe", *of_topic)
    assert "does not exist" in again.everything


def test_replicas_are_placed_by_hand(tools: KafkaTools) -> None:
    of_topic = ("--topic", "placed")
    tools("kafka-topics", "--create", *of_topic, "--replica-assignment", "3:1,2:3")
    assert [one["Replicas"] for one in described(tools, *of_topic)[1:]] == ["3,1", "2,3"]
    more = ("--partitions", "3", "--replica-assignment", "3:1,2:3,1:2")
    tools("kafka-topics", "--alter", *of_topic, *more)
    assert [one["Replicas"] for one in described(tools, *of_topic)[1:]] == ["3,1", "2,3", "1,2"]


REPORTS = (
    "--under-replicated-partitions",
    "--unavailable-partitions",
    "--under-min-isr-partitions",
    "--at-min-isr-partitions",
)


def test_partitions_that_miss_a_broker_are_reported(
    cluster: BrokerCluster, tools: KafkaTools
) -> None:
    """One topic would do without the broker, one is at its minimum, one below it, and one is on that broker alone."""
    placed = {"at": "1:2:3", "under": "1:2:3", "alone": "3", "elsewhere": "1:2"}
    for name, replicas in placed.items():
        floor = {"at": "2", "under": "3"}.get(name, "1")
        created = ("--create", "--topic", f"reported-{name}", "--replica-assignment", replicas)
        tools("kafka-topics", *created, "--config", f"min.insync.replicas={floor}")

    def reported(report: str) -> set[str]:
        found = tools("kafka-topics", "--describe", report)
        return set(re.findall(r"Topic: reported-(\w+)", found))

    assert [reported(report) for report in REPORTS] == [set(), set(), set(), {"under", "alone"}]
    cluster.brokers[3].kill()
    try:
        wait_until(
            lambda: reported(REPORTS[0]) == {"at", "under", "alone"}, "it is missed", seconds=30
        )
        # Of one that nobody leads Kafka lists the last in-sync replica, too.
        assert reported(REPORTS[1]) == {"alone"}
        assert reported(REPORTS[2]) >= {"under"}
        assert reported(REPORTS[3]) >= {"at"}
    finally:
        cluster.brokers[3].start()
        cluster.wait_until_well()
    wait_until(lambda: reported(REPORTS[0]) == set(), "nobody misses it any more")


def test_settings_of_topics_are_changed_and_shown(tools: KafkaTools) -> None:
    tools("kafka-topics", "--create", "--topic", "configured", "--partitions", "1")
    of_topic = ("--entity-type", "topics", "--entity-name", "configured")
    changed = tools(
        "kafka-configs",
        *("--alter", *of_topic, "--add-config"),
        "retention.ms=1234567,cleanup.policy=[compact,delete]",
    )
    assert changed == "Completed updating config for topic configured.\n"
    shown = tools("kafka-configs", "--describe", *of_topic)
    assert shown.startswith("Dynamic configs for topic configured are:\n")
    assert "  retention.ms=1234567 sensitive=false" in shown
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=1234567" in shown
    assert "  cleanup.policy=compact,delete sensitive=false" in shown
    everything = tools("kafka-configs", "--describe", *of_topic, "--all")
    assert "  segment.bytes=1073741824 sensitive=false" in everything
    # A cluster has a default for all topics, and this is not from the topic.
    assert "  min.insync.replicas=2 sensitive=false" in everything

    tools("kafka-configs", "--alter", *of_topic, "--delete-config", "retention.ms")
    assert "retention.ms=1234567" not in tools("kafka-configs", "--describe", *of_topic)
    wrong = ("--alter", *of_topic, "--add-config", "retention.ms=long")
    refused = tools.ask("kafka-configs", *wrong)
    assert refused.code == 1
    assert "InvalidConfigurationException" in refused.err
    unknown = tools.ask("kafka-configs", "--alter", *of_topic, "--add-config", "retention.mss=1")
    assert unknown.code == 1
    assert "Unknown topic config name: retention.mss" in unknown.err
    nobody = ("--entity-type", "topics", "--entity-name", "nobody")
    missing = tools("kafka-configs", "--describe", *nobody)
    assert missing == "The topic 'nobody' doesn't exist and doesn't have dynamic config.\n"


@pytest.mark.parametrize(
    ("time", "offsets"),
    [
        ("-1", [50, 50]),
        ("latest", [50, 50]),
        ("-2", [0, 0]),
        ("earliest", [0, 0]),
        ("-3", [49, 49]),
        ("max-timestamp", [49, 49]),
        ("-4", [0, 0]),
        ("earliest-local", [0, 0]),
        # Nothing lies elsewhere, so that there is nothing to print, as in Kafka.
        ("-5", []),
        ("latest-tiered", []),
        ("-6", []),
        ("earliest-pending-upload", []),
        (str(FIRST_MS + 10), [5, 5]),
        (str(FIRST_MS + 1_000), []),
    ],
)
def test_offsets_are_found_by_time(
    filled: str, tools: KafkaTools, time: str, offsets: list[int]
) -> None:
    printed = tools("kafka-get-offsets", "--topic", filled, "--time", time)
    assert printed.splitlines() == [f"{filled}:{n}:{one}" for n, one in enumerate(offsets)]


def test_offsets_of_some_partitions_are_found(filled: str, tools: KafkaTools) -> None:
    assert tools("kafka-get-offsets", "--topic-partitions", f"{filled}:1") == f"{filled}:1:50\n"
    some = ("--topic", "fil.*", "--partitions", "0", "--exclude-internal-topics")
    assert tools("kafka-get-offsets", *some) == f"{filled}:0:50\n"
    nothing = tools.ask("kafka-get-offsets", "--topic", "nobody")
    assert nothing.code == 1
    assert "Could not match any topic-partitions" in nothing.err


def test_records_are_deleted_up_to_an_offset(filled: str, tools: KafkaTools) -> None:
    tools("kafka-topics", "--create", "--topic", "emptied", "--partitions", "2")
    for number in range(10):
        line = ("--topic", "emptied", "--reader-property", "parse.key=true")
        tools("kafka-console-producer", *line, stdin=f"{number}\tx\n")
    partitions = [
        {"topic": "emptied", "partition": 0, "offset": 1},
        {"topic": "emptied", "partition": 1, "offset": -1},
    ]
    plan = tools.written("emptied.json", json.dumps({"version": 1, "partitions": partitions}))
    done = tools("kafka-delete-records", "--offset-json-file", plan)
    assert "Records delete operation completed:" in done
    assert "partition: emptied-0\tlow_watermark: 1" in done
    starts = tools("kafka-get-offsets", "--topic", "emptied", "--time", "earliest").splitlines()
    ends = tools("kafka-get-offsets", "--topic", "emptied").splitlines()
    assert starts == ["emptied:0:1", ends[1]]
    partitions[0]["offset"] = 1_000
    plan = tools.written("too-far.json", json.dumps({"version": 1, "partitions": partitions[:1]}))
    refused = tools.run(
        "kafka-delete-records", "--bootstrap-server", tools.bootstrap, "--offset-json-file", plan
    )
    assert "partition: emptied-0\terror:" in refused.out


def test_folders_are_described(filled: str, tools: KafkaTools) -> None:
    printed = tools("kafka-log-dirs", "--describe", "--topic-list", filled)
    found = json.loads(printed.splitlines()[-1])
    assert sorted(one["broker"] for one in found["brokers"]) == [1, 2, 3]
    for broker in found["brokers"]:
        (folder,) = broker["logDirs"]
        assert folder["error"] is None
        assert {one["partition"] for one in folder["partitions"]} == {f"{filled}-0", f"{filled}-1"}
        for one in folder["partitions"]:
            assert one["size"] > 0
            assert (one["offsetLag"], one["isFuture"]) == (0, False)
    printed = tools("kafka-log-dirs", "--describe", "--broker-list", "2")
    assert [one["broker"] for one in json.loads(printed.splitlines()[-1])["brokers"]] == [2]


def test_leaders_are_elected_one_by_one_from_a_file_and_all(tools: KafkaTools) -> None:
    of_topic = ("--topic", "elected")
    tools("kafka-topics", "--create", *of_topic, "--replica-assignment", "3:1")
    preferred = ("--election-type", "preferred")
    for scope in (
        (*of_topic, "--partition", "0"),
        (
            "--path-to-json-file",
            tools.written("elected.json", '{"partitions":[{"topic":"elected","partition":0}]}'),
        ),
        ("--all-topic-partitions",),
    ):
        printed = tools.ask("kafka-leader-election", *preferred, *scope)
        assert printed.code == 0, printed.everything
        assert "Error" not in printed.out, printed.everything
    assert described(tools, *of_topic)[1]["Leader"] == "3"
    unclean = ("--election-type", "unclean", *of_topic, "--partition", "0")
    assert "Valid replica already elected" in tools("kafka-leader-election", *unclean)
