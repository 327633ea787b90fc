"""Moves replicas away from brokers that leave: drained, removed, or missing for too long.

At most `copies_per_broker_max` partitions are copied at a time, and only those with a leader to copy from. A replica
without a candidate stays where it is, except that internal topics may have fewer replicas.
"""

from collections import Counter
from collections.abc import Sequence

from respool.cluster.copy_limit import CopiesInProgress
from respool.cluster.enlarge import can_do_without
from respool.cluster.partition_draft import PartitionDraft
from respool.cluster.placement import rack_crowding
from respool.cluster.reassignment import retarget
from respool.cluster.view import ClusterView
from respool.model.ids import BrokerId


def replace_leaving(draft: PartitionDraft) -> None:
    """Begin as many moves away from leaving brokers as the limit allows.

    A move that has to wait may get another target once others have begun: call it again until nothing changes.
    """
    view = draft.view
    if not any(view.is_leaving(one) for one in _holders(view)):
        return
    candidates = tuple(view.candidates())
    racks = view.racks_of((*_holders(view), *view.brokers))
    load = Counter(one for _, _, image in draft.partitions() for one in image.target)
    copies = CopiesInProgress(view, draft.partitions())
    for topic, number, image in list(draft.partitions()):
        leaving = [one for one in image.target if view.is_leaving(one)]
        if not leaving or image.leader is None:
            continue
        target = _without(
            leaving, image.target, view, candidates=candidates, racks=racks, load=load
        )
        target = _smaller(leaving, target, view, topic.name)
        if target == image.target:
            continue
        moved = retarget(image, target)
        copies.end(image)
        if not copies.has_room_for(moved, limit=view.settings.copies_per_broker_max):
            copies.begin(image)
            continue
        copies.begin(moved)
        load.subtract(image.target)
        load.update(target)
        gone = ", ".join(str(one) for one in leaving if one not in target)
        draft.change(
            topic, number, moved, f"replicas {list(target)} instead of those on broker {gone}"
        )


def _without(
    leaving: Sequence[BrokerId],
    target: tuple[BrokerId, ...],
    view: ClusterView,
    *,
    candidates: Sequence[BrokerId],
    racks: dict[BrokerId, str | None],
    load: Counter[BrokerId],
) -> tuple[BrokerId, ...]:
    """The target with leaving brokers replaced, dead ones first if there are too few candidates."""
    for old in sorted(leaving, key=lambda one: (view.is_live(one), target.index(one))):
        free = [one for one in candidates if one not in target]
        if not free:
            break
        place = target.index(old)
        target = min(
            ((*target[:place], one, *target[place + 1 :]) for one in free),
            key=lambda option: (rack_crowding(option, racks), load[option[place]], option[place]),
        )
    return target


def _smaller(
    leaving: Sequence[BrokerId], target: tuple[BrokerId, ...], view: ClusterView, topic: str
) -> tuple[BrokerId, ...]:
    """The target without drained or removed brokers that have no replacement, where fewer replicas are allowed."""
    return tuple(
        one
        for one in target
        if not (
            one in leaving
            and view.is_drained_or_removed(one)
            and can_do_without(topic, one, target, view)
        )
    )


def _holders(view: ClusterView) -> set[BrokerId]:
    return {one for _, _, image in view.partitions() for one in image.replicas}
