"""Divides a leader's replication quota (KIP-73) among the brokers that catch up from it.

Each follower gets an equal share. All brokers see the same partitions, so each computes its own share, and the leader
does not have to count.
"""

from collections.abc import Collection, Iterator, Mapping

from respool.model.broker_config import BrokerConfig, overrides_for
from respool.model.cluster import ClusterImage, PartitionImage
from respool.model.config_rules import LONG_MAX
from respool.model.ids import BrokerId, TopicPartition

Turns = Mapping[BrokerId, Collection[TopicPartition]]


def limited_leaders(image: ClusterImage) -> dict[BrokerId, int]:
    """The brokers with a leader quota in bytes per second; empty if no topic has throttled replicas."""
    if not any(one.config.leader_replication_throttled_replicas for one in image.topics.values()):
        # A rate that was left set must not slow down followers of topics without throttled replicas.
        return {}
    rates = {
        one: BrokerConfig.parse(
            overrides_for(one, image.broker_overrides)
        ).leader_replication_throttled_rate
        for one in image.brokers
    }
    return {one: rate for one, rate in rates.items() if rate < LONG_MAX}


def leader_shares(
    image: ClusterImage, limited: Mapping[BrokerId, int], turns: Turns
) -> dict[BrokerId, float]:
    """Bytes per second that one broker may fetch from each leader with a quota.

    `turns` are the copies that are due; a new replica whose copy is not due yet fetches nothing.
    """
    candidates: dict[BrokerId, set[BrokerId]] = {one: set() for one in limited}
    for of, partition in _throttled(image, limited) if limited else ():
        assert partition.leader is not None
        candidates[partition.leader].update(_takers(of, partition, image, turns))
    return {one: rate / max(1, len(candidates[one])) for one, rate in limited.items()}


def _throttled(
    image: ClusterImage, limited: Collection[BrokerId]
) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    """The throttled partitions that one of these brokers leads."""
    for topic in image.topics.values():
        throttled = topic.config.leader_replication_throttled_replicas
        if not throttled:
            continue
        for number, one in enumerate(topic.partitions):
            leader = one.leader
            if leader is not None and leader in limited and throttled.has(number, leader):
                yield TopicPartition(topic.name, number), one


def _takers(
    of: TopicPartition, partition: PartitionImage, image: ClusterImage, turns: Turns
) -> Iterator[BrokerId]:
    for one in partition.replicas:
        if one in partition.isr or one not in image.brokers:
            continue
        if one not in partition.adding or of in turns.get(one, ()):
            yield one
