"""Kafka's tool for transactions: each verb, and what it prints. `make interop-kafka` runs it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from support.broker_cluster import BrokerCluster
from support.kafka_tools import KafkaTools, rows
from support.topics import Topics
from support.waiting import wait_until

pytestmark = pytest.mark.skipif(
    "KAFKA_INTEROP" not in os.environ, reason="needs Java and Maven Central: make interop-kafka"
)

TOPIC = "transacted"


@pytest.fixture(scope="module")
def topic(cluster: BrokerCluster) -> str:
    Topics(cluster.bootstrap).create(TOPIC, partitions=1, replicas=3)
    cluster.wait_until_known(TOPIC)
    return TOPIC


@contextmanager
def open_transaction(cluster: BrokerCluster, name: str) -> Iterator[Producer]:
    """It has one message in the topic; who opened it ends it, unless somebody else did."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(TOPIC, b"requested")
    assert producer.flush(30) == 0
    yield producer
    # Its broker-side end is what the test is about.
    producer.purge()


def state(tools: KafkaTools, name: str) -> str:
    (row,) = rows(tools("kafka-transactions", "describe", "--transactional-id", name))
    return row["TransactionState"]


def test_open_transactions_are_listed_and_described(
    cluster: BrokerCluster, topic: str, tools: KafkaTools
) -> None:
    with open_transaction(cluster, "seen") as producer:
        listed = {row["TransactionalId"]: row for row in rows(tools("kafka-transactions", "list"))}
        assert listed["seen"]["TransactionState"] == "Ongoing"
        pattern = ("list", "--transactional-id-pattern", "see.")
        assert [row["TransactionalId"] for row in rows(tools("kafka-transactions", *pattern))] == [
            "seen"
        ]
        longer = ("list", "--duration-filter", "3600000")
        assert rows(tools("kafka-transactions", *longer)) == []

        described = ("describe", "--transactional-id", "seen")
        (row,) = rows(tools("kafka-transactions", *described))
        assert row["CoordinatorId"] == listed["seen"]["Coordinator"]
        assert row["ProducerId"] == listed["seen"]["ProducerId"]
        assert row["TransactionState"] == "Ongoing"
        assert row["TransactionTimeoutMs"] == "60000"
        assert int(row["TransactionDurationMs"]) >= 0
        assert row["TopicPartitions"] == f"{topic}-0"

        of_partition = ("--topic", topic, "--partition", "0")
        producers = rows(tools("kafka-transactions", "describe-producers", *of_partition))
        (one,) = [one for one in producers if one["ProducerId"] == row["ProducerId"]]
        assert int(one["CurrentTransactionStartOffset"]) >= 0
        assert one["LastSequence"] == "0"
        # Not before the transaction began.
        assert int(one["LastTimestamp"]) >= int(row["CurrentTransactionStartTimeMs"]) - 1_000
        leader = tools("kafka-topics", "--describe", "--topic", topic).split("Leader: ")[1].split()
        at_leader = ("--broker-id", leader[0])
        there = rows(tools("kafka-transactions", "describe-producers", *of_partition, *at_leader))
        assert there == producers
        producer.commit_transaction(30)
    wait_until(lambda: state(tools, "seen") == "CompleteCommit", "its markers are written")
    producers = rows(tools("kafka-transactions", "describe-producers", *of_partition))
    assert {one["CurrentTransactionStartOffset"] for one in producers} == {"None"}


def test_nothing_hangs_while_its_coordinator_knows_it(
    cluster: BrokerCluster, topic: str, tools: KafkaTools
) -> None:
    with open_transaction(cluster, "known") as producer:
        now = ("--max-transaction-timeout", "0")
        of_topic = ("find-hanging", "--topic", topic, *now)
        assert rows(tools("kafka-transactions", *of_topic)) == []
        assert rows(tools("kafka-transactions", *of_topic, "--partition", "0")) == []
        for broker in cluster.brokers:
            hanging = tools("kafka-transactions", "find-hanging", "--broker-id", str(broker), *now)
            assert rows(hanging) == []
        producer.abort_transaction(30)


def test_a_transaction_is_aborted_where_it_began(
    cluster: BrokerCluster, topic: str, tools: KafkaTools
) -> None:
    of_partition = ("--topic", topic, "--partition", "0")
    with open_transaction(cluster, "aborted"):
        (pid,) = (
            row["ProducerId"]
            for row in rows(tools("kafka-transactions", "list"))
            if row["TransactionalId"] == "aborted"
        )

        def start() -> str:
            found = rows(tools("kafka-transactions", "describe-producers", *of_partition))
            (one,) = [one for one in found if one["ProducerId"] == pid]
            return one["CurrentTransactionStartOffset"]

        tools("kafka-transactions", "abort", *of_partition, "--start-offset", start())
        assert start() == "None"
    nothing = tools.ask("kafka-transactions", "abort", *of_partition, "--start-offset", "0")
    assert nothing.code == 1
    assert "Could not find any open transactions starting at offset 0" in nothing.err


def test_a_transaction_is_terminated_by_its_name(
    cluster: BrokerCluster, topic: str, tools: KafkaTools
) -> None:
    with open_transaction(cluster, "ended"):
        tools("kafka-transactions", "forceTerminateTransaction", "--transactionalId", "ended")
        wait_until(lambda: state(tools, "ended") in {"CompleteAbort", "Empty"}, "it has ended")
    nobody = tools.ask("kafka-transactions", "describe", "--transactional-id", "nobody")
    assert nobody.code == 1
    assert "the ID could not be found" in nobody.err
