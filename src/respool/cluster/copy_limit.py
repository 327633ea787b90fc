"""Limits how many partitions are copied at once, so that disk and network bandwidth remain for clients.

All brokers see the same partitions in the same order, so each broker computes which of its own copies are due.
"""

from collections import Counter
from collections.abc import Iterable

from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, TopicImage
from respool.model.ids import BrokerId, TopicPartition


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
