"""The controller's decisions: elections, reassignments and repairs that are due in a view.

The controller runs `decide` after every change of the store, and when a deadline passes. It converges: deciding on the
result of the writes gives no more writes. Steps that depend on other brokers (a replica must catch up, a broker must
return) are decided once these have done their part.
"""

from collections import Counter
from collections.abc import Sequence

from respool.cluster import election, families, preferred, reassignment, strays
from respool.cluster.copy_limit import CopiesInProgress
from respool.cluster.enlarge import can_do_without, enlarge_internal_topics
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.partition_draft import PartitionDraft
from respool.cluster.placement import rack_crowding
from respool.cluster.reassignment import retarget
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, TopicImage
from respool.model.ids import BrokerId

# One step may make another step necessary; a few rounds are enough.
ROUNDS_MAX = 20


# In log messages, marks elections that may have lost committed records.
UNCLEAN = "UNCLEAN"


def decide(view: ClusterView) -> list[GuardedWrite]:
    """The writes that are due, urgent ones first. They change different keys, so they are independent."""
    draft = PartitionDraft(view)
    for _ in range(ROUNDS_MAX):
        count = draft.count
        for topic, number, image in draft.partitions():
            _step(draft, topic, number, image)
        replace_leaving(draft)
        families.align_families(draft)
        enlarge_internal_topics(draft)
        if view.is_leader_check_due:
            preferred.return_leaders(draft)
        if draft.count == count:
            break
    return [*draft.writes(), *strays.collect(view)]


def _step(draft: PartitionDraft, topic: TopicImage, number: int, image: PartitionImage) -> None:
    view, rules = draft.view, topic.rules
    decided = election.reelect(image, rules, view)
    if decided != image:
        why = _told(image, decided)
        if decided.leader not in (None, image.leader) and election.is_unclean(
            decided.leader, image, rules, view
        ):
            why = f"{why}, {UNCLEAN}: it may miss committed records"
        draft.change(topic, number, decided, why)
    if (
        reassignment.is_moving(decided)
        and reassignment.is_switch_safe(decided, rules, view)
        and families.may_switch(draft, topic, number)
    ):
        switched = reassignment.switch(decided, rules, view)
        draft.change(topic, number, switched, f"moved to replicas {list(switched.replicas)}")


def _told(before: PartitionImage, after: PartitionImage) -> str:
    told = []
    if after.leader != before.leader:
        told.append(f"leader {after.leader} after {before.leader}")
    if after.isr != before.isr:
        told.append(f"in sync {list(after.isr)}, not {list(before.isr)}")
    if after.elr != before.elr:
        told.append(f"eligible {list(after.elr)}")
    return ", ".join(told) or "decided"


def replace_leaving(draft: PartitionDraft) -> None:
    """Begin as many moves away from brokers that leave (drained, removed, or missing for too long) as the limit allows.

    At most `copies_per_broker_max` partitions are copied at a time, and only those with a leader to copy from. A
    replica without a candidate stays where it is, except that internal topics may have fewer replicas.

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
        if not leaving or image.leader is None or families.is_follower_of_root(topic, number):
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
