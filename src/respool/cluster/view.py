"""The input of every decision about the cluster: the image, and the context of the decision.

The context has the time, the settings, and since when brokers have been missing, so the same view always gives the same
decision.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from respool.cluster import keys
from respool.cluster.image_reader import ImageReader, stray_keys
from respool.model.cluster import (
    BrokerEndpoint,
    ClusterImage,
    PartitionImage,
    RegistryEntry,
    StoredOverrides,
    TopicImage,
)
from respool.model.cluster_settings import ControllerSettings
from respool.model.ids import BrokerId, TopicId, TopicPartition
from respool.model.topic_config import Flush, TopicConfig
from respool.ports.metadata_store import Guard, StoredValue


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    # Its brokers are the live ones.
    image: ClusterImage
    # The revision of /controller that the deciding broker holds. Guards every write.
    controller_revision: int
    # Keys of partitions that belong to no topic, with their revisions.
    strays: Mapping[str, int] = field(default_factory=dict)
    # Topics whose partitions this broker is writing now, so that these are not strays.
    creating: frozenset[TopicId] = frozenset()
    missing_since_ms: Mapping[BrokerId, int] = field(default_factory=dict)
    now_ms: int = 0
    settings: ControllerSettings = field(default_factory=ControllerSettings)
    # Leadership returns to preferred leaders only at intervals, not at every change.
    is_leader_check_due: bool = True

    @property
    def brokers(self) -> Mapping[BrokerId, BrokerEndpoint]:
        return self.image.brokers

    @property
    def registry(self) -> Mapping[BrokerId, RegistryEntry]:
        return self.image.registry

    @property
    def topics(self) -> Mapping[str, TopicImage]:
        return self.image.topics

    @property
    def broker_overrides(self) -> Mapping[str, StoredOverrides]:
        """By broker id as text, as stored; "" for all brokers."""
        return self.image.stored_broker_overrides

    @property
    def guard(self) -> Guard:
        """Fences writes from a deposed controller."""
        return Guard(key=keys.CONTROLLER, revision=self.controller_revision)

    def partitions(self) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        """All partitions, in an order that does not depend on the store's."""
        for name in sorted(self.topics):
            topic = self.topics[name]
            for number, image in enumerate(topic.partitions):
                yield topic, number, image

    def partition(self, of: TopicPartition) -> tuple[TopicImage, PartitionImage] | None:
        topic = self.topics.get(of.topic)
        if topic is None or not 0 <= of.partition < len(topic.partitions):
            return None
        return topic, topic.partitions[of.partition]

    def is_live(self, broker: BrokerId) -> bool:
        return broker in self.brokers

    def can_join(self, broker: BrokerId) -> bool:
        """True if the broker is live and not shutting down, so that it may join an ISR."""
        endpoint = self.brokers.get(broker)
        return endpoint is not None and not endpoint.is_draining

    def can_lead(self, broker: BrokerId) -> bool:
        """True if the broker is live and will not leave. Others lead only partitions that no such broker can lead."""
        return self.can_join(broker) and not self.is_drained_or_removed(broker)

    def can_take(self, broker: BrokerId) -> bool:
        """True if the broker may get replicas."""
        return self.can_lead(broker)

    def is_dead_for_good(self, broker: BrokerId) -> bool:
        """True if the broker is down and removed, or has been missing for too long."""
        if self.is_live(broker):
            return False
        entry = self.registry.get(broker)
        if entry is not None and entry.is_removed:
            return True
        since = self.missing_since_ms.get(broker)
        return since is not None and self.now_ms - since >= self.settings.dead_after_ms

    def is_leaving(self, broker: BrokerId) -> bool:
        """True if the broker's replicas are to move to other brokers."""
        return self.is_drained_or_removed(broker) or self.is_dead_for_good(broker)

    def rack_of(self, broker: BrokerId) -> str | None:
        endpoint = self.brokers.get(broker)
        if endpoint is not None:
            return endpoint.rack
        entry = self.registry.get(broker)
        return entry.rack if entry is not None else None

    def candidates(self) -> dict[BrokerId, str | None]:
        """The brokers that may get replicas, with their racks; without racks if at least one of them has none.

        Racks are configured by restarting one broker after the other. Until all have one, the brokers without a rack
        would count as one rack, and the few others would get a replica of every partition.
        """
        racks = {one: self.brokers[one].rack for one in sorted(self.brokers) if self.can_take(one)}
        return racks if all(racks.values()) else dict.fromkeys(racks)

    def racks_of(self, brokers: Iterable[BrokerId]) -> dict[BrokerId, str | None]:
        """The racks over which replicas are spread, under the same condition as in `candidates`."""
        has_racks = all(self.candidates().values())
        return {one: self.rack_of(one) if has_racks else None for one in brokers}

    def is_drained_or_removed(self, broker: BrokerId) -> bool:
        """True if an operator has drained or removed the broker."""
        entry = self.registry.get(broker)
        return entry is not None and (entry.is_drained or entry.is_removed)


def read_view(
    values: Mapping[str, StoredValue],
    *,
    defaults: TopicConfig | None = None,
    controller_revision: int | None = None,
    creating: frozenset[TopicId] = frozenset(),
    missing_since_ms: Mapping[BrokerId, int] | None = None,
    now_ms: int = 0,
    settings: ControllerSettings | None = None,
    is_leader_check_due: bool = True,
) -> ClusterView:
    """A view of all keys of the store at one revision. `defaults` apply to settings that topics do not set.

    Without `controller_revision`, writes are guarded by the controller that the store shows.
    """
    reader = ImageReader(me=None, defaults=defaults or TopicConfig(respool_flush=Flush.OS))
    image = reader.read_all(values)
    return ClusterView(
        image=image,
        controller_revision=(
            image.controller_revision if controller_revision is None else controller_revision
        ),
        strays=stray_keys(values, image, reader.incomplete),
        creating=creating,
        missing_since_ms=missing_since_ms or {},
        now_ms=now_ms,
        settings=settings or ControllerSettings(),
        is_leader_check_due=is_leader_check_due,
    )
