"""A topic as brokers show it: its id, its partitions, and who leads them."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from uuid import UUID

from respool.client.kafka.errors import UnknownPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    broker: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMap:
    """A topic as metadata show it."""

    name: str
    # None with brokers that do not have ids.
    id: UUID | None
    # Partition number -> who leads it; None while nobody does.
    leaders: Mapping[int, Leader | None]

    @property
    def partitions(self) -> int:
        return len(self.leaders)

    def leader_of(self, partition: int) -> Leader | None:
        """
        Raises:
            UnknownPartition: there is none of this number.
        """
        if partition not in self.leaders:
            raise UnknownPartition(self.name, partition, self.partitions)
        return self.leaders[partition]


def topic_map_of(name: str, answer: Any) -> TopicMap:
    """What a reply to Metadata says of one topic."""
    partitions = sorted(answer.partitions, key=lambda one: int(one.partition_index))
    leaders = {one.partition_index: _leader(one) for one in partitions}
    return TopicMap(name=name, id=answer.topic_id, leaders=MappingProxyType(leaders))


def newer_of(known: TopicMap | None, seen: TopicMap) -> TopicMap:
    """What was just seen, but no leader older than one that is known: brokers learn of changes one after the other."""
    if known is None or known.id != seen.id:
        return seen
    leaders = dict(seen.leaders)
    for partition, leader in seen.leaders.items():
        before = known.leaders.get(partition)
        if before is not None and leader is not None and leader.epoch < before.epoch:
            leaders[partition] = before
    # A topic's partitions never become fewer; a broker that shows fewer has not heard yet.
    for partition in known.leaders.keys() - seen.leaders.keys():
        leaders[partition] = known.leaders[partition]
    return TopicMap(
        name=seen.name, id=seen.id, leaders=MappingProxyType(dict(sorted(leaders.items())))
    )


def _leader(partition: Any) -> Leader | None:
    if partition.leader_id < 0:
        return None
    return Leader(broker=int(partition.leader_id), epoch=int(partition.leader_epoch))
