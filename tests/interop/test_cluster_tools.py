"""Kafka's tools for brokers and the cluster: each verb, and what it prints. `make interop-kafka` runs it."""

import os
import re

import pytest

from support.broker_cluster import BrokerCluster
from support.kafka_tools import KafkaTools, rows

pytestmark = pytest.mark.skipif(
    "KAFKA_INTEROP" not in os.environ, reason="needs Java and Maven Central: make interop-kafka"
)


def test_the_versions_of_all_brokers_are_listed(cluster: BrokerCluster, tools: KafkaTools) -> None:
    printed = tools("kafka-broker-api-versions")
    for number in cluster.brokers:
        assert f"{cluster.address_of(number)} (id: {number} rack: null" in printed
    assert "ERROR" not in printed
    for api in ("Produce(0)", "Fetch(1)", "ListOffsets(2)", "Metadata(3)", "InitProducerId(22)"):
        assert len(re.findall(rf"{re.escape(api)}: \d+ to \d+ \[usable: \d+\]", printed)) == 3


def test_the_cluster_and_its_brokers_are_named(cluster: BrokerCluster, tools: KafkaTools) -> None:
    printed = tools("kafka-cluster", "cluster-id")
    assert re.fullmatch(r"Cluster ID: [\w-]{22}\n", printed)
    for also in ((), ("--include-fenced-brokers",)):
        found = rows(tools("kafka-cluster", "list-endpoints", *also))
        assert [(row["ID"], f"{row['HOST']}:{row['PORT']}") for row in found] == [
            (str(number), cluster.address_of(number)) for number in cluster.brokers
        ]
        # An empty rack has no word of its own in the row.
        assert all("unfenced" in row.values() for row in found)


def test_a_broker_that_is_there_is_not_unregistered(tools: KafkaTools) -> None:
    printed = tools.ask("kafka-cluster", "unregister", "--id", "3")
    assert "is no longer registered" not in printed.out
    endpoints = rows(tools("kafka-cluster", "list-endpoints"))
    assert [row["ID"] for row in endpoints] == ["1", "2", "3"]


def test_features_are_described(tools: KafkaTools) -> None:
    printed = tools("kafka-features", "describe")
    found = {
        line.split()[1]: line.split("FinalizedVersionLevel: ")[1].split()[0]
        for line in printed.splitlines()
    }
    assert found["transaction.version"] == "2"
    assert found["metadata.version"].startswith("4.")
    of_one = tools("kafka-features", "describe", "--node-id", "1")
    assert "transaction.version" in of_one


def test_a_feature_that_is_not_there_is_not_upgraded(tools: KafkaTools) -> None:
    printed = tools.ask("kafka-features", "upgrade", "--feature", "streams.version=1")
    assert printed.code == 1, printed.everything
    assert "UNKNOWN_SERVER_ERROR" not in printed.everything
    assert "Could not upgrade streams.version" in printed.out


def test_the_controller_is_shown_as_the_leader_of_a_quorum(
    cluster: BrokerCluster, tools: KafkaTools
) -> None:
    """The metadata is in etcd, and each broker that runs may be elected controller."""
    printed = tools("kafka-metadata-quorum", "describe", "--status")
    leader = re.search(r"LeaderId:\s+(\d+)", printed)
    assert leader
    assert int(leader[1]) in cluster.brokers
    voters = next(line for line in printed.splitlines() if line.startswith("CurrentVoters:"))
    assert re.findall(r'"id": (\d+)', voters) == ["1", "2", "3"]
    replicas = rows(tools("kafka-metadata-quorum", "describe", "--replication"))
    assert {row["NodeId"]: row["Status"] for row in replicas} == {
        number: "Leader" if number == leader[1] else "Follower" for number in ("1", "2", "3")
    }


def test_access_lists_are_said_to_be_off(tools: KafkaTools) -> None:
    added = ("--add", "--allow-principal", "User:etl", "--producer", "--topic", "rides")
    for verb in (("--list",), added):
        printed = tools.ask("kafka-acls", *verb)
        assert printed.code == 1
        assert "SecurityDisabledException" in printed.out
    removed = ("--remove", "--force", "--topic", "rides")
    assert "SecurityDisabledException" in tools.ask("kafka-acls", *removed).out


def test_delegation_tokens_are_said_to_be_off(tools: KafkaTools) -> None:
    config = ("--command-config", tools.written("none.properties", ""))
    for verb in (
        ("--create", "--max-life-time-period", "-1"),
        ("--describe",),
        ("--renew", "--renew-time-period", "-1", "--hmac", "AAAA"),
        ("--expire", "--expiry-time-period", "-1", "--hmac", "AAAA"),
    ):
        printed = tools.ask("kafka-delegation-tokens", *verb, *config)
        assert printed.code == 1, printed.everything
        # Kafka's words for a listener that asks nobody who they are, or for tokens that are off.
        assert re.search(r"DelegationTokenDisabled|UnsupportedByAuthentication", printed.everything)


def test_client_metrics_are_none(tools: KafkaTools) -> None:
    assert tools("kafka-client-metrics", "--list").strip() == ""
    assert tools("kafka-client-metrics", "--describe") == ""
    named = tools("kafka-client-metrics", "--describe", "--name", "nobody")
    assert "doesn't exist" in named
    setting = ("--alter", "--name", "mine", "--metrics", "org.apache.kafka.", "--interval", "1000")
    refused = tools.ask("kafka-client-metrics", *setting)
    assert refused.code == 1
    assert "Error while executing client metrics command" in refused.out
    assert "UnknownServerException" not in refused.everything


@pytest.mark.parametrize("entity", ["users", "clients", "ips"])
def test_quotas_are_none_until_they_are_set_and_again_after_they_are_deleted(
    tools: KafkaTools, entity: str
) -> None:
    of_all = ("--describe", "--entity-type", entity)
    assert tools("kafka-configs", *of_all) == ""
    assert tools("kafka-configs", *of_all, "--entity-default") == ""
    name = "127.0.0.1" if entity == "ips" else "etl"
    setting = "connection_creation_rate" if entity == "ips" else "producer_byte_rate"
    kind = entity.removesuffix("s")
    of_one = ("--entity-type", entity, "--entity-name", name)
    changed = tools("kafka-configs", "--alter", *of_one, "--add-config", f"{setting}=1000000")
    assert changed == f"Completed updating config for {kind} {name}.\n"
    shown = tools("kafka-configs", "--describe", *of_one)
    assert f"{name}" in shown
    assert f"{setting}=1000000.0" in shown
    tools("kafka-configs", "--alter", *of_one, "--delete-config", setting)
    assert tools("kafka-configs", *of_all) == ""


def test_settings_of_a_broker_are_shown(tools: KafkaTools) -> None:
    of_one = ("--entity-type", "brokers", "--entity-name", "1")
    printed = tools("kafka-configs", "--describe", *of_one, "--all")
    assert printed.startswith("All configs for broker 1 are:\n")
    names = [line.split("=")[0].strip() for line in printed.splitlines()[1:]]
    assert names == sorted(names)
    assert {"log.retention.ms", "message.max.bytes", "transaction.max.timeout.ms"} <= set(names)
    assert "  broker.id=1 " in printed or "  node.id=1 " in printed
    every = tools("kafka-configs", "--describe", "--entity-type", "brokers")
    for number in (1, 2, 3):
        assert f"Dynamic configs for broker {number} are:" in every
    assert "Default configs for brokers in the cluster are:" in every


@pytest.mark.parametrize(
    ("entity", "said", "source"),
    [
        (
            ("--entity-name", "2"),
            "Completed updating config for broker 2.\n",
            "DYNAMIC_BROKER_CONFIG",
        ),
        (
            ("--entity-default",),
            "Completed updating default config for brokers in the cluster.\n",
            "DYNAMIC_DEFAULT_BROKER_CONFIG",
        ),
    ],
    ids=["of one", "of all"],
)
def test_topic_defaults_of_brokers_are_changed_while_they_run(
    tools: KafkaTools, entity: tuple[str, ...], said: str, source: str
) -> None:
    brokers = ("--entity-type", "brokers", *entity)
    changed = tools("kafka-configs", "--alter", *brokers, "--add-config", "log.retention.ms=777777")
    try:
        assert changed == said
        shown = tools("kafka-configs", "--describe", *brokers)
        assert "  log.retention.ms=777777 sensitive=false" in shown
        assert f"{source}:log.retention.ms=777777" in shown
    finally:
        tools("kafka-configs", "--alter", *brokers, "--delete-config", "log.retention.ms")
    assert "777777" not in tools("kafka-configs", "--describe", *brokers)
    refused = tools.ask("kafka-configs", "--alter", *brokers, "--add-config", "no.such.setting=1")
    assert refused.code == 1
    assert "UnknownServerException" not in refused.everything


def test_a_setting_for_all_brokers_is_the_default_of_topics(tools: KafkaTools) -> None:
    everybody = ("--entity-type", "brokers", "--entity-default")
    tools("kafka-configs", "--alter", *everybody, "--add-config", "message.max.bytes=2222222")
    try:
        tools("kafka-topics", "--create", "--topic", "by-default", "--partitions", "1")
        of_topic = ("--entity-type", "topics", "--entity-name", "by-default")
        shown = tools("kafka-configs", "--describe", *of_topic, "--all")
        assert "  max.message.bytes=2222222 sensitive=false" in shown
        assert "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=2222222" in shown
    finally:
        tools("kafka-configs", "--alter", *everybody, "--delete-config", "message.max.bytes")


def test_levels_of_loggers_are_shown_and_changed(tools: KafkaTools) -> None:
    of_one = ("--entity-type", "broker-loggers", "--entity-name", "1")
    found = dict(
        re.findall(r"^  (\S+)=(\w+) ", tools("kafka-configs", "--describe", *of_one), re.MULTILINE)
    )
    assert found
    # The root logger cannot do without a level, here as in Kafka.
    name = max(found.keys() - {"root"})
    tools("kafka-configs", "--alter", *of_one, "--add-config", f"{name}=ERROR")
    assert f"  {name}=ERROR " in tools("kafka-configs", "--describe", *of_one)
    tools("kafka-configs", "--alter", *of_one, "--delete-config", name)
    assert f"  {name}={found[name]} " in tools("kafka-configs", "--describe", *of_one)
    wrong = tools.ask("kafka-configs", "--alter", *of_one, "--add-config", "nobody=INFO")
    assert wrong.code == 1
    assert "Invalid broker logger(s): nobody" in wrong.err
