"""Changes that a broker makes to its own replicas in the store: of failed logs, and before it registers again.

A broker with a failed log marks its replica offline; the controller decides what follows (`election.py`). The mark
stays over restarts, until the broker has opened the log without errors.

A broker that starts resigns from what its last run left in the store. It does so itself, so no controller is needed.
Until it is registered no leader takes it into an ISR: repeat with a new read of the store until nothing is left.
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

    The broker leaves the ISR if another running replica has everything. Otherwise it is the last replica with
    everything and stays in the ISR: the log may be repaired. A transient error does not mark it offline.
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
    """The partition after this broker's log was opened without errors; elections go by the ISR and ELR it kept."""
    return replace(image, offline=tuple(one for one in image.offline if one != broker))


def _has_heir(image: PartitionImage, broker: BrokerId, live: Collection[BrokerId]) -> bool:
    # ELR members have everything, too; a leader elected out of the ELR may be alone in the ISR.
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
    """The writes by which an unregistered broker resigns all leaderships, and after a crash leaves ISR and ELR.

    `left_folder`: the data folder of its last process, if it has another one now.
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
