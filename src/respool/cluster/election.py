"""Who is in sync and who leads, after brokers came and went.

In this order a partition's leader is sought, each time among brokers that run and whose logs have not failed
(`PartitionImage.offline`), and the preferred one first:

1. the ISR: they have everything that is committed.
2. the ELR, when the ISR is empty: they have it too, nothing was committed since they left (KIP-966).
3. the last leader, when nobody is eligible any more: all of them crashed. It has what was synced; so it is enough
   where only synced records are committed, and where no other replica has ever had everything. Else only as in 4.
   It must have the data folder that it led with: another one, as where a disk is not mounted, may be empty.
4. any replica, where the topic allows unclean election: committed records may be lost, and readers notice (KIP-320).

Otherwise nobody leads until one of them comes back, or has its log in order again.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from uuid import UUID

from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, TopicRules
from respool.model.ids import BrokerId


def reelect(image: PartitionImage, rules: TopicRules, view: ClusterView) -> PartitionImage:
    """The partition as it should be with the brokers that run now; itself, when nothing is to change."""
    image = _without_the_dead(image, rules, view)
    image = _without_the_offline(image, rules)
    image = _without_the_stopping(image, rules, view)
    is_stuck = set(image.isr) <= set(image.offline)
    if image.elr and len(image.isr) >= image.min_isr(rules.min_isr) and not is_stuck:
        # The settings changed. The leader commits nothing while there is an ELR, so it waits for this.
        image = replace(image, elr=())
    if _may_go_on_leading(image, view):
        return image
    return elect(image, rules, view)


def elect(
    image: PartitionImage, rules: TopicRules, view: ClusterView, *, is_unclean_asked: bool = False
) -> PartitionImage:
    """The partition under a new leader, or without one when nobody may lead. The epoch is left to the caller."""
    chosen = _best(image.isr, image, view)
    if chosen is not None:
        return _led_by(chosen, image)
    if not set(image.isr) <= set(image.offline):
        # Members that do not run are out of it already: see reelect().
        return _leaderless(image)
    chosen = _best(image.elr, image, view)
    if chosen is not None:
        changed = image.with_isr((chosen,), min_isr=rules.min_isr, lost=image.offline)
        return _led_by(chosen, changed)
    chosen = _best_of_the_rest(image, rules, view, is_unclean_asked=is_unclean_asked)
    if chosen is not None:
        return _led_by(chosen, replace(image, isr=(chosen,), elr=()))
    return _leaderless(image)


def resign(
    image: PartitionImage,
    broker: BrokerId,
    rules: TopicRules,
    *,
    was_clean: bool,
    left_folder: UUID | None = None,
) -> PartitionImage:
    """The partition as a broker leaves it behind that is about to register anew: itself, when nothing is to change.

    It leads nothing from its run before. If that ended without a clean stop, it may have lost records that others
    believe it has, so it is neither in sync nor eligible until it has caught up (KIP-966). `left_folder` is the data
    folder that it had then, if it has another one now.
    """
    if not was_clean and (broker in image.isr or broker in image.elr):
        isr = tuple(one for one in image.isr if one != broker)
        changed = image.with_isr(isr, min_isr=rules.min_isr, lost=(broker,))
        # Whoever was the last to have everything is remembered: nobody has more than it. One that has left its folder
        # behind may never have it again.
        is_known = image.last_leader is not None and image.last_folder is None
        if not changed.isr and not changed.elr and not is_known:
            changed = replace(changed, last_leader=broker, last_folder=None)
        image = changed
    if image.leader == broker:
        image = _leaderless(image)
    if image.last_leader == broker and image.last_folder is None and left_folder is not None:
        image = replace(image, last_folder=left_folder)
    return image


def _without_the_dead(
    image: PartitionImage, rules: TopicRules, view: ClusterView
) -> PartitionImage:
    running = tuple(one for one in image.isr if view.is_live(one))
    if len(running) == len(image.isr):
        return image
    return image.with_isr(running, min_isr=rules.min_isr)


def _without_the_offline(image: PartitionImage, rules: TopicRules) -> PartitionImage:
    """Whose log has failed leaves the ISR, and may have lost part of it; not the last: nobody else has everything."""
    sound = tuple(one for one in image.isr if one not in image.offline)
    if not sound or len(sound) == len(image.isr):
        return image
    return image.with_isr(sound, min_isr=rules.min_isr, lost=image.offline)


def _without_the_stopping(
    image: PartitionImage, rules: TopicRules, view: ClusterView
) -> PartitionImage:
    """Who announced that it stops leaves the ISR first, so that nobody waits for it later.

    Not where too few would be left: until it really stops, it helps to commit.
    """
    staying = tuple(one for one in image.isr if view.can_join(one))
    if len(staying) == len(image.isr) or len(staying) < image.min_isr(rules.min_isr):
        return image
    return image.with_isr(staying, min_isr=rules.min_isr)


def _may_go_on_leading(image: PartitionImage, view: ClusterView) -> bool:
    leader = image.leader
    if leader is None or leader not in image.isr or leader in image.offline:
        return False
    return view.can_lead(leader) or not any(view.can_lead(one) for one in image.isr)


def _best(
    candidates: Collection[BrokerId], image: PartitionImage, view: ClusterView
) -> BrokerId | None:
    """The first that could lead, in the order of the replicas; one that is about to leave only if there is no other."""
    running = [
        one
        for one in image.replicas
        if one in candidates and view.is_live(one) and one not in image.offline
    ]
    return _first((one for one in running if view.can_lead(one)), otherwise=_first(running))


def _best_of_the_rest(
    image: PartitionImage, rules: TopicRules, view: ClusterView, *, is_unclean_asked: bool
) -> BrokerId | None:
    may_be_unclean = is_unclean_asked or (
        rules.is_unclean_allowed and _have_been_waited_for(image, view)
    )
    last, candidates = image.last_leader, image.replicas
    if last is not None and has_left_its_folder(last, image, view):
        # It may have nothing at all.
        candidates = tuple(one for one in candidates if one != last)
        last = None
    is_last_enough = may_be_unclean or _has_last_leader_all(image, rules)
    could_lead = last in image.replicas and last not in image.offline and view.is_live(last)
    # Who is in sync and offline has had everything, as have those who are eligible: they may be back.
    if could_lead and not image.isr and not image.elr and is_last_enough:
        return last
    if not may_be_unclean:
        return None
    chosen = _best(candidates, image, view)
    return _best(image.replicas, image, view) if chosen is None else chosen


def is_unclean(
    leader: BrokerId, before: PartitionImage, rules: TopicRules, view: ClusterView
) -> bool:
    """Whether a leader that was elected by this image may miss what was committed."""
    if leader in before.isr or leader in before.elr:
        return False
    is_last = leader == before.last_leader and not has_left_its_folder(leader, before, view)
    return not (is_last and not before.elr and _has_last_leader_all(before, rules))


def _has_last_leader_all(image: PartitionImage, rules: TopicRules) -> bool:
    """Although it has crashed, for all was synced; or as much as there is, for nobody else has ever had it."""
    return rules.is_synced or len(image.replicas) - len(image.adding) == 1


def has_left_its_folder(last: BrokerId, image: PartitionImage, view: ClusterView) -> bool:
    """Whether it has another data folder now than it led with."""
    entry = view.registry.get(last)
    return image.last_folder is not None and (entry is None or entry.folder != image.last_folder)


def _have_been_waited_for(image: PartitionImage, view: ClusterView) -> bool:
    """Those who have everything are gone for longer than one waits for them; or they are here, and of no use."""
    awaited = {*image.elr, image.last_leader} if image.elr else {image.last_leader}
    return all(
        one is None
        or view.is_live(one)
        or view.now_ms - view.missing_since_ms.get(one, view.now_ms)
        >= view.settings.unclean_wait_ms
        for one in awaited
    )


def _led_by(leader: BrokerId, image: PartitionImage) -> PartitionImage:
    return replace(image, leader=leader, last_leader=None, last_folder=None)


def _leaderless(image: PartitionImage) -> PartitionImage:
    if image.leader is None:
        return image
    return replace(image, leader=None, last_leader=image.leader, last_folder=None)


def _first(brokers: Iterable[BrokerId], *, otherwise: BrokerId | None = None) -> BrokerId | None:
    return next(iter(brokers), otherwise)
