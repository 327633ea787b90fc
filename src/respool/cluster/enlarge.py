"""Raises internal topics to their replication factor as soon as there are enough brokers.

Internal topics are created when the first client asks for a coordinator, possibly while one broker runs and the others
are about to start. Refusing would make clients wait for all brokers; keeping one replica would lose groups if one disk
fails. And since no operator requested these replicas, removing a broker needs no operator action for them.
"""

from collections import Counter
from collections.abc import Sequence

from respool.cluster.copy_limit import CopiesInProgress
from respool.cluster.partition_draft import PartitionDraft
from respool.cluster.placement import rack_crowding
from respool.cluster.reassignment import is_moving, retarget
from respool.cluster.view import ClusterView
from respool.model.cluster_settings import ControllerSettings
from respool.model.ids import BrokerId
from respool.model.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE


def enlarge_internal_topics(draft: PartitionDraft) -> None:
    """Begin as many copies as the limit allows; call it again until nothing changes."""
    view = draft.view
    wanted = _wanted(view.settings)
    if not wanted.keys() & view.topics.keys():
        return
    candidates = tuple(view.candidates())
    holders = {one for _, _, image in draft.partitions() for one in image.replicas}
    racks = view.racks_of((*holders, *candidates))
    load = Counter(one for _, _, image in draft.partitions() for one in image.target)
    copies = CopiesInProgress(view, draft.partitions())
    for topic, number, image in list(draft.partitions()):
        factor = min(wanted.get(topic.name, 0), len(candidates))
        # One reassignment at a time: the partition is checked again when the current one is complete.
        if len(image.replicas) >= factor or image.leader is None or is_moving(image):
            continue
        target = _with_more(image.replicas, factor, candidates=candidates, racks=racks, load=load)
        larger = retarget(image, target)
        if not copies.has_room_for(larger, limit=view.settings.copies_per_broker_max):
            continue
        copies.begin(larger)
        load.update(target[len(image.replicas) :])
        draft.change(topic, number, larger, f"gets replicas on {list(larger.adding)}")


def can_do_without(
    topic: str, broker: BrokerId, target: Sequence[BrokerId], view: ClusterView
) -> bool:
    """True if the replica of a drained or removed broker may be removed without a replacement.

    Only if every other broker of the cluster has a replica and is live: a broker that is down may have to be replaced,
    and this replica may be one of the last two that have all records.
    """
    if topic not in _wanted(view.settings):
        return False
    others = {one for one in view.registry if one != broker and not view.is_drained_or_removed(one)}
    return bool(others) and others <= {*target} and all(map(view.is_live, others))


def _with_more(
    replicas: tuple[BrokerId, ...],
    factor: int,
    *,
    candidates: Sequence[BrokerId],
    racks: dict[BrokerId, str | None],
    load: Counter[BrokerId],
) -> tuple[BrokerId, ...]:
    while len(replicas) < factor:
        free = [one for one in candidates if one not in replicas]
        if not free:
            break
        replicas = min(
            ((*replicas, one) for one in free),
            key=lambda option: (rack_crowding(option, racks), load[option[-1]], option[-1]),
        )
    return replicas


def _wanted(settings: ControllerSettings) -> dict[str, int]:
    return {
        CONSUMER_OFFSETS: settings.offsets_topic_replication_factor,
        TRANSACTION_STATE: settings.transaction_state_topic_replication_factor,
        SHARE_GROUP_STATE: settings.share_coordinator_state_topic_replication_factor,
    }
