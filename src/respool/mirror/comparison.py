"""Compares the partitions of two clusters: where each starts and ends on both sides, and the lag of the copy."""

from collections.abc import Sequence
from dataclasses import dataclass

from respool.cli.isolation import Isolation
from respool.cli.kafka import Cluster, OffsetRange, TopicInfo
from respool.mirror.target_topics import MIRROR_SETTING, TopicFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    topic: str
    partition: int
    # 'mirror', 'promoted' for a topic that is not a mirror, 'missing' without a copy, 'offline' without a leader.
    state: str
    source_start: int | None
    source_end: int | None
    target_start: int | None
    target_end: int | None

    @property
    def lag(self) -> int | None:
        if self.source_end is None or self.target_end is None:
            return None
        return self.source_end - self.target_end


def compare_partitions(
    source: Cluster, target: Cluster, wanted: TopicFilter
) -> list[PartitionStatus]:
    """All partitions of these topics of the source."""
    theirs, ours = source.topics(), target.topics()
    names = wanted.of(theirs)
    held = [name for name in names if name in ours]
    mirrors = {
        name: any(one.name == MIRROR_SETTING and one.value == "true" for one in settings)
        for name, settings in target.settings(held).items()
    }
    source_ranges = _ranges(source, [theirs[name] for name in names])
    target_ranges = _ranges(target, [ours[name] for name in held])
    found = []
    for name in names:
        for number in theirs[name].partitions:
            there, here = source_ranges.get((name, number)), target_ranges.get((name, number))
            if name not in ours or number not in ours[name].partitions:
                state = "missing"
            elif here is None:
                state = "offline"
            else:
                state = "mirror" if mirrors.get(name) else "promoted"
            found.append(
                PartitionStatus(
                    topic=name,
                    partition=number,
                    state=state,
                    source_start=there.start if there else None,
                    source_end=there.end if there else None,
                    target_start=here.start if here else None,
                    target_end=here.end if here else None,
                )
            )
    return found


def _ranges(cluster: Cluster, topics: Sequence[TopicInfo]) -> dict[tuple[str, int], OffsetRange]:
    return cluster.ranges(topics, isolation=Isolation.READ_UNCOMMITTED)
