"""Operators' requests for partitions: elect leaders (ElectLeaders, KIP-460), reassign replicas (KIP-455). Pure."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from respool.cluster import election, families, preferred
from respool.cluster.partition_draft import GrantedWrites, PartitionDraft
from respool.cluster.placement import check_replicas
from respool.cluster.reassignment import before_move, is_moving, retarget
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, TopicImage
from respool.model.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    PolicyViolation,
    PreferredLeaderNotAvailable,
    RequestError,
    UnknownTopicOrPartition,
)
from respool.model.ids import BrokerId, TopicPartition


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
                view.image.check_is_no_view(of.topic, instead="elect leaders of")
                raise UnknownTopicOrPartition(f"there is no partition {of}")
            topic, image = found
            _check_leads_family(topic, of.partition, instead="elect the leader of")
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


def reassign(
    view: ClusterView,
    targets: Mapping[TopicPartition, Sequence[BrokerId] | None],
    *,
    may_change_factor: bool = True,
) -> GrantedWrites:
    """Reassign partitions to these replicas; None cancels a partition's reassignment."""
    draft = PartitionDraft(view)
    refused: dict[TopicPartition, RequestError] = {}
    for of, target in targets.items():
        found = view.partition(of)
        try:
            if found is None:
                view.image.check_is_no_view(of.topic, instead="move the replicas of")
                raise UnknownTopicOrPartition(f"there is no partition {of}")
            topic, image = found
            root = families.family_of(topic, of.partition)[0]
            if target is None or tuple(target) != topic.partitions[root].target:
                _check_leads_family(topic, of.partition, instead="move the replicas of")
            wanted = _target(image, target, view, may_change_factor=may_change_factor)
            moved = retarget(image, wanted)
        except RequestError as error:
            refused[of] = error
            continue
        if moved != image:
            why = f"to replicas {list(wanted)}" if target is not None else "its move is cancelled"
            draft.change(topic, of.partition, moved, why)
    return GrantedWrites(writes=draft.writes(), refused=refused)


def reassignments(view: ClusterView) -> dict[TopicPartition, PartitionImage]:
    """The partitions that are being reassigned."""
    return {
        TopicPartition(topic.name, number): image
        for topic, number, image in view.partitions()
        if is_moving(image)
    }


def _check_leads_family(topic: TopicImage, number: int, *, instead: str) -> None:
    if families.is_follower_of_root(topic, number):
        root = families.family_of(topic, number)[0]
        raise PolicyViolation(
            f"{topic.name!r} was shrunk: partition {number} has the replicas and the leader of partition {root}; "
            f"{instead} that one"
        )


def _target(
    image: PartitionImage,
    target: Sequence[BrokerId] | None,
    view: ClusterView,
    *,
    may_change_factor: bool,
) -> tuple[BrokerId, ...]:
    if target is None:
        if not is_moving(image):
            raise NoReassignmentInProgress("its replicas are not being moved")
        return before_move(image)
    check_replicas(target, view)
    if not may_change_factor and len(target) != len(image.target):
        raise InvalidReplicationFactor(
            f"{len(target)} replicas are named; there are {len(image.target)}, and that may not change"
        )
    return tuple(target)
