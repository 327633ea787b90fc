"""Kafka's tools for consumer groups: each verb, and what it prints. `make interop-kafka` runs it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition

from support.broker_cluster import BrokerCluster
from support.kafka_tools import KafkaTools, rows
from support.topics import Topics
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(
    "KAFKA_INTEROP" not in os.environ, reason="needs Java and Maven Central: make interop-kafka"
)

TOPIC = "grouped"
FIRST_MS = 1_700_000_000_000
STEP_MS = 60_000
PER_PARTITION = 20


@pytest.fixture(scope="module")
def topic(cluster: BrokerCluster) -> str:
    """Two partitions of 20 messages; those of a partition were written a minute apart."""
    Topics(cluster.bootstrap).create(TOPIC, partitions=2, replicas=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(PER_PARTITION):
        for partition in range(2):
            at = FIRST_MS + number * STEP_MS
            producer.produce(TOPIC, b"%d" % number, partition=partition, timestamp=at)
    assert producer.flush(30) == 0
    return TOPIC


def commit(cluster: BrokerCluster, group: str, *offsets: int) -> None:
    """Offsets of partitions 0, 1, … as a group that has no members."""
    partitions = [TopicPartition(TOPIC, number, one) for number, one in enumerate(offsets)]
    request = ConsumerGroupTopicPartitions(group, partitions)
    admin = Topics(cluster.bootstrap).admin
    admin.alter_consumer_group_offsets([request])[group].result(30)


@contextmanager
def member(cluster: BrokerCluster, group: str, protocol: str) -> Iterator[Consumer]:
    """A member that both partitions are assigned to, and that has read all and committed it."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": f"client-of-{group}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([TOPIC])
        read: list[object] = []

        def has_read_all() -> bool:
            read.extend(one for one in consumer.consume(100, timeout=0.5) if one.error() is None)
            return len(read) >= 2 * PER_PARTITION

        wait_until(has_read_all, "the member has read all", seconds=60)
        consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def offsets(table: str, column: str) -> list[str]:
    return [row[column] for row in sorted(rows(table), key=lambda row: row["PARTITION"])]


def test_groups_are_listed_by_type_and_state(
    cluster: BrokerCluster, topic: str, tools: KafkaTools
) -> None:
    commit(cluster, "listed", 1, 1)
    with member(cluster, "listed-consumer", "consumer"):
        assert {"listed", "listed-consumer"} <= set(
            tools("kafka-consumer-groups", "--list").split()
        )
        table = tools("kafka-consumer-groups", "--list", "--type", "--state")
        found = {row["GROUP"]: (row["TYPE"], row["STATE"]) for row in rows(table)}
        assert found["listed"] == ("Classic", "Empty")
        assert found["listed-consumer"] == ("Consumer", "Stable")
        some = tools("kafka-consumer-groups", "--list", "--type", "consumer", "--state", "Stable")
        assert {row["GROUP"] for row in rows(some)} == {"listed-consumer"}

        every = {row["GROUP"]: row for row in rows(tools("kafka-groups", "--list"))}
        assert every["listed-consumer"]["TYPE"] == "Consumer"
        assert every["listed-consumer"]["PROTOCOL"] == "consumer"
        of_type = tools("kafka-groups", "--list", "--group-type", "consumer")
        assert {row["GROUP"] for row in rows(of_type)} == {"listed-consumer"}
        consumers = {row["GROUP"] for row in rows(tools("kafka-groups", "--list", "--consumer"))}
        assert consumers >= {"listed", "listed-consumer"}
    for none in ("--share", "--streams"):
        assert rows(tools("kafka-groups", "--list", none)) == []
    for tool in ("kafka-share-groups", "kafka-streams-groups"):
        assert tools(tool, "--list") == ""
    regex = tools("kafka-consumer-groups", "--validate-regex", "a.*")
    assert regex == "The regular expression `a.*` is valid.\n"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_with_members_are_described(
    cluster: BrokerCluster, topic: str, tools: KafkaTools, protocol: str
) -> None:
    group = f"described-{protocol}"
    of_group = ("--describe", "--group", group)
    with member(cluster, group, protocol):
        table = tools("kafka-consumer-groups", *of_group)
        for name, want in {
            "CURRENT-OFFSET": str(PER_PARTITION),
            "LOG-END-OFFSET": str(PER_PARTITION),
            "LAG": "0",
            "CLIENT-ID": f"client-of-{group}",
        }.items():
            assert offsets(table, name) == [want, want]
        assert all(row["HOST"] == "/127.0.0.1" for row in rows(table))
        verbose = tools("kafka-consumer-groups", *of_group, "--offsets", "--verbose")
        assert "LEADER-EPOCH" in verbose

        (one,) = rows(tools("kafka-consumer-groups", *of_group, "--members"))
        assert (one["CLIENT-ID"], one["#PARTITIONS"]) == (f"client-of-{group}", "2")
        (one,) = rows(tools("kafka-consumer-groups", *of_group, "--members", "--verbose"))
        assert one["CURRENT-ASSIGNMENT"] == f"{topic}:0,1"
        state = tools("kafka-consumer-groups", *of_group, "--state")
        assert state.split()[-2:] == ["Stable", "1"]
        verbose = tools("kafka-consumer-groups", *of_group, "--state", "--verbose")
        assert verbose.split()[-1] == "1"
        assert "Stable" in verbose

        # What has members can neither be reset nor deleted.
        reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest")
        printed = tools.ask("kafka-consumer-groups", *reset, "--execute")
        assert "can only be reset if the group" in printed.out
        printed = tools.ask("kafka-consumer-groups", "--delete", "--group", group)
        assert "GroupNotEmptyException" in printed.out
        gone = ("--delete-offsets", "--group", group, "--topic", topic)
        printed = tools.ask("kafka-consumer-groups", *gone)
        assert "is actively subscribed to" in printed.out
    empty = tools.ask("kafka-consumer-groups", *of_group)
    assert f"Consumer group '{group}' has no active members." in empty.err
    assert offsets(empty.out, "LAG") == ["0", "0"]
    everything = tools.ask("kafka-consumer-groups", "--describe", "--all-groups")
    assert everything.code == 0
    assert group in everything.out
    states = tools.ask("kafka-consumer-groups", "--describe", "--all-groups", "--state")
    assert f"'{group}' has no active members" in states.err


def test_a_group_that_is_not_there_is_said(tools: KafkaTools) -> None:
    printed = tools.ask("kafka-consumer-groups", "--describe", "--group", "nobody")
    assert "GroupIdNotFoundException" in printed.everything
    printed = tools.ask("kafka-consumer-groups", "--delete", "--group", "nobody")
    assert "GroupIdNotFoundException" in printed.out


def written_at(number: int) -> str:
    at = datetime.fromtimestamp((FIRST_MS + number * STEP_MS) / 1000, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%S.000Z")


RESETS = {
    "earliest": (["--to-earliest"], [0, 0]),
    "latest": (["--to-latest"], [20, 20]),
    "current": (["--to-current"], [5, 6]),
    "offset": (["--to-offset", "7"], [7, 7]),
    "forward": (["--shift-by", "3"], [8, 9]),
    "back": (["--shift-by", "-2"], [3, 4]),
    # Not before the first offset, nor after the last.
    "far back": (["--shift-by", "-100"], [0, 0]),
    "time": (["--to-datetime", written_at(12)], [12, 12]),
    "time after all": (["--to-datetime", "2035-01-01T00:00:00.000Z"], [20, 20]),
    # All was written years ago: a day back is the end, and twenty years back the start.
    "a day": (["--by-duration", "P1D"], [20, 20]),
    "twenty years": (["--by-duration", "P7300D"], [0, 0]),
}


@pytest.mark.parametrize("scenario", RESETS)
def test_offsets_are_reset(
    cluster: BrokerCluster, topic: str, tools: KafkaTools, scenario: str
) -> None:
    arguments, want = RESETS[scenario]
    group = f"reset-{scenario.replace(' ', '-')}"
    commit(cluster, group, 5, 6)
    reset = ("--reset-offsets", "--group", group, "--topic", topic, *arguments)
    planned = tools("kafka-consumer-groups", *reset, "--dry-run")
    assert offsets(planned, "NEW-OFFSET") == [str(one) for one in want]
    before = tools.ask("kafka-consumer-groups", "--describe", "--group", group)
    assert offsets(before.out, "CURRENT-OFFSET") == ["5", "6"]
    tools("kafka-consumer-groups", *reset, "--execute")
    after = tools.ask("kafka-consumer-groups", "--describe", "--group", group)
    assert offsets(after.out, "CURRENT-OFFSET") == [str(one) for one in want]


def test_offsets_are_exported_and_reset_from_a_file(
    cluster: BrokerCluster, topic: str, tools: KafkaTools
) -> None:
    commit(cluster, "exported", 5, 6)
    of_group = ("--reset-offsets", "--group", "exported")
    exported = tools("kafka-consumer-groups", *of_group, "--all-topics", "--to-current", "--export")
    lines = sorted(line for line in exported.splitlines() if line)
    assert lines == [f"{topic},0,5", f"{topic},1,6"]
    plan = tools.written("offsets.csv", f"{topic},0,8\n{topic},1,9\n")
    tools("kafka-consumer-groups", *of_group, "--from-file", plan, "--execute")
    after = tools.ask("kafka-consumer-groups", "--describe", "--group", "exported")
    assert offsets(after.out, "CURRENT-OFFSET") == ["8", "9"]


def test_one_partition_is_reset_and_offsets_and_groups_are_deleted(
    cluster: BrokerCluster, topic: str, tools: KafkaTools
) -> None:
    for group in ("deleted-1", "deleted-2"):
        commit(cluster, group, 5, 6)
    one = ("--group", "deleted-1", "--topic", f"{topic}:1")
    tools("kafka-consumer-groups", "--reset-offsets", *one, "--to-earliest", "--execute")
    described = tools.ask("kafka-consumer-groups", "--describe", "--group", "deleted-1")
    assert offsets(described.out, "CURRENT-OFFSET") == ["5", "0"]

    deleted = tools("kafka-consumer-groups", "--delete-offsets", *one)
    assert "Request succeeded for deleting offsets from group deleted-1." in deleted
    assert "Successful" in deleted
    described = tools.ask("kafka-consumer-groups", "--describe", "--group", "deleted-1")
    assert offsets(described.out, "CURRENT-OFFSET") == ["5"]

    both = ("--group", "deleted-1", "--group", "deleted-2")
    assert "was successful" in tools("kafka-consumer-groups", "--delete", *both)
    left = tools("kafka-consumer-groups", "--list").split()
    assert not {"deleted-1", "deleted-2"} & set(left)


def test_settings_of_groups_are_changed_and_shown(tools: KafkaTools) -> None:
    of_group = ("--entity-type", "groups", "--entity-name", "configured")
    setting = "consumer.session.timeout.ms=50000"
    changed = tools("kafka-configs", "--alter", *of_group, "--add-config", setting)
    assert changed == "Completed updating config for group configured.\n"
    shown = tools("kafka-configs", "--describe", *of_group)
    assert f"  {setting} sensitive=false" in shown
    assert setting in tools("kafka-configs", "--describe", "--entity-type", "groups")
    name = setting.partition("=")[0]
    tools("kafka-configs", "--alter", *of_group, "--delete-config", name)
    assert setting not in tools("kafka-configs", "--describe", *of_group)


def test_groups_that_are_not_there_or_not_served_are_said(tools: KafkaTools) -> None:
    of_nobody = ("--describe", "--group", "nobody")
    assert "GroupIdNotFoundException" in tools.ask("kafka-share-groups", *of_nobody).everything
    streams = tools.ask("kafka-streams-groups", *of_nobody)
    assert "UnsupportedVersionException" in streams.everything
