"""The topics of a replay: their partitions, leaders, offset ranges and settings, as the brokers describe them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code, refused
from respool.client.kafka.configs import ConfigResource
from respool.client.kafka.list_offsets import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    Isolation,
    offsets_for,
)
from respool.replay.errors import LeaderMissing, ReplayNotFound
from respool.replay.plan import Span
from respool.wire.api_table import Api

CREATE_SECONDS = 10
# DescribeConfigs: the source of a value that was set for this topic.
_DYNAMIC_TOPIC_CONFIG = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedTopic:
    name: str
    # Partition -> the broker id of its leader; None: it has no leader.
    leaders: Mapping[int, int | None]
    # Partition -> the brokers that have a replica.
    replicas: Mapping[int, tuple[int, ...]]
    # The brokers in the same metadata.
    brokers: frozenset[int]

    @property
    def partitions(self) -> list[int]:
        return sorted(self.leaders)

    def check_leaders(self) -> None:
        """
        Raises:
            LeaderMissing: a partition has none.
        """
        for partition in self.partitions:
            if self.leaders[partition] is None:
                absent = [one for one in self.replicas[partition] if one not in self.brokers]
                raise LeaderMissing(self.name, partition, absent=absent)


def describe_topics(cluster: Cluster) -> dict[str, DescribedTopic]:
    fields = {
        "topics": None,
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    reply = cluster.retrying(lambda: cluster.request_any(Api.METADATA, fields))
    brokers = frozenset(int(one.node_id) for one in reply.brokers)
    return {
        str(topic.name): DescribedTopic(
            name=str(topic.name),
            leaders={
                int(one.partition_index): int(one.leader_id) if one.leader_id >= 0 else None
                for one in topic.partitions
            },
            replicas={
                int(one.partition_index): tuple(map(int, one.replica_nodes))
                for one in topic.partitions
            },
            brokers=brokers,
        )
        for topic in reply.topics
        if not topic.error_code
    }


def describe_topic(cluster: Cluster, name: str) -> DescribedTopic:
    """
    Raises:
        ReplayNotFound: there is no such topic; the hint names one with a similar name.
    """
    topics = describe_topics(cluster)
    if name in topics:
        return topics[name]
    similar = get_close_matches(name, topics, n=1)
    raise ReplayNotFound(
        f"there is no topic {name!r} at {cluster.bootstrap}",
        hint=f"did you mean {similar[0]}?" if similar else "see: respool topic list",
    )


def offset_ranges(
    cluster: Cluster,
    topic: str,
    partitions: Iterable[int],
    *,
    isolation: Isolation = "read_committed",
) -> dict[int, Span]:
    """Partition -> the offsets it holds now, as a reader with this isolation sees them."""
    partitions = list(partitions)
    starts = offsets_for(cluster, topic, partitions, EARLIEST, isolation=isolation)
    ends = offsets_for(cluster, topic, partitions, LATEST, isolation=isolation)
    found = {}
    for partition in partitions:
        start, end = starts[partition], ends[partition]
        assert start is not None
        assert end is not None
        found[partition] = Span(start.offset, end.offset)
    return found


def newest_ms(cluster: Cluster, topic: DescribedTopic) -> int:
    """The latest timestamp of any message; -1 when there is none."""
    found = offsets_for(cluster, topic.name, topic.partitions, MAX_TIMESTAMP)
    return max((one.timestamp_ms for one in found.values() if one is not None), default=-1)


def topic_settings(cluster: Cluster, name: str) -> dict[str, str]:
    """All settings in force for the topic."""
    return {str(one.name): one.value or "" for one in _configs(cluster, name)}


def own_settings(cluster: Cluster, name: str) -> dict[str, str]:
    """The settings that were set for this topic."""
    return {
        str(one.name): one.value or ""
        for one in _configs(cluster, name)
        if int(one.config_source) == _DYNAMIC_TOPIC_CONFIG
    }


def create_topic(
    cluster: Cluster, name: str, *, partitions: int, settings: Mapping[str, str]
) -> bool:
    """Create a topic with the brokers' default replication factor. Returns False when it exists."""
    fields = {
        "topics": [
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": -1,
                "assignments": [],
                "configs": [{"name": key, "value": value} for key, value in settings.items()],
            }
        ],
        "timeout": CREATE_SECONDS * 1000,
        "validate_only": False,
    }

    def attempt() -> bool:
        reply = cluster.request_any(Api.CREATE_TOPICS, fields)
        (answer,) = reply.topics
        if answer.error_code and answer.error_code != Code.topic_already_exists:
            raise refused(f"creating topic {name}", answer.error_code)
        return not answer.error_code

    return cluster.retrying(attempt)


def _configs(cluster: Cluster, name: str) -> Any:
    fields = {
        "resources": [
            {
                "resource_type": int(ConfigResource.TOPIC),
                "resource_name": name,
                "configuration_keys": None,
            }
        ],
        "include_synonyms": False,
        "include_documentation": False,
    }

    def attempt() -> Any:
        reply = cluster.request_any(Api.DESCRIBE_CONFIGS, fields)
        (answer,) = reply.results
        if answer.error_code:
            raise refused(f"reading the settings of topic {name}", answer.error_code)
        return answer.configs

    return cluster.retrying(attempt)
