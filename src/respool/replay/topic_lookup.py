"""The topics of a replay as brokers describe them: leaders, offsets and configs."""

from collections.abc import Iterable
from difflib import get_close_matches

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.configs import ConfigResource, ConfigSetting, describe_configs
from respool.client.kafka.list_offsets import MAX_TIMESTAMP, Isolation, list_offsets, offset_ranges
from respool.client.kafka.metadata import TopicMetadata
from respool.replay.copy_plan import Span
from respool.replay.errors import LeaderMissing, ReplayNotFound


def describe_topic(cluster: Cluster, name: str) -> TopicMetadata:
    """
    Raises:
        ReplayNotFound: there is no such topic; the hint names one with a similar name.
    """
    topics = cluster.retrying(cluster.refresh_all)
    if name not in topics:
        # A view is found by its name.
        topics |= cluster.retrying(lambda: cluster.refresh_named([name]))
    if name in topics:
        return topics[name]
    similar = get_close_matches(name, topics, n=1)
    raise ReplayNotFound(
        f"there is no topic {name!r} at {cluster.bootstrap}",
        hint=f"did you mean {similar[0]}?" if similar else "see: respool topic list",
    )


def check_leaders(cluster: Cluster, topic: TopicMetadata) -> None:
    """
    Raises:
        LeaderMissing: a partition has no leader.
    """
    for partition, leader in sorted(topic.leaders.items()):
        if leader is None:
            absent = [
                one for one in topic.replicas.get(partition, ()) if one not in cluster.brokers
            ]
            raise LeaderMissing(topic.name, partition, absent=absent)


def held_spans(
    cluster: Cluster,
    topic: str,
    partitions: Iterable[int],
    *,
    isolation: Isolation = "read_committed",
) -> dict[int, Span]:
    """For each partition, the offsets that a reader with this isolation level can read now."""
    places = [(topic, partition) for partition in partitions]
    held = offset_ranges(cluster, places, isolation=isolation)
    return {partition: Span(one.start, one.end) for (_, partition), one in held.items()}


def newest_ms(cluster: Cluster, topic: TopicMetadata) -> int:
    """The latest timestamp of any message; -1 if there is none."""
    found = list_offsets(cluster, [(topic.name, one) for one in topic.leaders], MAX_TIMESTAMP)
    return max((one.timestamp_ms for one in found.values() if one is not None), default=-1)


def topic_configs(cluster: Cluster, name: str) -> dict[str, ConfigSetting]:
    return cluster.retrying(lambda: describe_configs(cluster, ConfigResource.TOPIC, [name]))[name]
