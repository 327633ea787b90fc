"""What Kafdrop and AKHQ ask through an AdminClient, and Go's tools through franz-go. `make interop-kafka` runs it."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from bench.versus.java import java_command
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition

from support.broker_cluster import BrokerCluster
from support.java_process import OPTIONS, PROGRAMS, interop_jars
from support.topics import Topics

pytestmark = pytest.mark.skipif(
    "KAFKA_INTEROP" not in os.environ, reason="needs Java and Maven Central: make interop-kafka"
)

TOPIC = "administered"
GROUP = "administrators"
MESSAGES = 10
READ = 4
SECONDS_MAX = 180.0
GO_PROGRAM = PROGRAMS.with_name("go")


@pytest.fixture(scope="module")
def asked(cluster: BrokerCluster) -> BrokerCluster:
    """With a topic, a group that has read a part of it, and a transaction that is open."""
    topics = Topics(cluster.bootstrap)
    topics.create(TOPIC, partitions=2, replicas=3, retention_ms=1234567)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(MESSAGES):
        producer.produce(TOPIC, b"%d" % number, partition=number % 2)
    producer.commit_transaction(30)
    request = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(TOPIC, 0, READ)])
    topics.admin.alter_consumer_group_offsets([request])[GROUP].result(30)
    return cluster


def told(command: list[str], folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def test_pages_for_kafka_are_filled(asked: BrokerCluster, tmp_path: Path) -> None:
    program = (str(PROGRAMS / "AdminCalls.java"), asked.bootstrap, TOPIC, GROUP)
    answers = told(java_command(interop_jars(), *program, options=OPTIONS), tmp_path)

    assert answers["nodes"] == [1, 2, 3]
    assert answers["controller"] in answers["nodes"]
    assert len(answers["clusterId"]) == 22
    assert set(answers["brokerConfigs"]) == {"1", "2", "3"}
    assert all("log.retention.ms" in names for names in answers["brokerConfigs"].values())
    for sizes in answers["logDirs"].values():
        assert sizes[f"{TOPIC}-0"] > 0
    assert answers["acls"] == "SecurityDisabledException"
    assert answers["topics"][TOPIC] is False
    assert answers["topics"]["__consumer_offsets"] is True
    assert answers["partitions"] == [[0, 3, 3], [1, 3, 3]]
    assert answers["topicConfigs"]["retention.ms"] == ["1234567", "DYNAMIC_TOPIC_CONFIG"]
    assert answers["groups"][GROUP] == "Empty"
    state, members, coordinator = answers["group"]
    assert (state, members) == ("Empty", 0)
    assert coordinator in answers["nodes"]
    assert answers["groupOffsets"] == {f"{TOPIC}-0": READ}
    assert answers["createdTwice"] == "TopicExistsException"
    assert answers["alteredTo"] == "1234567"
    assert answers["recordsDeleted"] == 0
    done = ("created", "grown", "altered", "committed", "offsetsDeleted", "groupDeleted", "deleted")
    assert {name: answers[name] for name in done} == dict.fromkeys(done)
    assert answers["begins"] == [0]
    # A marker for each partition is behind the messages.
    assert answers["ends"] == MESSAGES + 2


@pytest.fixture(scope="module")
def kadm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Go program, compiled."""
    if shutil.which("go") is None:
        pytest.skip("there is no go on the PATH; franz-go's calls need it")
    program = tmp_path_factory.mktemp("go") / "kadm-calls"
    built = subprocess.run(
        ["go", "build", "-o", str(program), "."],
        cwd=GO_PROGRAM,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return str(program)


def test_tools_in_go_guess_a_version_and_are_answered(
    asked: BrokerCluster, kadm: str, tmp_path: Path
) -> None:
    answers = told([kadm, asked.bootstrap, TOPIC, GROUP], tmp_path)

    (guess,) = answers["versionGuesses"]
    assert not guess.startswith("not even"), guess
    # "v4.1", "at least v4.2", "between v3.9 and v4.0": the first of them.
    assert int(guess.split("v")[1].split(".")[0]) >= 3, guess
    assert answers["brokers"] == [1, 2, 3]
    assert answers["controllerIsABroker"] is True
    assert len(answers["clusterId"]) == 22
    assert "log.retention.ms" in answers["brokerConfigs"]
    assert TOPIC in answers["configResources"]
    assert answers["logDirs"] == 3
    assert {TOPIC, "__consumer_offsets"} <= set(answers["topics"])
    assert answers["partitions"] == 2
    assert answers["topicConfigs"]["retention.ms"] == "1234567"
    assert answers["created"] == 1
    assert answers["createdTwice"].startswith("TOPIC_ALREADY_EXISTS")
    assert answers["altered"] == answers["alteredState"] == 1
    done = ("grown", "deleted", "committed", "offsetsDeleted", "groupDeleted")
    assert {name: answers[name] for name in done} == dict.fromkeys(done, "")
    assert answers["end"] == answers["committedEnd"] == MESSAGES + 2
    assert answers["start"] == answers["since"] == answers["localStart"] == 0
    assert answers["newest"] == 2
    assert GROUP in answers["groups"]
    assert answers["groupState"] == "Empty"
    # Of a partition that the group has not read, all is lag.
    assert answers["lag"] == MESSAGES + 2 - READ
    assert answers["fetched"] == answers["coordinators"] == 1
    assert "open" in answers["transactions"]
    assert answers["transactionStates"]["open"] == "CompleteCommit"
    assert answers["producers"] == 1
    assert answers["acls"].startswith("SECURITY_DISABLED")
    assert answers["quotas"] == answers["scrams"] == 0
