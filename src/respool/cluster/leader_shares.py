"""How much each broker may take from leaders that give only so many bytes a second to those who catch up (KIP-73).

What a leader gives is shared out evenly. Everybody sees the same partitions, so each knows its part by itself, and no
leader has to count.
"""

from collections.abc import Collection, Iterator, Mapping

from respool.model.broker_config import BrokerConfig, overrides_for
from respool.model.cluster import ClusterImage, PartitionImage
from respool.model.config_rules import LONG_MAX
from respool.model.ids import BrokerId, TopicPartition

Turns = Mapping[BrokerId, Collection[TopicPartition]]


def limited_leaders(image: ClusterImage) -> dict[BrokerId, int]:
    """Brokers that give only so many bytes a second, where there is a topic of which they do."""
    if not any(one.config.leader_replication_throttled_replicas for one in image.topics.values()):
        # A rate that was left behind must not cost those who only catch up.
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
    """Bytes per second that one broker may take from each of the leaders that are limited.

    `turns` are the copies that are due: a new replica whose turn has not come takes nothing.
    """
    candidates: dict[BrokerId, set[BrokerId]] = {one: set() for one in limited}
    for of, partition in _throttled(image, limited) if limited else ():
        assert partition.leader is not None
        candidates[partition.leader].update(_takers(of, partition, image, turns))
    return {one: rate / max(1, len(candidates[one])) for one, rate in limited.items()}


def _throttled(
    image: ClusterImage, limited: Collection[BrokerId]
) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    """Partitions that are led by one of these, who gives no more than it may."""
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
