"""A topic as described in Metadata replies: its id and its partitions, with their leaders and replicas."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from threading import Lock
from types import MappingProxyType
from typing import Any, TypeAlias
from uuid import UUID

from respool.client.kafka.codes import Code, refused
from respool.client.kafka.errors import BrokerRefused, UnknownPartition

Address: TypeAlias = tuple[str, int]
# Topic and partition.
Place: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLeader:
    broker: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    name: str
    # None if the brokers do not support topic ids.
    id: UUID | None
    # Partition number -> its leader; None while it has none.
    leaders: Mapping[int, PartitionLeader | None]
    # Partition number -> its replicas, and the in-sync ones among them.
    replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    in_sync: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    is_internal: bool = False

    @property
    def partitions(self) -> int:
        return len(self.leaders)

    def leader_of(self, partition: int) -> PartitionLeader | None:
        """
        Raises:
            UnknownPartition: the topic has no such partition.
        """
        if partition not in self.leaders:
            raise UnknownPartition(self.name, partition, self.partitions)
        return self.leaders[partition]


class MetadataCache:
    """The latest metadata from the brokers: their addresses, the controller, and topics. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        # Replaced as a whole, never mutated.
        self.brokers: Mapping[int, Address] = MappingProxyType({})
        self.controller: int | None = None
        self.cluster_id: str | None = None
        self._topics: dict[str, TopicMetadata] = {}

    def copy(self) -> "MetadataCache":
        made = MetadataCache()
        with self._lock:
            made.brokers, made.controller = self.brokers, self.controller
            made.cluster_id = self.cluster_id
            for seen in self._topics.values():
                made.learn_topic(seen)
        return made

    def learn_brokers(self, reply: Any) -> bool:
        """Take over a Metadata reply; False, without changing the brokers, if it names none."""
        brokers = {int(one.node_id): (str(one.host), int(one.port)) for one in reply.brokers}
        with self._lock:
            if brokers:
                self.brokers = MappingProxyType(brokers)
            self.controller = int(reply.controller_id) if reply.controller_id >= 0 else None
            self.cluster_id = None if reply.cluster_id is None else str(reply.cluster_id)
        return bool(brokers)

    def learn_broker(self, broker: int, address: Address) -> None:
        with self._lock:
            self.brokers = MappingProxyType({**self.brokers, broker: address})

    def topic(self, name: str) -> TopicMetadata | None:
        return self._topics.get(name)

    def learn_topic(self, seen: TopicMetadata) -> TopicMetadata:
        """Merge `seen` with the cached metadata by leader epoch; return the result."""
        with self._lock:
            newer = newer_of(self._topics.get(seen.name), seen)
            self._topics[seen.name] = newer
        return newer

    def learn_topics(self, reply: Any) -> tuple[dict[str, TopicMetadata], dict[str, BrokerRefused]]:
        """Merge all topics of a Metadata reply; return the results, and the errors of the topics that have one."""
        topics: dict[str, TopicMetadata] = {}
        errors: dict[str, BrokerRefused] = {}
        for one in reply.topics:
            name = str(one.name)
            if one.error_code and one.error_code != Code.leader_not_available:
                errors[name] = refused(f"metadata request for topic {name!r}", one.error_code)
            else:
                topics[name] = self.learn_topic(topic_metadata_of(name, one))
        return topics, errors

    def retire(self, name: str, count: int) -> TopicMetadata:
        """The topic has only its first `count` partitions left."""
        with self._lock:
            known = self._topics[name]
            leaders = {number: one for number, one in known.leaders.items() if number < count}
            left = replace(known, leaders=MappingProxyType(leaders))
            self._topics[name] = left
        return left

    def forget(self, name: str) -> None:
        with self._lock:
            self._topics.pop(name, None)


def metadata_fields(names: Iterable[str] | None) -> dict[str, Any]:
    """The fields of a Metadata request for these topics, or for all. It creates no topic."""
    return {
        "topics": None if names is None else [{"topic_id": None, "name": one} for one in names],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def topic_metadata_of(name: str, answer: Any) -> TopicMetadata:
    """Convert one topic of a Metadata reply."""
    partitions = sorted(answer.partitions, key=lambda one: int(one.partition_index))
    return TopicMetadata(
        name=name,
        id=answer.topic_id,
        leaders=MappingProxyType({one.partition_index: _leader(one) for one in partitions}),
        replicas={one.partition_index: tuple(map(int, one.replica_nodes)) for one in partitions},
        in_sync={one.partition_index: tuple(map(int, one.isr_nodes)) for one in partitions},
        is_internal=bool(answer.is_internal),
    )


def newer_of(known: TopicMetadata | None, seen: TopicMetadata) -> TopicMetadata:
    """`seen`, but with no leader older than the known one: brokers learn of changes at different times."""
    if known is None or known.id != seen.id:
        return seen
    leaders = dict(seen.leaders)
    for partition, leader in seen.leaders.items():
        before = known.leaders.get(partition)
        if before is not None and leader is not None and leader.epoch < before.epoch:
            leaders[partition] = before
    # A broker that reports fewer partitions does not know the new ones yet; unless they were retired, see `retire`.
    for partition in known.leaders.keys() - seen.leaders.keys():
        leaders[partition] = known.leaders[partition]
    return replace(seen, leaders=MappingProxyType(dict(sorted(leaders.items()))))


def _leader(partition: Any) -> PartitionLeader | None:
    if partition.leader_id < 0:
        return None
    return PartitionLeader(broker=int(partition.leader_id), epoch=int(partition.leader_epoch))
