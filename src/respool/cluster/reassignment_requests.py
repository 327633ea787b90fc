"""AlterPartitionReassignments and ListPartitionReassignments (KIP-455)."""

from collections.abc import Mapping, Sequence

from respool.cluster.partition_draft import GrantedWrites, PartitionDraft
from respool.cluster.placement import check_replicas
from respool.cluster.reassignment import before_move, is_moving, retarget
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage
from respool.model.errors import (
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    RequestError,
    UnknownTopicOrPartition,
)
from respool.model.ids import BrokerId, TopicPartition


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
                raise UnknownTopicOrPartition(f"there is no partition {of}")
            topic, image = found
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
