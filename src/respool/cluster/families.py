"""Families of partitions in topics that were shrunk: the same replicas, and one leader.

A sealed partition's records are appended to its heir by the same broker, and a producer's last batches may lie in any
partition of the family. So the first partition of a family, its root, decides where all of them are: it is placed and
moved as any partition, and the others follow. Where one leader is not possible yet, because a replica has not caught
up, the partitions have their own leaders, which refuse records for them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from respool.cluster.copy_limit import CopiesInProgress
from respool.cluster.partition_draft import PartitionDraft
from respool.cluster.reassignment import is_moving, is_switch_safe, retarget
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, TopicImage
from respool.model.ids import BrokerId


def has_family(topic: TopicImage, number: int) -> bool:
    """True if the partition has the replicas and the leader of others."""
    return len(family_of(topic, number)) > 1


def family_of(topic: TopicImage, number: int) -> Sequence[int]:
    """The partitions of its family, the root first; the partition alone, if the topic was never shrunk."""
    if topic.layout is None:
        return (number,)
    return range(topic.layout.root(number), len(topic.partitions), topic.layout.family)


def is_follower_of_root(topic: TopicImage, number: int) -> bool:
    """True if the partition follows another one of its family in everything."""
    return family_of(topic, number)[0] != number


def align_families(draft: PartitionDraft) -> None:
    """Begin what makes each family alike; call it again until nothing changes."""
    topics = [one for one in draft.view.topics.values() if one.layout is not None]
    if not topics:
        return
    copies = CopiesInProgress(draft.view, draft.partitions())
    for topic in sorted(topics, key=lambda one: one.name):
        for numbers in _families(topic):
            _align_replicas(draft, topic, numbers, copies)
            _elect_together(draft, topic, numbers)


def may_switch(draft: PartitionDraft, topic: TopicImage, number: int) -> bool:
    """True if all moving partitions of the family could be switched to their new replicas now, so that none is left
    behind with another leader.
    """
    rules, view = topic.rules, draft.view
    return all(
        not is_moving(image) or is_switch_safe(image, rules, view)
        for image in (draft.image(topic, one) for one in family_of(topic, number))
    )


def common_leader(images: Sequence[PartitionImage], view: ClusterView) -> BrokerId | None:
    """The broker that can lead all of these partitions; the root's leader if it can. None: there is none now."""
    root = images[0]
    in_order = [one for one in (root.leader,) if one is not None]
    in_order += [one for one in root.replicas if one != root.leader]
    able = [one for one in in_order if all(_can_lead(one, image, view) for image in images)]
    return next((one for one in able if view.can_lead(one)), able[0] if able else None)


def _families(topic: TopicImage) -> Iterator[Sequence[int]]:
    assert topic.layout is not None
    for root in range(min(topic.layout.family, len(topic.partitions))):
        numbers = family_of(topic, root)
        if len(numbers) > 1:
            yield numbers


def _align_replicas(
    draft: PartitionDraft, topic: TopicImage, numbers: Sequence[int], copies: CopiesInProgress
) -> None:
    target = draft.image(topic, numbers[0]).target
    for number in numbers[1:]:
        image = draft.image(topic, number)
        if image.target == target or image.leader is None:
            continue
        moved = retarget(image, target)
        copies.end(image)
        if not copies.has_room_for(moved, limit=draft.view.settings.copies_per_broker_max):
            copies.begin(image)
            continue
        copies.begin(moved)
        draft.change(topic, number, moved, f"to replicas {list(target)}, those of its family")


def _elect_together(draft: PartitionDraft, topic: TopicImage, numbers: Sequence[int]) -> None:
    images = [draft.image(topic, number) for number in numbers]
    root = images[0]
    if all(image.leader == root.leader for image in images) and root.leader is not None:
        return
    leader = common_leader(images, draft.view)
    for number, image in zip(numbers, images, strict=True):
        wanted = root.leader if leader is None else leader
        if wanted in (None, image.leader) or not _can_lead(wanted, image, draft.view):
            continue
        elected = replace(image, leader=wanted, last_leader=None, last_folder=None)
        draft.change(topic, number, elected, f"leader {wanted}, that of its family")


def _can_lead(broker: BrokerId | None, image: PartitionImage, view: ClusterView) -> bool:
    return (
        broker is not None
        and broker in image.isr
        and broker not in image.offline
        and view.is_live(broker)
    )
