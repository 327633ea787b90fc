"""Reassigns a partition's replicas in safe steps.

1. `retarget`: the new replicas are added; none is removed yet. Changing or cancelling a reassignment is the same step
   with another target.
2. The new replicas copy the log, and the leader adds each one to the ISR when it has caught up.
3. `switch`, once `is_switch_safe`: the old replicas are removed, all at once. If the leader is one of them, another
   broker is elected.
"""

from collections.abc import Sequence
from dataclasses import replace

from respool.cluster import election
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, TopicRules
from respool.model.ids import BrokerId


def retarget(image: PartitionImage, target: Sequence[BrokerId]) -> PartitionImage:
    """The partition in reassignment to these replicas, whatever its target was before.

    A new replica that is no longer wanted is removed at once, unless it may have records that others lack.
    """
    needed = {*image.isr, *image.elr, image.leader, image.last_leader}
    leaving = tuple(
        one
        for one in image.replicas
        if one not in target and (one not in image.adding or one in needed)
    )
    held = set(image.replicas).difference(image.adding)
    adding = tuple(one for one in target if one not in held)
    return replace(
        image,
        replicas=(*target, *leaving),
        adding=adding,
        removing=leaving,
        origin=before_move(image) if adding or leaving else (),
        elr=tuple(one for one in (*target, *leaving) if one in image.elr),
        isr=tuple(one for one in (*target, *leaving) if one in image.isr),
        offline=tuple(one for one in (*target, *leaving) if one in image.offline),
    )


def before_move(image: PartitionImage) -> tuple[BrokerId, ...]:
    """The replicas before the reassignment, however often its target has changed since."""
    return image.origin or tuple(one for one in image.replicas if one not in image.adding)


def is_moving(image: PartitionImage) -> bool:
    return bool(image.adding or image.removing)


def is_switch_safe(image: PartitionImage, rules: TopicRules, view: ClusterView) -> bool:
    """True if the old replicas may be removed now. Nothing else decides this.

    Every target replica must be in sync, except on brokers that are dead for good and have no replacement; and enough
    of them must be in sync for the partition to stay writable without the old replicas.
    """
    if image.leader is None:
        return False
    target = image.target
    staying = [one for one in target if one in image.isr]
    behind = [one for one in target if one not in image.isr]
    return (
        (not behind or _is_hopeless(behind, target, view))
        and set(image.adding) <= set(staying)
        and len(staying) >= max(1, min(rules.min_isr, len(target)))
        and any(view.is_live(one) for one in staying)
    )


def switch(image: PartitionImage, rules: TopicRules, view: ClusterView) -> PartitionImage:
    """The last step of a reassignment: only the target replicas remain."""
    assert is_switch_safe(image, rules, view)
    target = image.target
    image = replace(
        image,
        replicas=target,
        adding=(),
        removing=(),
        origin=(),
        isr=tuple(one for one in target if one in image.isr),
        elr=tuple(one for one in target if one in image.elr),
        offline=tuple(one for one in target if one in image.offline),
    )
    return election.reelect(image, rules, view)


def _is_hopeless(behind: Sequence[BrokerId], target: Sequence[BrokerId], view: ClusterView) -> bool:
    """True if these brokers are dead for good and have no replacement (`controller_decisions.py`)."""
    return all(view.is_dead_for_good(one) for one in behind) and set(view.candidates()) <= set(
        target
    )
