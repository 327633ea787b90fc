"""Changes of how many of a topic's partitions take records: shrink, grow after a shrink, retire. Pure.

A change has two steps, each one guarded write, and nothing is half done between them:

1. The record gets the new family. The controller gives each family the same replicas and one leader (`families.py`),
   while records go where they always went.
2. Once that holds, the record gets the new number of active partitions. Their leaders do the rest.

Where all replicas are alike already, as on a single broker, one write makes both steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from respool.cluster import keys
from respool.cluster.guarded_write import GuardedWrite, KeyChange, in_writes
from respool.cluster.keys import TopicRecord
from respool.cluster.reassignment import is_moving
from respool.cluster.view import ClusterView
from respool.model.cluster import PartitionImage, TopicImage
from respool.model.errors import (
    InvalidConfig,
    InvalidPartitions,
    LeaderNotAvailable,
    PolicyViolation,
    ReassignmentInProgress,
)
from respool.model.ids import LeaderEpoch
from respool.model.layouts.partition_layout import (
    COUNTS_MAX,
    PartitionLayout,
    common_family,
    divisors,
)
from respool.model.topic_config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChange:
    writes: list[GuardedWrite]
    # False: replicas are to be aligned first; ask again.
    is_complete: bool


def shrink_topic(
    view: ClusterView, topic: TopicImage, *, to: int, is_unkeyed: bool = False
) -> LayoutChange:
    """Seal the partitions from `to` on. `is_unkeyed`: a key's new records may go to another partition.

    Raises:
        InvalidPartitions: to a number that is not below the present one, or would split keys.
        PolicyViolation: the topic cannot be shrunk.
        LeaderNotAvailable, ReassignmentInProgress: not now.
    """
    active = topic.active_count
    if not 0 < to < active:
        raise InvalidPartitions(
            f"{topic.name!r} writes to {active} partitions; a smaller number is at least 1 and at most {active - 1}, "
            f"not {to}"
        )
    if active % to and not is_unkeyed:
        raise InvalidPartitions(
            f"{topic.name!r} writes to {active} partitions: {to} would split keys. Numbers that keep every key in one "
            f"partition: {', '.join(map(str, divisors(active)))}"
        )
    check_can_shrink(topic)
    return _relaid(view, topic, to)


def unseal(view: ClusterView, topic: TopicImage, *, to: int) -> LayoutChange:
    """Let more of the existing partitions take records again."""
    assert topic.layout is not None
    assert topic.active_count < to <= len(topic.partitions)
    return _relaid(view, topic, to)


def check_can_shrink(topic: TopicImage) -> None:
    """
    Raises:
        PolicyViolation: not this topic.
    """
    why = _why_not_shrunk(topic.config)
    if topic.internal:
        why = "it belongs to the broker, and its partitions are where groups and transactions are kept"
    if why is not None:
        raise PolicyViolation(f"{topic.name!r} cannot be shrunk: {why}")


def check_stays_shrunk(topic: TopicImage, config: TopicConfig) -> None:
    """
    Raises:
        InvalidConfig: with these settings a topic cannot be shrunk, and this one was.
    """
    why = None if topic.layout is None else _why_not_shrunk(config)
    if why is not None:
        raise InvalidConfig(
            f"{topic.name!r} was shrunk, so its settings cannot be changed to these: {why}"
        )


def _why_not_shrunk(config: TopicConfig) -> str | None:
    if config.respool_mirror:
        return "it is a mirror: its partitions are those of its source"
    if config.is_compacted:
        return "it is compacted: an old value in a sealed partition would outlive the newer one in its heir"
    return None


def with_common_family(view: ClusterView, topic: TopicImage, count: int) -> LayoutChange | None:
    """The first step of a change to this number of partitions; None if it is done."""
    before = topic.layout or PartitionLayout.unchanged(len(topic.partitions))
    layout = replace(before, family=common_family(before, count))
    _check_now(view, topic)
    if is_aligned(topic, layout):
        return None
    # Once the record has the family, only the controller has something to do.
    writes = [] if topic.layout == layout else [_record_write(view, topic, layout)]
    return LayoutChange(writes=writes, is_complete=False)


def _relaid(view: ClusterView, topic: TopicImage, count: int) -> LayoutChange:
    first_step = with_common_family(view, topic, count)
    if first_step is not None:
        return first_step
    return LayoutChange(writes=[_record_write(view, topic, relaid(topic, count))], is_complete=True)


def relaid(topic: TopicImage, count: int) -> PartitionLayout:
    """The topic's layout with this number of active partitions."""
    before = topic.layout or PartitionLayout.unchanged(len(topic.partitions))
    counts = tuple(dict.fromkeys((*before.counts, count)))
    if len(counts) > COUNTS_MAX:
        raise PolicyViolation(
            f"{topic.name!r} has had {COUNTS_MAX} different numbers of partitions already"
        )
    return replace(
        before,
        active=count,
        named=max(before.named, count),
        family=common_family(before, count),
        epoch=before.epoch + 1,
        counts=counts,
        previous=before.active,
    )


def is_aligned(topic: TopicImage, layout: PartitionLayout) -> bool:
    """True if the partitions of each family have the same replicas and the same leader."""
    return all(
        _is_like(image, topic.partitions[layout.root(number)])
        for number, image in enumerate(topic.partitions)
    )


def _is_like(image: PartitionImage, root: PartitionImage) -> bool:
    return (
        image.replicas == root.replicas
        and not is_moving(image)
        and image.leader is not None
        and image.leader == root.leader
    )


def _check_now(view: ClusterView, topic: TopicImage) -> None:
    moving = [number for number, one in enumerate(topic.partitions) if is_moving(one)]
    if moving and topic.layout is None:
        raise ReassignmentInProgress(
            f"replicas of {topic.name!r} are being moved, of partitions {_named(moving)}: try again when that is done"
        )
    leaderless = [
        number
        for number, one in enumerate(topic.partitions)
        if one.serving_leader is None or not view.is_live(one.serving_leader)
    ]
    if leaderless:
        raise LeaderNotAvailable(
            f"partitions {_named(leaderless)} of {topic.name!r} have no leader now"
        )
    if not is_handed_over(topic):
        raise ReassignmentInProgress(
            f"the last change of {topic.name!r} is not complete: try again in a moment"
        )
    older = sorted(one.id for one in view.brokers.values() if not one.knows_layouts)
    if older:
        raise PolicyViolation(
            f"brokers {_named(older)} run an older version, which would write to sealed partitions: upgrade them first"
        )


def is_handed_over(topic: TopicImage) -> bool:
    """True if the leaders have noted the last change."""
    layout = topic.layout
    if layout is None or layout.epoch == 0:
        return True
    return all(
        image.handover is not None and image.handover.epoch == layout.epoch
        for number, image in enumerate(topic.partitions)
        if needs_handover(layout, number)
    )


def needs_handover(layout: PartitionLayout, number: int) -> bool:
    """True if the leader notes changes of the layout: others' records are, or were, appended to the partition."""
    return not layout.is_sealed(number) and any(
        layout.heir(one) == number and len(layout.lineage(one)) > 1 for one in range(layout.named)
    )


def retire_topic(view: ClusterView, topic: TopicImage) -> list[GuardedWrite]:
    """The writes that take a topic's sealed partitions away; they are gone once the first one has succeeded.

    That they are empty, and read by all groups, is for the caller to check.

    Raises:
        InvalidPartitions: no partition is sealed.
    """
    layout, count = topic.layout, len(topic.partitions)
    if layout is None or layout.active == count:
        raise InvalidPartitions(f"{topic.name!r} has no sealed partitions")
    retired = topic.partitions[layout.active :]
    first_epoch = max(layout.first_epoch, *(one.leader_epoch + 1 for one in retired))
    record = TopicRecord(
        id=topic.id,
        overrides=topic.overrides,
        partition_count=layout.active,
        layout=replace(layout, first_epoch=LeaderEpoch(first_epoch)),
    )
    why = f"partitions {layout.active} to {count - 1} of topic {topic.name!r} are retired"
    # A write of its own: if a partition's key went first, the topic would seem to be incomplete.
    first = in_writes([_record_change(topic, record)], guard=view.guard, why=why)
    # Guarded: the topic may grow again in between. Keys that were changed since are collected as strays.
    deletions = [
        KeyChange(
            key=keys.partition_key(topic.id, number),
            value=None,
            revision=image.revision,
            why=topic.name,
        )
        for number, image in enumerate(retired, start=layout.active)
    ]
    return [*first, *in_writes(deletions, guard=view.guard, why=why)]


def _record_write(view: ClusterView, topic: TopicImage, layout: PartitionLayout) -> GuardedWrite:
    record = TopicRecord(
        id=topic.id,
        overrides=topic.overrides,
        partition_count=len(topic.partitions),
        layout=layout,
    )
    (write,) = in_writes(
        [_record_change(topic, record)],
        guard=view.guard,
        why=f"topic {topic.name!r} has {layout.active} active partitions, in families by {layout.family}",
    )
    return write


def _record_change(topic: TopicImage, record: TopicRecord) -> KeyChange:
    return KeyChange(
        key=keys.topic_key(topic.name),
        value=keys.encode_topic(record),
        revision=topic.revision,
        why=topic.name,
    )


def _named(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return f"{shown} and {len(numbers) - 10} more" if len(numbers) > 10 else shown
