"""What the leader of a family notes in the partitions' keys when a topic's layout has changed. Pure.

- of a partition that was just sealed: where its producers' batches end;
- of one that takes others' records now: that it does, and up to where its readers are shown records, until all groups
  have read what the same keys got before, elsewhere.

The sealed ends are written first: once the heirs have the change's epoch, it is complete.
"""

from collections.abc import Mapping
from dataclasses import replace

from respool.cluster import keys
from respool.cluster.guarded_write import GuardedWrite, KeyChange, in_writes
from respool.cluster.layout_requests import needs_handover
from respool.model.cluster import PartitionImage, TopicImage
from respool.model.ids import Offset
from respool.model.layouts.partition_layout import Handover, PartitionLayout, ReaderHold
from respool.ports.metadata_store import Guard


def handover_writes(
    topic: TopicImage, logs: Mapping[int, tuple[Offset, Offset]], *, now_ms: int
) -> list[GuardedWrite]:
    """The writes, in this order. `logs`: the start and end of each log of the family."""
    sealed, heirs = handovers(topic, logs, now_ms=now_ms)
    changes = [_change(topic, number, handover) for number, handover in (sealed | heirs).items()]
    guard = Guard(key=keys.topic_key(topic.name), revision=topic.revision)
    assert topic.layout is not None
    why = f"{topic.name!r}: layout {topic.layout.epoch} is in effect"
    return in_writes(changes, guard=guard, why=why)


def held_ends(
    topic: TopicImage, logs: Mapping[int, tuple[Offset, Offset]], *, now_ms: int
) -> dict[int, Offset]:
    """Where readers of each partition are held according to the notes."""
    _, heirs = handovers(topic, logs, now_ms=now_ms)
    return {number: one.hold.end for number, one in heirs.items() if one.hold is not None}


def handovers(
    topic: TopicImage, logs: Mapping[int, tuple[Offset, Offset]], *, now_ms: int
) -> tuple[dict[int, Handover], dict[int, Handover]]:
    """What is to be noted of sealed partitions, and of the others."""
    layout = topic.layout
    assert layout is not None
    sealed: dict[int, Handover] = {}
    heirs: dict[int, Handover] = {}
    for number, (_, end) in logs.items():
        image = topic.partitions[number]
        before = image.handover
        if before is not None and before.epoch == layout.epoch:
            continue
        if layout.is_sealed(number):
            if before is not None and before.sealed_end is not None:
                # It was sealed before.
                continue
            # What it took after a growth is still to be read after what its keys had got elsewhere.
            held = None if before is None else before.hold
            sealed[number] = Handover(layout.epoch, sealed_end=end, hold=held)
        elif needs_handover(layout, number):
            hold = _hold(topic, layout, number, logs, now_ms=now_ms)
            heirs[number] = Handover(layout.epoch, hold=hold)
        elif before is not None:
            # It takes records for itself alone again; what it took for others is still to be read after theirs.
            heirs[number] = Handover(layout.epoch, hold=before.hold)
    return sealed, heirs


def without_hold(topic: TopicImage, number: int, *, why: str) -> GuardedWrite:
    """The write that shows readers everything."""
    image = topic.partitions[number]
    assert image.handover is not None
    change = _change(topic, number, image.handover._replace(hold=None))
    (write,) = in_writes(
        [change], guard=Guard(key=keys.topic_key(topic.name), revision=topic.revision), why=why
    )
    return write


def _hold(
    topic: TopicImage,
    layout: PartitionLayout,
    number: int,
    logs: Mapping[int, tuple[Offset, Offset]],
    *,
    now_ms: int,
) -> ReaderHold | None:
    before = topic.partitions[number].handover
    held = None if before is None else before.hold
    awaited = {} if held is None else dict(held.awaited)
    if topic.config.respool_shrink_barrier_ms > 0:
        for source in layout.sources(number):
            if source not in logs:
                # Retired: it was empty.
                continue
            start, end = logs[source]
            if end > start:
                awaited[source] = end
    if not awaited:
        return None
    if held is not None and awaited == dict(held.awaited):
        return held
    _, log_end = logs[number]
    # What readers were shown stays shown.
    end = log_end if held is None else held.end
    return ReaderHold(end=end, since_ms=now_ms, awaited=tuple(sorted(awaited.items())))


def _change(topic: TopicImage, number: int, handover: Handover) -> KeyChange:
    image: PartitionImage = topic.partitions[number]
    return KeyChange(
        key=keys.partition_key(topic.id, number),
        value=keys.encode_partition(replace(image, handover=handover)),
        revision=image.revision,
        why=f"{topic.name}-{number}",
    )
