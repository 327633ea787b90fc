"""Groups of either protocol: described with their members, deleted, emptied."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import confluent_kafka as ck
import pytest

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code
from respool.client.kafka.errors import BrokerRefused
from respool.client.kafka.groups import (
    CLASSIC,
    CONSUMER,
    DEAD,
    OffsetAndMetadata,
    assigned_partitions,
    commit_offsets,
    delete_group,
    describe_group,
    fetch_offsets,
    leave_requests,
    list_groups,
)
from support.broker_process import BrokerProcess
from support.topics import Topics
from support.waiting import wait_until

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def cluster(broker: BrokerProcess) -> Iterator[Cluster]:
    with Cluster(broker.address, retry_ms=5_000) as made:
        yield made


@contextmanager
def consuming(broker: BrokerProcess, group: str, topic: str, protocol: str) -> Iterator[None]:
    consumer = ck.Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "reader",
        }
    )
    consumer.subscribe([topic])

    def has_all() -> bool:
        consumer.poll(0.1)
        return len(consumer.assignment()) == 2

    wait_until(has_all, "both partitions assigned")
    yield
    consumer.close()


@pytest.mark.parametrize("protocol", [CLASSIC, CONSUMER])
def test_a_group_is_described_and_deleted(
    broker: BrokerProcess, cluster: Cluster, topics: Topics, protocol: str
) -> None:
    topic, group = topics.new("described", partitions=2), f"group-{uuid4()}"
    with consuming(broker, group, topic, protocol):
        found = describe_group(cluster, group)
        assert (found.name, found.state, found.type) == (group, "Stable", protocol)
        assert found.assignor
        (member,) = found.members
        assert member.client_id == "reader"
        assert member.host == "127.0.0.1"
        assert member.instance_id is None
        assert member.partitions == ((topic, 0), (topic, 1))
        host, port = found.coordinator
        assert f"{host}:{port}" == broker.address
        assert found.name in {one.name for one in list_groups(cluster).groups}
        with pytest.raises(BrokerRefused, match="NON_EMPTY_GROUP"):
            delete_group(cluster, group)
    commit_offsets(cluster, group, {(topic, 1): OffsetAndMetadata(2)})
    assert fetch_offsets(cluster, group) == {(topic, 1): OffsetAndMetadata(2)}
    delete_group(cluster, group)
    assert fetch_offsets(cluster, group) == {}


def test_a_group_that_does_not_exist_is_dead_and_cannot_be_deleted(cluster: Cluster) -> None:
    found = describe_group(cluster, "nobody")
    assert (found.state, found.members) == (DEAD, ())
    with pytest.raises(BrokerRefused) as told:
        delete_group(cluster, "nobody")
    assert told.value.code == Code.group_id_not_found


def test_nobody_leaves_an_empty_group() -> None:
    assert leave_requests("group", [], protocol=CLASSIC, reason="") == []


@pytest.mark.parametrize(
    "damaged", [b"", b"\0\1", b"\0\0\0\0\0\1\0\4ab", b"\0\0\0\0\0\1\0\1\xff\0\0\0\0"]
)
def test_an_assignment_that_is_no_consumers_names_no_partition(damaged: bytes) -> None:
    assert assigned_partitions(damaged) == ()
