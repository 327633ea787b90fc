"""Compares the partitions of two clusters: their first and last offsets on both sides, and the lag of the copy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.configs import ConfigResource, describe_configs
from respool.client.kafka.list_offsets import OffsetRange, offset_ranges
from respool.client.kafka.metadata import Place, TopicMetadata
from respool.client.kafka.view_descriptions import views_among
from respool.mirror.cluster_link import MIRROR_CONFIG
from respool.mirror.clusters import as_operator_errors
from respool.mirror.target_topics import TopicFilter


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
    """Compare all partitions of these source topics."""
    with as_operator_errors():
        at_source, at_target = source.refresh_all(), target.refresh_all()
        names = wanted.of(at_source)
        # They store nothing, and are not copied.
        views = views_among(source, names)
        names = [name for name in names if name not in views]
        held = [name for name in names if name in at_target]
        configs = describe_configs(target, ConfigResource.TOPIC, held)
        source_ranges = _ranges(source, [at_source[name] for name in names])
        target_ranges = _ranges(target, [at_target[name] for name in held])
    mirrors = {
        name
        for name, each in configs.items()
        if MIRROR_CONFIG in each and each[MIRROR_CONFIG].value == "true"
    }
    found = []
    for name in names:
        for number in at_source[name].leaders:
            there, here = source_ranges.get((name, number)), target_ranges.get((name, number))
            if name not in at_target or number not in at_target[name].leaders:
                state = "missing"
            elif here is None:
                state = "offline"
            else:
                state = "mirror" if name in mirrors else "promoted"
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


def _ranges(cluster: Cluster, topics: Sequence[TopicMetadata]) -> Mapping[Place, OffsetRange]:
    """The offset ranges of partitions that have a leader."""
    places = [(topic.name, number) for topic in topics for number in topic.leaders]
    return offset_ranges(cluster, places, isolation="read_uncommitted", led_only=True)
