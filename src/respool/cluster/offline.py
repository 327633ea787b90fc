"""Replicas whose logs have failed, on brokers that run: who says so, and what becomes of the partition.

The broker that has the log tells the store, of itself only; what follows is the controller's business (`election.py`).
It stays told over restarts, until the broker has opened the log in order again.
"""

from collections.abc import Collection
from dataclasses import replace

from respool.cluster.election import step_back
from respool.model.cluster import PartitionImage, TopicRules
from respool.model.ids import BrokerId, LeaderEpoch


def given_up(
    image: PartitionImage,
    broker: BrokerId,
    rules: TopicRules,
    *,
    live: Collection[BrokerId],
    is_passing: bool = False,
) -> PartitionImage:
    """The partition when this replica's log has failed; itself, when nothing is to change.

    It is left to the others where one that runs has everything. Else this broker was the last to have it, and keeps its
    place in the ISR: the log may be in order again some day. A trouble that is passing is not told.
    """
    assert broker in image.replicas
    after = image
    if broker in image.isr and _has_heir(image, broker, live):
        after = step_back(image, broker, rules, was_clean=False)
        bump = after.leader != image.leader
        after = replace(after, leader_epoch=LeaderEpoch(image.leader_epoch + bump))
    if broker in image.offline or is_passing:
        return after
    return replace(after, offline=(*image.offline, broker))


def taken_back(image: PartitionImage, broker: BrokerId) -> PartitionImage:
    """The partition when this replica's log is in order again; who leads is decided by what was kept of it."""
    return replace(image, offline=tuple(one for one in image.offline if one != broker))


def _has_heir(image: PartitionImage, broker: BrokerId, live: Collection[BrokerId]) -> bool:
    # Who is eligible has all that is committed too; elected out of the ELR itself, it may be the only one in sync.
    return any(
        one in live and one not in image.offline
        for one in (*image.isr, *image.elr)
        if one != broker
    )
