"""A draft of changes to partitions: decided one after the other, written once per partition."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from respool.cluster import keys
from respool.cluster.guarded_write import GuardedWrite, KeyChange, in_writes
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, TopicImage
from respool.model.errors import RequestError
from respool.model.ids import LeaderEpoch, TopicPartition


@dataclass(slots=True, kw_only=True)
class _Changed:
    topic: TopicImage
    image: PartitionImage
    whys: list[str]


class PartitionDraft:
    """The view's partitions, with the changes decided so far."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        self._changed: dict[TopicPartition, _Changed] = {}
        # The number of changes so far.
        self.count = 0

    def partitions(self) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        for topic, number, image in self.view.partitions():
            changed = self._changed.get(TopicPartition(topic.name, number))
            yield topic, number, image if changed is None else changed.image

    def image(self, topic: TopicImage, number: int) -> PartitionImage:
        """The partition with the changes decided so far."""
        changed = self._changed.get(TopicPartition(topic.name, number))
        return topic.partitions[number] if changed is None else changed.image

    def change(self, topic: TopicImage, number: int, image: PartitionImage, why: str) -> None:
        """Change the partition to this image. Sets the leader epoch, which grows with every election.

        A partition that loses a replica also gets a new epoch, so that late requests of that replica are rejected.
        """
        before = topic.partitions[number]
        is_elected = image.leader != before.leader or not set(before.replicas) <= set(
            image.replicas
        )
        image = replace(
            image,
            leader_epoch=LeaderEpoch(before.leader_epoch + is_elected),
            revision=before.revision,
        )
        _check(image)
        changed = self._changed.setdefault(
            TopicPartition(topic.name, number), _Changed(topic=topic, image=image, whys=[])
        )
        changed.image = image
        changed.whys.append(why)
        self.count += 1

    def writes(self) -> list[GuardedWrite]:
        """The writes, new leaders first, because clients wait for these."""
        in_order = sorted(
            self._changed.items(),
            key=lambda item: (
                item[1].image.leader == item[1].topic.partitions[item[0].partition].leader
            ),
        )
        return in_writes(
            (
                KeyChange(
                    key=keys.partition_key(changed.topic.id, of.partition),
                    value=keys.encode_partition(changed.image),
                    revision=changed.image.revision,
                    why=f"{of}: {', '.join(changed.whys)}",
                )
                for of, changed in in_order
                if changed.image != changed.topic.partitions[of.partition]
            ),
            guard=self.view.guard,
        )


def _check(image: PartitionImage) -> None:
    replicas = set(image.replicas)
    assert len(replicas) == len(image.replicas) > 0, f"two replicas on one broker: {image}"
    assert replicas.issuperset(image.isr), f"in sync without being a replica: {image}"
    assert replicas.issuperset(image.elr), f"eligible without being a replica: {image}"
    assert not set(image.isr) & set(image.elr), f"both in sync and eligible: {image}"
    assert image.leader is None or image.leader in image.isr, (
        f"leads without being in sync: {image}"
    )
    assert replicas.issuperset(image.adding), f"added without being a replica: {image}"
    assert replicas.issuperset(image.removing), f"removed without being a replica: {image}"
    assert replicas.issuperset(image.offline), f"offline without being a replica: {image}"
    assert not set(image.adding) & set(image.removing), f"both added and removed: {image}"


# -- requests for several partitions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantedWrites:
    writes: list[GuardedWrite]
    # All other requested partitions take effect once the writes have succeeded.
    refused: Mapping[TopicPartition, RequestError] = field(default_factory=dict)
