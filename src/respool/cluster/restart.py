"""Before a broker registers anew, it takes back what its run before left in the store.

It does so itself, so that nobody needs to be controller for that. Until it is registered no leader takes it into an
ISR, so what it has taken back stays so: repeat with a new reading of the store until there is nothing to write.
"""

from collections.abc import Iterable
from dataclasses import replace
from uuid import UUID

from respool.cluster import keys
from respool.cluster.election import step_back
from respool.cluster.guarded_write import GuardedWrite, KeyChange, in_writes
from respool.model.cluster import TopicImage
from respool.model.ids import BrokerId, LeaderEpoch
from respool.ports.metadata_store import Guard


def step_back_everywhere(
    topics: Iterable[TopicImage],
    broker: BrokerId,
    *,
    was_clean: bool,
    left_folder: UUID | None = None,
) -> list[GuardedWrite]:
    """The writes by which a broker that is not registered stops leading; and leaves ISR and ELR, after a crash.

    `left_folder` is the data folder it had, if it has another one now.
    """
    changes = []
    for topic in topics:
        for number, image in enumerate(topic.partitions):
            after = step_back(
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
