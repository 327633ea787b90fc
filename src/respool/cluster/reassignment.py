"""Moving a partition's replicas, in steps of which each is safe.

1. `retarget`: the new replicas are added, nobody leaves yet. Overriding and cancelling a move are the same thing with
   another target.
2. They copy, and the leader takes each into the ISR when it has caught up.
3. `switch`, once `is_switch_safe`: those to be removed leave, all at once. If the leader is one of them, another one
   leads.
"""

from collections.abc import Sequence
from dataclasses import replace

from respool.cluster import election
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, TopicRules
from respool.model.ids import BrokerId


def retarget(image: PartitionImage, target: Sequence[BrokerId]) -> PartitionImage:
    """The partition on its way to these replicas, whatever its way was before.

    A replica that was being added for nothing leaves at once, unless it may have what others have not.
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
    """What its replicas were before they were moved, however often that was changed since."""
    return image.origin or tuple(one for one in image.replicas if one not in image.adding)


def is_moving(image: PartitionImage) -> bool:
    return bool(image.adding or image.removing)


def is_switch_safe(image: PartitionImage, rules: TopicRules, view: ClusterView) -> bool:
    """Whether the replicas to be removed may leave now. This is the only place that says so.

    Every replica that is to stay is in sync, but for brokers that nobody waits for any more and that no other can stand
    in for; and enough of them are, so that the partition goes on as before without those who leave.
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
    """The move's last step: the replicas are those that were to be."""
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
    """Nobody waits for them any more, and there is no broker to take their places: see repair.py."""
    return all(view.is_dead_for_good(one) for one in behind) and set(view.candidates()) <= set(
        target
    )
