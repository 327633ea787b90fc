"""What the cluster looks like: brokers, topics, who leads what. A value; a change makes a new one."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from respool.model.ids import BrokerId, LeaderEpoch, TopicId
from respool.model.topic_config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    id: BrokerId
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    # None: nobody leads it now.
    leader: BrokerId | None
    leader_epoch: LeaderEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    name: str
    id: TopicId
    partitions: tuple[PartitionImage, ...]
    # What was set for this topic itself; all else comes from the broker's defaults.
    overrides: Mapping[str, str]
    config: TopicConfig
    internal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    cluster_id: str
    brokers: Mapping[BrokerId, BrokerEndpoint]
    controller: BrokerId
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[TopicId, TopicImage] = field(default_factory=dict)
    # The metadata store's revision this image shows.
    revision: int = 0
