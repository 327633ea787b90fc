"""What the cluster looks like: brokers, topics, who leads what. A value; a change makes a new one."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self
from uuid import UUID

from respool.model.ids import BrokerId, LeaderEpoch, TopicId
from respool.model.topic_config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    id: BrokerId
    host: str
    port: int
    rack: str | None = None
    # The revision the broker's registration has in the metadata store: a broker that comes back has a larger one.
    epoch: int = 0
    # It is about to leave: it gets no new work.
    is_draining: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    # None: nobody leads it now.
    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    # Not in the ISR any more, yet complete: nothing was committed since they left it (KIP-966).
    elr: tuple[BrokerId, ...] = ()
    # Who led last, when neither ISR nor ELR has anybody left.
    last_leader: BrokerId | None = None
    # The data folder in which the last leader has everything, where it was seen with another one since.
    last_folder: UUID | None = None
    # While replicas are being moved: `replicas` has those that come and those that go.
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    # And what they were before, for who changes their mind: some that go may only have come by another move.
    origin: tuple[BrokerId, ...] = ()
    # Those whose logs have failed, as they say themselves, until they have opened them in order again.
    # The controller leaves them in the ISR only where nobody else is: they were the last to have everything.
    offline: tuple[BrokerId, ...] = ()
    # What a change of it is guarded by; 0 where it was never written.
    revision: int = 0

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas there are to be in the end; those that stay come first in `replicas`."""
        if not self.removing:
            return self.replicas
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def serving_leader(self) -> BrokerId | None:
        """Who leads, and has a log to lead with: the controller may not have heard yet that it has none."""
        return None if self.leader in self.offline else self.leader

    def min_isr(self, asked: int) -> int:
        """How many must be in sync to commit: what the topic asks for, but no more than it has replicas.

        Those that are only being added do not count.
        """
        return max(1, min(asked, len(self.replicas) - len(self.adding)))

    def with_isr(
        self, isr: tuple[BrokerId, ...], *, min_isr: int, lost: Collection[BrokerId] = ()
    ) -> Self:
        """Itself with another ISR, and the ELR that follows from it. Whoever writes the one writes the other.

        Nothing is committed while the ISR is smaller than `min.insync.replicas`, nor while there is an ELR. So whoever
        leaves an ISR that is or becomes smaller than that has all that is committed, and keeps having it. `lost` are
        known to have lost part of their log.
        """
        elr: tuple[BrokerId, ...] = ()
        if len(isr) < self.min_isr(min_isr):
            complete = {*self.isr, *self.elr}.difference(isr, lost)
            elr = tuple(broker for broker in self.replicas if broker in complete)
        return replace(self, isr=isr, elr=elr)


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
    # What was set for brokers while they ran, by their ids as text; for all of them under no name.
    broker_overrides: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # The metadata store's revision this image shows.
    revision: int = 0

    def has_partition(self, topic: str, partition: int) -> bool:
        found = self.topics.get(topic)
        return found is not None and 0 <= partition < len(found.partitions)
