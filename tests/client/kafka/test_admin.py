"""What an administrator asks for, of a real broker."""

from collections.abc import Iterator
from uuid import uuid4

import pyarrow as pa
import pytest

import respool
from respool.client.kafka.admin import (
    create_partitions,
    create_topic,
    delete_records,
    delete_topic,
    describe_cluster,
)
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code
from respool.client.kafka.configs import (
    ConfigResource,
    ConfigSource,
    alter_configs,
    batch_bytes_max,
    describe_configs,
)
from respool.client.kafka.controller import request_controller
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable, UnknownTopic
from respool.client.kafka.list_offsets import (
    EARLIEST,
    MAX_TIMESTAMP,
    OffsetAt,
    OffsetRange,
    list_offsets,
    offset_ranges,
)
from respool.client.kafka.metadata import metadata_fields
from respool.client.kafka.replicas import (
    Election,
    describe_log_dirs,
    elect_leaders,
    list_reassignments,
)
from respool.wire.api_table import Api
from support.broker_process import BrokerProcess
from support.scripted_broker import HANG_UP, ScriptedBroker


@pytest.fixture(scope="module")
def cluster(broker: BrokerProcess) -> Iterator[Cluster]:
    with Cluster(broker.address, retry_ms=5_000) as made:
        yield made


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"topic-{uuid4()}"
    create_topic(cluster, name, partitions=2, configs={"retention.ms": "1000000"})
    return name


def write(broker: BrokerProcess, topic: str, count: int) -> None:
    table = pa.table({"value": ["v"] * count, "partition": [0] * count})
    respool.write_table(table, topic, bootstrap=broker.address, partition="partition")


def test_the_cluster_has_an_id_a_controller_and_brokers(
    broker: BrokerProcess, cluster: Cluster
) -> None:
    found = describe_cluster(cluster)
    (node,) = found.brokers.values()
    assert f"{node.address[0]}:{node.address[1]}" == broker.address
    assert found.id
    assert found.controller == node.id == cluster.controller
    assert cluster.id == found.id


def test_a_topic_is_created_grown_and_deleted(cluster: Cluster, topic: str) -> None:
    create_partitions(cluster, topic, count=3)
    seen = cluster.refresh_all()[topic]
    assert sorted(seen.leaders) == [0, 1, 2]
    (broker,) = cluster.brokers
    assert seen.replicas == seen.in_sync == dict.fromkeys(range(3), (broker,))
    assert not seen.is_internal
    delete_topic(cluster, topic)
    with pytest.raises(UnknownTopic):
        cluster.refresh(topic)


def test_what_a_broker_refuses_has_its_code_and_its_words(cluster: Cluster, topic: str) -> None:
    with pytest.raises(
        BrokerRefused, match=r"creating topic .* failed: TOPIC_ALREADY_EXISTS"
    ) as told:
        create_topic(cluster, topic)
    assert told.value.code == Code.topic_already_exists
    assert told.value.message
    with pytest.raises(BrokerRefused, match="INVALID_CONFIG"):
        create_topic(cluster, f"{topic}-2", configs={"retention.ms": "soon"})
    create_topic(cluster, f"{topic}-2", validate_only=True)
    with pytest.raises(UnknownTopic):
        cluster.refresh(f"{topic}-2")


def test_configs_are_set_and_returned_to_their_defaults(cluster: Cluster, topic: str) -> None:
    keys = ["retention.ms", "max.message.bytes"]
    alter_configs(cluster, ConfigResource.TOPIC, topic, values={"max.message.bytes": "2000"})
    found = describe_configs(cluster, ConfigResource.TOPIC, [topic], keys=keys)[topic]
    assert {name: one.value for name, one in found.items()} == {
        "retention.ms": "1000000",
        "max.message.bytes": "2000",
    }
    assert {one.source for one in found.values()} == {ConfigSource.TOPIC}
    assert batch_bytes_max(cluster, topic) == 2_000
    alter_configs(cluster, ConfigResource.TOPIC, topic, deleted=["retention.ms"])
    found = describe_configs(cluster, ConfigResource.TOPIC, [topic])[topic]
    assert found["retention.ms"].source != ConfigSource.TOPIC
    assert len(found) > len(keys)
    with pytest.raises(BrokerRefused, match="UNKNOWN_TOPIC_OR_PARTITION"):
        describe_configs(cluster, ConfigResource.TOPIC, ["nothing"])
    assert batch_bytes_max(cluster, "nothing") is None


def test_a_broker_tells_its_own_configs(cluster: Cluster) -> None:
    (broker,) = cluster.refresh_brokers()
    found = describe_configs(cluster, ConfigResource.BROKER, [str(broker)])
    assert found[str(broker)]["auto.create.topics.enable"].value in {"true", "false"}


def test_records_are_deleted_and_ranges_shrink(
    broker: BrokerProcess, cluster: Cluster, topic: str
) -> None:
    write(broker, topic, 10)
    places = [(topic, 0), (topic, 1)]
    assert offset_ranges(cluster, places) == {
        (topic, 0): OffsetRange(start=0, end=10),
        (topic, 1): OffsetRange(start=0, end=0),
    }
    assert delete_records(cluster, {(topic, 0): 4, (topic, 1): -1}) == {
        (topic, 0): 4,
        (topic, 1): 0,
    }
    assert offset_ranges(cluster, [(topic, 0)])[topic, 0].messages == 6
    assert list_offsets(cluster, [(topic, 0)], EARLIEST) == {
        (topic, 0): OffsetAt(offset=4, timestamp_ms=-1)
    }
    newest = list_offsets(cluster, places, MAX_TIMESTAMP)
    at = newest[topic, 0]
    assert at is not None
    assert at.timestamp_ms > 0
    with pytest.raises(BrokerRefused, match="OFFSET_OUT_OF_RANGE"):
        delete_records(cluster, {(topic, 0): 11})


def test_log_folders_tell_how_large_replicas_are(
    broker: BrokerProcess, cluster: Cluster, topic: str
) -> None:
    write(broker, topic, 10)
    (number,) = cluster.refresh_brokers()
    (folder,) = describe_log_dirs(cluster, number, [(topic, 0)])
    assert list(folder.replicas) == [(topic, 0)]
    assert folder.replicas[topic, 0].bytes > 10
    assert folder.error is None
    assert len(describe_log_dirs(cluster, number)[0].replicas) > 1


def test_leaders_and_reassignments_are_told_by_partition(cluster: Cluster, topic: str) -> None:
    assert list_reassignments(cluster) == {}
    elected = elect_leaders(cluster, [(topic, 0)], Election.PREFERRED)
    refusal = elected[topic, 0]
    assert refusal is not None
    assert refusal.code == Code.election_not_needed


def test_a_request_that_a_broker_may_have_carried_out_is_not_sent_again() -> None:
    with ScriptedBroker() as broker, Cluster(broker.address, retry_ms=2_000) as cluster:
        cluster.refresh_brokers()
        broker.metadata_script += [HANG_UP]
        with pytest.raises(BrokerUnreachable, match="closed the connection"):
            request_controller(
                cluster, Api.METADATA, metadata_fields([]), doing="it", answers_of=lambda reply: []
            )
        assert not broker.metadata_script
