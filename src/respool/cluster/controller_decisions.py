"""What is due by itself, decided on one view: the controller runs this whenever the store or the time has moved on.

It converges: deciding on what the writes lead to gives none. What waits for others (a replica that has to catch up, a
broker that has to come back) is decided when they have done it.
"""

from respool.cluster import election, preferred, reassignment, repair, strays
from respool.cluster.enlarge import enlarge_internal_topics
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.partition_draft import PartitionDraft
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, TopicImage

# One part's changes may make another's due; more than a few rounds have not been seen.
ROUNDS_MAX = 20


# What elections are called, in words, that may have lost something.
UNCLEAN = "UNCLEAN"


def decide(view: ClusterView) -> list[GuardedWrite]:
    """The writes that are due, the urgent ones first. They touch different keys, so each stands for itself."""
    draft = PartitionDraft(view)
    for _ in range(ROUNDS_MAX):
        count = draft.count
        for topic, number, image in draft.partitions():
            _step(draft, topic, number, image)
        repair.replace_leaving(draft)
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
    if reassignment.is_moving(decided) and reassignment.is_switch_safe(decided, rules, view):
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
