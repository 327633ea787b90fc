"""Replicas of partitions: their sizes per log directory, leader elections, reassignments."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import refused
from respool.client.kafka.controller import REQUEST_MS, check_answer, refusal_of, request_controller
from respool.client.kafka.errors import BrokerRefused
from respool.client.kafka.list_offsets import answers_by_place, by_topic
from respool.client.kafka.metadata import Place
from respool.wire.api_table import Api


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaSize:
    bytes: int
    # How many records it lags behind the high watermark.
    lag: int
    # It is being moved to this directory.
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    path: str
    replicas: Mapping[Place, ReplicaSize]
    # Disk sizes; None if the broker does not report them.
    total_bytes: int | None
    usable_bytes: int | None
    # Why the directory is offline.
    error: BrokerRefused | None


def describe_log_dirs(
    cluster: Cluster, broker: int, places: Iterable[Place] | None = None
) -> list[LogDir]:
    """The log directories of one broker, with its replicas of these partitions, or of all.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    topics = (
        None
        if places is None
        else [{"topic": topic, "partitions": ones} for topic, ones in by_topic(places).items()]
    )
    reply = cluster.request(broker, Api.DESCRIBE_LOG_DIRS, {"topics": topics})
    check_answer(f"describing the log folders of broker {broker}", reply)
    return [
        LogDir(
            path=str(one.log_dir),
            replicas={
                (str(topic.name), int(part.partition_index)): ReplicaSize(
                    bytes=int(part.partition_size),
                    lag=int(part.offset_lag),
                    is_future=bool(part.is_future_key),
                )
                for topic in one.topics
                for part in topic.partitions
            },
            total_bytes=_known(getattr(one, "total_bytes", -1)),
            usable_bytes=_known(getattr(one, "usable_bytes", -1)),
            error=refused(f"log folder {one.log_dir}", one.error_code) if one.error_code else None,
        )
        for one in reply.results
    ]


class Election(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(
    cluster: Cluster, places: Iterable[Place] | None, election: Election
) -> dict[Place, BrokerRefused | None]:
    """Elect leaders of these partitions, or of all; the value is None for those that now have one.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    topics = (
        None
        if places is None
        else [{"topic": topic, "partitions": ones} for topic, ones in by_topic(places).items()]
    )
    fields = {"election_type": int(election), "topic_partitions": topics, "timeout": REQUEST_MS}
    reply = request_controller(
        cluster,
        Api.ELECT_LEADERS,
        fields,
        doing="electing leaders",
        answers_of=lambda reply: [reply],
    )
    return {
        (str(topic.topic), int(one.partition_id)): refusal_of(
            f"electing a leader of {topic.topic}/{one.partition_id}", one
        )
        for topic in reply.replica_election_results
        for one in topic.partition_result
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassignment:
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def list_reassignments(
    cluster: Cluster, places: Iterable[Place] | None = None
) -> dict[Place, Reassignment]:
    """The reassignments in progress, of these partitions or of all.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    topics = (
        None
        if places is None
        else [
            {"name": topic, "partition_indexes": ones} for topic, ones in by_topic(places).items()
        ]
    )
    reply = request_controller(
        cluster,
        Api.LIST_PARTITION_REASSIGNMENTS,
        {"timeout": REQUEST_MS, "topics": topics},
        doing="listing reassignments",
        answers_of=lambda reply: [reply],
    )
    return {
        place: Reassignment(
            replicas=tuple(map(int, one.replicas)),
            adding=tuple(map(int, one.adding_replicas)),
            removing=tuple(map(int, one.removing_replicas)),
        )
        for place, one in answers_by_place(reply.topics)
    }


def _known(count: int) -> int | None:
    return int(count) if count >= 0 else None
