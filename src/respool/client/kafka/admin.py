"""Administration of topics and records, and the list of brokers.

Functions on a `Cluster`; `configs.py`, `replicas.py`, `groups.py` and `transactions.py` cover the other subjects.
A request that a broker refuses raises `BrokerRefused`, with Kafka's code and the broker's message.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import refused
from respool.client.kafka.controller import REQUEST_MS, request_controller
from respool.client.kafka.errors import NoLeader
from respool.client.kafka.list_offsets import (
    answers_by_place,
    by_topic,
    leaders_of,
    refresh_quietly,
)
from respool.client.kafka.metadata import Address, Place, metadata_fields
from respool.wire.api_table import Api
from respool.wire.layout_change import LayoutChangeKind

# As the number of partitions or replicas: use the broker's default.
BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNode:
    id: int
    address: Address
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    # None if the brokers report none.
    id: str | None
    controller: int | None
    # By id.
    brokers: Mapping[int, BrokerNode]


def describe_cluster(cluster: Cluster) -> ClusterDescription:
    """
    Raises:
        BrokerUnreachable: no broker answers.
    """
    reply = cluster.request_any(Api.METADATA, metadata_fields([]))
    cluster.learn_brokers(reply)
    return ClusterDescription(
        id=cluster.id,
        controller=cluster.controller,
        brokers={
            int(one.node_id): BrokerNode(
                id=int(one.node_id), address=(str(one.host), int(one.port)), rack=one.rack
            )
            for one in reply.brokers
        },
    )


def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> None:
    """
    Raises:
        BrokerRefused, BrokerUnreachable
    """
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
    }
    fields = {"topics": [topic], "timeout": REQUEST_MS, "validate_only": validate_only}
    request_controller(
        cluster,
        Api.CREATE_TOPICS,
        fields,
        doing=f"creating topic {name!r}",
        answers_of=lambda reply: reply.topics,
    )


def delete_topic(cluster: Cluster, name: str) -> None:
    """
    Raises:
        BrokerRefused, BrokerUnreachable
    """
    request_controller(
        cluster,
        Api.DELETE_TOPICS,
        {"topic_names": [name], "timeout": REQUEST_MS},
        doing=f"deleting topic {name!r}",
        answers_of=lambda reply: reply.responses,
    )


def create_partitions(cluster: Cluster, topic: str, *, count: int) -> None:
    """Grow the topic to `count` partitions.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    topics = [{"name": topic, "count": count, "assignments": None}]
    request_controller(
        cluster,
        Api.CREATE_PARTITIONS,
        {"topics": topics, "timeout": REQUEST_MS, "validate_only": False},
        doing=f"growing topic {topic!r} to {count} partitions",
        answers_of=lambda reply: reply.results,
    )


def change_layout(
    cluster: Cluster,
    topic: str,
    kind: LayoutChangeKind,
    *,
    count: int = 0,
    validate_only: bool = False,
) -> None:
    """Shrink the topic to `count` partitions that take records, or retire its sealed ones.

    Raises:
        BrokerRefused: REASSIGNMENT_IN_PROGRESS while replicas are being aligned: ask again.
        BrokerUnreachable
    """
    topics = [{"name": topic, "count": count, "assignments": None}]
    request_controller(
        cluster,
        Api.CREATE_PARTITIONS,
        {
            "topics": topics,
            "timeout": REQUEST_MS,
            "validate_only": validate_only,
            "layout_change": str(kind),
        },
        doing=f"changing the partitions of topic {topic!r}",
        answers_of=lambda reply: reply.results,
    )


def delete_records(cluster: Cluster, before: Mapping[Place, int]) -> dict[Place, int]:
    """Delete the records before each offset (-1: before the high watermark); return each log's new start offset.

    Raises:
        UnknownTopic, UnknownPartition, BrokerRefused, BrokerUnreachable
    """
    found: dict[Place, int] = {}

    def attempt() -> None:
        left = before.keys() - found.keys()
        led = leaders_of(cluster, left)
        for broker, places in led.items():
            topics = [
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": one, "offset": before[topic, one]} for one in partitions
                    ],
                }
                for topic, partitions in by_topic(places).items()
            ]
            fields = {"topics": topics, "timeout": REQUEST_MS}
            reply = cluster.request(broker, Api.DELETE_RECORDS, fields, wait_ms=REQUEST_MS)
            for place, one in answers_by_place(reply.topics):
                if one.error_code:
                    refresh_quietly(cluster, {place[0]})
                    raise refused(f"deleting records of {place[0]}/{place[1]}", one.error_code)
                found[place] = int(one.low_watermark)
        leaderless = left - {place for places in led.values() for place in places}
        if leaderless:
            topic, partition = min(leaderless)
            refresh_quietly(cluster, {topic})
            raise NoLeader(topic, partition)

    cluster.retrying(attempt)
    return found
