"""The controller's decisions: elections, reassignments and repairs that are due in a view.

The controller runs `decide` after every change of the store, and when a deadline passes. It converges: deciding on the
result of the writes gives no more writes. Steps that depend on other brokers (a replica must catch up, a broker must
return) are decided once these have done their part.
"""

from respool.cluster import election, preferred, reassignment, repair, strays
from respool.cluster.enlarge import enlarge_internal_topics
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.partition_draft import PartitionDraft
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, TopicImage

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
