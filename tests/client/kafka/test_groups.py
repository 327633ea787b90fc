"""A group's offsets, committed from outside: seen by other clients, and refused where the group has members."""

import time

import confluent_kafka as ck
import pytest

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import BrokerRefused
from respool.client.kafka.groups import OffsetAndMetadata, commit_offsets
from support.broker_process import BrokerProcess
from support.topics import Topics

pytestmark = pytest.mark.clients


def committed(broker: BrokerProcess, group: str, topic: str) -> list[int]:
    consumer = ck.Consumer({"bootstrap.servers": broker.address, "group.id": group})
    places = [ck.TopicPartition(topic, number) for number in (0, 1)]
    found = [one.offset for one in consumer.committed(places, timeout=10)]
    consumer.close()
    return found


def test_what_is_committed_is_what_other_clients_see(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.new("committed", partitions=2)
    with Cluster(broker.address) as cluster:
        commit_offsets(
            cluster, "outside", {(topic, 0): OffsetAndMetadata(7), (topic, 1): OffsetAndMetadata(0)}
        )
        assert committed(broker, "outside", topic) == [7, 0]
        commit_offsets(cluster, "outside", {(topic, 1): OffsetAndMetadata(3)})
        assert committed(broker, "outside", topic) == [7, 3]


def test_nothing_to_commit_asks_nobody() -> None:
    with Cluster("127.0.0.1:1") as cluster:
        commit_offsets(cluster, "outside", {})


def test_a_group_with_members_refuses_it_and_keeps_what_it_had(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("busy", partitions=2)
    member = ck.Consumer({"bootstrap.servers": broker.address, "group.id": "busy"})
    member.subscribe([topic])
    deadline = time.monotonic() + 30
    while not member.assignment() and time.monotonic() < deadline:
        member.poll(0.1)
    with Cluster(broker.address) as cluster, pytest.raises(BrokerRefused, match="group busy"):
        commit_offsets(cluster, "busy", {(topic, 0): OffsetAndMetadata(7)}, limit_ms=1000)
    member.close()
    assert committed(broker, "busy", topic) == [-1001, -1001]
