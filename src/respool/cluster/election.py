"""Elections: updates a partition's ISR and leader after brokers have joined or left.

The leader is chosen in this order, in each step only among live brokers without a failed log
(`PartitionImage.offline`), and the preferred leader first:

1. the ISR: its members have all committed records.
2. the ELR, if the ISR is empty: it has them, too, as nothing was committed since its members left (KIP-966).
3. the last leader, if the ELR is empty because all members crashed. It has all synced records; that is enough if only
   synced records are committed, or if no other replica ever had all records. Otherwise only as in 4.
   It must have the data folder with which it led: another one, for example without a mounted disk, may be empty.
4. any replica, if the topic allows unclean election: committed records may be lost, and readers detect it (KIP-320).

Otherwise the partition has no leader until one of these brokers returns, or has repaired its log.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from uuid import UUID

from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, TopicRules
from respool.model.ids import BrokerId


def reelect(image: PartitionImage, rules: TopicRules, view: ClusterView) -> PartitionImage:
    """The partition with its ISR and leader updated for the live brokers; the same image if nothing changes."""
    image = _without_the_dead(image, rules, view)
    image = _without_the_offline(image, rules)
    image = _without_the_stopping(image, rules, view)
    is_stuck = set(image.isr) <= set(image.offline)
    if image.elr and len(image.isr) >= image.min_isr(rules.min_isr) and not is_stuck:
        # min.insync.replicas was lowered. The leader commits nothing while there is an ELR, so the ELR must go.
        image = replace(image, elr=())
    if _may_keep_leading(image, view):
        return image
    return elect(image, rules, view)


def elect(
    image: PartitionImage, rules: TopicRules, view: ClusterView, *, is_unclean_asked: bool = False
) -> PartitionImage:
    """The partition with a new leader, or with none if no broker may lead. The caller sets the epoch."""
    chosen = _best(image.isr, image, view)
    if chosen is not None:
        return _led_by(chosen, image)
    if not set(image.isr) <= set(image.offline):
        # Members that are not live have been removed already, by reelect().
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
    """The partition without the leadership of a broker that is about to register again.

    If the broker's last process ended without a clean shutdown, it may have lost records that it had acknowledged. So
    it leaves the ISR and the ELR until it has caught up (KIP-966). `left_folder` is the data folder of that process, if
    the broker uses another one now. Returns the same image if nothing changes.
    """
    if not was_clean and (broker in image.isr or broker in image.elr):
        isr = tuple(one for one in image.isr if one != broker)
        changed = image.with_isr(isr, min_isr=rules.min_isr, lost=(broker,))
        # Remember the last broker with all records: no other replica has more. If its data folder is gone, it may never
        # have them again.
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
    """Remove replicas with failed logs from the ISR, but not the last one: no other replica has all records."""
    sound = tuple(one for one in image.isr if one not in image.offline)
    if not sound or len(sound) == len(image.isr):
        return image
    return image.with_isr(sound, min_isr=rules.min_isr, lost=image.offline)


def _without_the_stopping(
    image: PartitionImage, rules: TopicRules, view: ClusterView
) -> PartitionImage:
    """Remove brokers that are shutting down from the ISR early, so that commits do not wait for them later.

    Keep them if the ISR would become too small: until such a broker stops, commits need it.
    """
    staying = tuple(one for one in image.isr if view.can_join(one))
    if len(staying) == len(image.isr) or len(staying) < image.min_isr(rules.min_isr):
        return image
    return image.with_isr(staying, min_isr=rules.min_isr)


def _may_keep_leading(image: PartitionImage, view: ClusterView) -> bool:
    leader = image.leader
    if leader is None or leader not in image.isr or leader in image.offline:
        return False
    return view.can_lead(leader) or not any(view.can_lead(one) for one in image.isr)


def _best(
    candidates: Collection[BrokerId], image: PartitionImage, view: ClusterView
) -> BrokerId | None:
    """The first candidate in replica order; one that is shutting down only if there is no other."""
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
        # With another data folder, it may have no records at all.
        candidates = tuple(one for one in candidates if one != last)
        last = None
    is_last_enough = may_be_unclean or _has_last_leader_all(image, rules)
    could_lead = last in image.replicas and last not in image.offline and view.is_live(last)
    # Offline ISR members and the ELR have all records, and may return.
    if could_lead and not image.isr and not image.elr and is_last_enough:
        return last
    if not may_be_unclean:
        return None
    chosen = _best(candidates, image, view)
    return _best(image.replicas, image, view) if chosen is None else chosen


def is_unclean(
    leader: BrokerId, before: PartitionImage, rules: TopicRules, view: ClusterView
) -> bool:
    """True if a leader elected from this image may lack committed records."""
    if leader in before.isr or leader in before.elr:
        return False
    is_last = leader == before.last_leader and not has_left_its_folder(leader, before, view)
    return not (is_last and not before.elr and _has_last_leader_all(before, rules))


def _has_last_leader_all(image: PartitionImage, rules: TopicRules) -> bool:
    """True if the last leader has all records even after a crash: all are synced, or no other replica ever had them."""
    return rules.is_synced or len(image.replicas) - len(image.adding) == 1


def has_left_its_folder(last: BrokerId, image: PartitionImage, view: ClusterView) -> bool:
    """True if the broker's data folder is not the one with which it led."""
    entry = view.registry.get(last)
    return image.last_folder is not None and (entry is None or entry.folder != image.last_folder)


def _have_been_waited_for(image: PartitionImage, view: ClusterView) -> bool:
    """True if the replicas with all records have been missing for too long, or are live and cannot lead."""
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
