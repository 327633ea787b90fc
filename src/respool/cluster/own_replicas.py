"""Changes that a broker makes to its own replicas in the store: after a log failed, and before it registers again.

A broker with a failed log marks its replica offline; the controller decides what follows (`election.py`). The mark
survives restarts, until the broker has opened the log without errors.

A starting broker resigns from what its last process left in the store. It does so itself, so no controller is needed.
Until it has registered, no leader adds it to an ISR: repeat with a new read of the store until nothing is left.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from uuid import UUID

from respool.cluster import keys
from respool.cluster.election import resign
from respool.cluster.guarded_write import GuardedWrite, KeyChange, in_writes
from respool.model.cluster import PartitionImage, TopicImage, TopicRules
from respool.model.ids import BrokerId, LeaderEpoch
from respool.ports.metadata_store import Guard


def mark_offline(
    image: PartitionImage,
    broker: BrokerId,
    rules: TopicRules,
    *,
    live: Collection[BrokerId],
    is_passing: bool = False,
) -> PartitionImage:
    """The partition after this broker's log has failed; the same image if nothing changes.

    The broker leaves the ISR if another live replica has all records. Otherwise it is the last replica with all records
    and stays in the ISR: the log may be repaired. A transient error does not mark it offline.
    """
    assert broker in image.replicas
    after = image
    if broker in image.isr and _has_heir(image, broker, live):
        after = resign(image, broker, rules, was_clean=False)
        bump = after.leader != image.leader
        after = replace(after, leader_epoch=LeaderEpoch(image.leader_epoch + bump))
    if broker in image.offline or is_passing:
        return after
    return replace(after, offline=(*image.offline, broker))


def clear_offline(image: PartitionImage, broker: BrokerId) -> PartitionImage:
    """The partition after this broker opened its log without errors; elections use the ISR and ELR that it kept."""
    return replace(image, offline=tuple(one for one in image.offline if one != broker))


def _has_heir(image: PartitionImage, broker: BrokerId, live: Collection[BrokerId]) -> bool:
    # ELR members have all records, too; a leader elected from the ELR may be alone in the ISR.
    return any(
        one in live and one not in image.offline
        for one in (*image.isr, *image.elr)
        if one != broker
    )


# -- restart -----------------------------------------------------------------------------------------------------------


def resign_everywhere(
    topics: Iterable[TopicImage],
    broker: BrokerId,
    *,
    was_clean: bool,
    left_folder: UUID | None = None,
) -> list[GuardedWrite]:
    """The writes with which an unregistered broker resigns its leaderships and, after a crash, leaves ISR and ELR.

    `left_folder` is the data folder of its last process, if the broker uses another one now.
    """
    changes = []
    for topic in topics:
        for number, image in enumerate(topic.partitions):
            after = resign(
                image,
                broker,
                topic.rules,
                was_clean=was_clean,
                left_folder=left_folder,
            )
            if after == image:
                continue
            bump = after.leader != image.leader
            after = replace(after, leader_epoch=LeaderEpoch(image.leader_epoch + bump))
            changes.append(
                KeyChange(
                    key=keys.partition_key(topic.id, number),
                    value=keys.encode_partition(after),
                    revision=image.revision,
                    why=f"{topic.name}-{number}",
                )
            )
    how = "cleanly" if was_clean else "by a crash"
    return in_writes(
        changes,
        guard=Guard(key=keys.broker_key(broker), revision=0),
        why=f"broker {broker} starts again after its last run ended {how}",
    )
