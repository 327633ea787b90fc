"""Source and mirror side by side: where each partition begins and ends on both, and how far the copy is behind."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from respool.cli import output
from respool.cli.isolation import Isolation
from respool.cli.kafka import Cluster, OffsetRange, TopicInfo
from respool.mirror.target_topics import MIRROR_SETTING, Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    topic: str
    partition: int
    # 'mirror', 'promoted' for a topic that is none (any more), 'missing' where there is no copy, 'offline' where
    # nobody leads it.
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


def find_status(source: Cluster, target: Cluster, wanted: Wanted) -> list[PartitionStatus]:
    """All partitions of those topics of the source."""
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


def print_status(found: Sequence[PartitionStatus], *, as_json: bool) -> None:
    if as_json:
        output.print_json({"partitions": [{**asdict(one), "lag": one.lag} for one in found]})
        return
    columns = (
        "topic", "partition", "state", "source start", "source end", "copy start", "copy end", "behind",
    )  # fmt: skip
    rows = [
        (
            one.topic, one.partition, one.state, one.source_start, one.source_end, one.target_start,
            one.target_end, one.lag,
        )
        for one in found
    ]  # fmt: skip
    output.print_rows(output.Columns(*columns, numbers=(columns[1], *columns[3:])), rows)


def _ranges(cluster: Cluster, topics: Sequence[TopicInfo]) -> dict[tuple[str, int], OffsetRange]:
    return cluster.ranges(topics, isolation=Isolation.READ_UNCOMMITTED)
