"""ElectLeaders (KIP-460): elects preferred leaders, and unclean leaders on request."""

from collections.abc import Iterable
from enum import Enum

from respool.cluster import election, preferred
from respool.cluster.partition_draft import GrantedWrites, PartitionDraft
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, TopicImage
from respool.model.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    PreferredLeaderNotAvailable,
    RequestError,
    UnknownTopicOrPartition,
)
from respool.model.ids import TopicPartition


class ElectionKind(Enum):
    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(
    view: ClusterView, kind: ElectionKind, partitions: Iterable[TopicPartition] | None = None
) -> GrantedWrites:
    """Elect leaders of these partitions; None means all partitions that need an election."""
    draft = PartitionDraft(view)
    refused: dict[TopicPartition, RequestError] = {}
    asked = partitions
    if asked is None:
        asked = [TopicPartition(topic.name, number) for topic, number, _ in view.partitions()]
    for of in dict.fromkeys(asked):
        found = view.partition(of)
        try:
            if found is None:
                raise UnknownTopicOrPartition(f"there is no partition {of}")
            topic, image = found
            elected = _ELECT[kind](image, topic, view)
            draft.change(topic, of.partition, elected, f"leader {elected.leader}, as asked for")
        except ElectionNotNeeded as error:
            # A request for all partitions skips those that need no election.
            if partitions is not None:
                refused[of] = error
        except RequestError as error:
            refused[of] = error
    return GrantedWrites(writes=draft.writes(), refused=refused)


def _preferred(image: PartitionImage, _topic: TopicImage, view: ClusterView) -> PartitionImage:
    broker = image.replicas[0]
    if image.leader == broker:
        raise ElectionNotNeeded(f"broker {broker} leads, as preferred")
    if why := preferred.why_it_cannot(image, view):
        raise PreferredLeaderNotAvailable(f"broker {broker} is preferred, and {why}")
    return preferred.with_preferred_leader(image)


def _unclean(image: PartitionImage, topic: TopicImage, view: ClusterView) -> PartitionImage:
    decided = election.reelect(image, topic.rules, view)
    if decided.leader is not None:
        if decided.leader == image.leader:
            raise ElectionNotNeeded(f"broker {image.leader} leads")
        # The controller would elect the same leader, if it has the same settings.
        return decided
    elected = election.elect(decided, topic.rules, view, is_unclean_asked=True)
    if elected.leader is None:
        raise EligibleLeadersNotAvailable(
            f"none of the brokers {list(image.replicas)} runs and has a log that can be used"
        )
    return elected


_ELECT = {ElectionKind.PREFERRED: _preferred, ElectionKind.UNCLEAN: _unclean}
