"""Limits how many partitions are copied at once, so that disk and network bandwidth remain for clients.

All brokers see the same partitions in the same order, so each broker computes which of its own copies are due, and its
equal share of a leader's replication quota (KIP-73): the leader does not have to count.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from respool.cluster.view import ClusterView
from respool.model.broker_config import BrokerConfig
from respool.model.cluster import ClusterImage, PartitionImage, TopicImage
from respool.model.config_rules import LONG_MAX
from respool.model.ids import BrokerId, TopicPartition

Turns = Mapping[BrokerId, Collection[TopicPartition]]


class CopiesInProgress:
    """Counts the copies in progress to and from each broker."""

    def __init__(
        self, view: ClusterView, partitions: Iterable[tuple[TopicImage, int, PartitionImage]] = ()
    ) -> None:
        self._view = view
        self._to: Counter[BrokerId] = Counter()
        self._from: Counter[BrokerId] = Counter()
        for _, _, image in partitions:
            self.begin(image)

    def begin(self, image: PartitionImage) -> None:
        self._count(image, 1)

    def end(self, image: PartitionImage) -> None:
        self._count(image, -1)

    def has_room_for(self, image: PartitionImage, *, limit: int) -> bool:
        """True if this partition's copies may start in addition to those in progress."""
        copiers, leader = copying_replicas(image, self._view), image.serving_leader
        return all(self._to[one] < limit for one in copiers) and (
            leader is None or self._from[leader] < limit
        )

    def _count(self, image: PartitionImage, by: int) -> None:
        copiers, leader = copying_replicas(image, self._view), image.serving_leader
        if leader is None or not copiers:
            return
        self._from[leader] += by
        for one in copiers:
            self._to[one] += by


def copying_replicas(image: PartitionImage, view: ClusterView) -> tuple[BrokerId, ...]:
    """The new replicas that are live and have not caught up yet.

    A broker that is down, or has a failed log, does not count towards the limit.
    """
    return tuple(
        one
        for one in image.adding
        if one not in image.isr and one not in image.offline and view.can_join(one)
    )


def due_copies(view: ClusterView) -> dict[BrokerId, tuple[TopicPartition, ...]]:
    """The partitions that each broker should copy now, within the limit."""
    limit = view.settings.copies_per_broker_max
    count = CopiesInProgress(view)
    turns: dict[BrokerId, list[TopicPartition]] = {}
    for topic, number, image in view.partitions():
        # Almost all of the partitions, which may be thousands, are skipped here.
        if not image.adding or image.serving_leader is None:
            continue
        if not count.has_room_for(image, limit=limit):
            continue
        count.begin(image)
        for one in copying_replicas(image, view):
            turns.setdefault(one, []).append(TopicPartition(topic.name, number))
    return {one: tuple(partitions) for one, partitions in turns.items()}


def limited_leaders(image: ClusterImage) -> dict[BrokerId, int]:
    """The brokers with a leader quota in bytes per second; empty if no topic has throttled replicas."""
    if not any(one.config.leader_replication_throttled_replicas for one in image.topics.values()):
        # A rate that was left set must not slow down followers of topics without throttled replicas.
        return {}
    rates = {
        one: BrokerConfig.of(one, image.broker_overrides).leader_replication_throttled_rate
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
