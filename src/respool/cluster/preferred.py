"""Returns leadership to preferred leaders, which are the first replicas of their partitions."""

from collections import Counter, defaultdict
from dataclasses import replace

from respool.cluster.families import family_of, is_follower_of_root
from respool.cluster.partition_draft import PartitionDraft
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, TopicImage
from respool.model.ids import BrokerId


def return_leaders(draft: PartitionDraft) -> None:
    """Return leadership to preferred leaders whose share of partitions led by others is too large."""
    wanted: Counter[BrokerId] = Counter()
    elsewhere: Counter[BrokerId] = Counter()
    could_return: dict[BrokerId, list[tuple[TopicImage, int, PartitionImage]]] = defaultdict(list)
    for topic, number, image in draft.partitions():
        if is_follower_of_root(topic, number):
            continue
        broker = image.replicas[0]
        wanted[broker] += 1
        if image.leader != broker:
            elsewhere[broker] += 1
            if can_return(image, draft.view) and _can_lead_family(draft, topic, number, broker):
                could_return[broker].append((topic, number, image))
    for broker, partitions in could_return.items():
        if elsewhere[broker] / wanted[broker] <= draft.view.settings.leader_imbalance_max:
            continue
        for topic, number, image in partitions:
            draft.change(
                topic, number, with_preferred_leader(image), f"leader {broker} as preferred"
            )


def _can_lead_family(
    draft: PartitionDraft, topic: TopicImage, number: int, broker: BrokerId
) -> bool:
    # The others of its family follow.
    return all(
        broker in image.isr and broker not in image.offline
        for image in (draft.image(topic, one) for one in family_of(topic, number))
    )


def can_return(image: PartitionImage, view: ClusterView) -> bool:
    """True if the preferred leader could lead now."""
    return why_it_cannot(image, view) is None


def why_it_cannot(image: PartitionImage, view: ClusterView) -> str | None:
    """The reason why the preferred leader cannot lead; None if it can."""
    broker = image.replicas[0]
    if not view.is_live(broker):
        return "it does not run"
    if not view.can_lead(broker):
        return "it is about to leave"
    if broker in image.offline:
        return "its disk has failed there"
    return None if broker in image.isr else "it is not in sync"


def with_preferred_leader(image: PartitionImage) -> PartitionImage:
    return replace(image, leader=image.replicas[0], last_leader=None, last_folder=None)
