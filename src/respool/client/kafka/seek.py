"""Resolves seek targets to offsets of a topic's partitions."""

from collections.abc import Mapping

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.list_offsets import Isolation, OffsetAt, offsets_for
from respool.model.seek_target import AtTime, SeekTarget, clamp, resolve


def resolve_target(
    cluster: Cluster,
    topic: str,
    target: SeekTarget,
    held: Mapping[int, tuple[int, int]],
    *,
    isolation: Isolation = "read_committed",
) -> dict[int, int]:
    """The target offset of each partition, clamped to its range; `held` is partition -> (first offset, end offset).

    Raises:
        UnknownTopic, UnknownPartition, BrokerRefused, BrokerUnreachable
    """
    found: dict[int, OffsetAt | None] = {}
    if isinstance(target, AtTime):
        found = offsets_for(cluster, topic, held, target.ms, isolation=isolation)
    offsets = {}
    for partition, (low, high) in held.items():
        at = found.get(partition)
        offset = resolve(target, low=low, high=high, at_time=None if at is None else at.offset)
        offsets[partition] = clamp(offset, low=low, high=high)
    return offsets
