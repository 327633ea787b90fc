"""A controller that does the least: it takes the dead out of the ISR, and elects from the ISR, then from the ELR."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRules:
    """Rules of the controller that can be broken one at a time; those of replicas are in `planted_bugs.py`."""

    # 14: an election makes a new epoch.
    bumps_epoch: bool = True
    # 15: only those who have everything that is committed are elected.
    elects_complete_only: bool = True
    # 16: who comes back from a crash that may have cost it records is no longer in ISR and ELR.
    removes_after_crash: bool = True
    # 17: the dead who leave an ISR that is too small stay eligible.
    keeps_eligible_leaders: bool = True


ALL_CONTROLLER_RULES = ControllerRules()

Choose = Callable[[Sequence[BrokerId]], BrokerId]


def settled(
    image: PartitionImage,
    live: Collection[BrokerId],
    *,
    min_isr: int,
    choose: Choose,
    rules: ControllerRules,
) -> PartitionImage:
    """The partition as it should be; itself, if nothing is to change."""
    isr = tuple(broker for broker in image.isr if broker in live)
    changed = image
    if isr != image.isr:
        changed = without(image, set(image.isr) - set(isr), min_isr=min_isr, rules=rules)
    if changed.adding and set(changed.adding) <= set(isr):
        return moved(changed, live, min_isr=min_isr, choose=choose, rules=rules)
    if changed.leader in changed.isr:
        return changed
    return elected(changed, live, min_isr=min_isr, choose=choose, rules=rules)


def elected(
    image: PartitionImage,
    live: Collection[BrokerId],
    *,
    min_isr: int,
    choose: Choose,
    rules: ControllerRules,
) -> PartitionImage:
    in_sync = [broker for broker in image.isr if broker in live]
    eligible = [broker for broker in image.elr if broker in live]
    if not rules.elects_complete_only:
        in_sync = [broker for broker in image.replicas if broker in live]
    if in_sync:
        leader = choose(in_sync)
        isr = image.isr if leader in image.isr else (leader,)
        return led_by(leader, replace(image, isr=isr), rules)
    if eligible:
        leader = choose(eligible)
        return led_by(leader, image.with_isr((leader,), min_isr=min_isr), rules)
    return led_by(None, image, rules)


def moved(
    image: PartitionImage,
    live: Collection[BrokerId],
    *,
    min_isr: int,
    choose: Choose,
    rules: ControllerRules,
) -> PartitionImage:
    """The new replica has joined: one of the old ones goes, and what it still asks for is of an earlier epoch."""
    leaver = choose([broker for broker in image.replicas if broker not in image.adding])
    isr = tuple(broker for broker in image.isr if broker != leaver)
    replicas = tuple(broker for broker in image.replicas if broker != leaver)
    changed = replace(image, replicas=replicas, adding=()).with_isr(isr, min_isr=min_isr)
    if len(isr) < changed.min_isr(min_isr):
        # Not yet: too few would be left.
        return image
    if image.leader in isr:
        return led_by(image.leader, changed, rules)
    return elected(changed, live, min_isr=min_isr, choose=choose, rules=rules)


def without(
    image: PartitionImage,
    brokers: Collection[BrokerId],
    *,
    min_isr: int,
    lost: Collection[BrokerId] = (),
    rules: ControllerRules,
) -> PartitionImage:
    isr = tuple(broker for broker in image.isr if broker not in brokers)
    changed = image.with_isr(isr, min_isr=min_isr, lost=lost)
    return changed if rules.keeps_eligible_leaders else replace(changed, elr=())


def led_by(
    leader: BrokerId | None, image: PartitionImage, rules: ControllerRules
) -> PartitionImage:
    if leader is None and image.leader is None:
        return image
    epoch = image.leader_epoch + 1 if rules.bumps_epoch else image.leader_epoch
    return replace(image, leader=leader, leader_epoch=LeaderEpoch(epoch))
