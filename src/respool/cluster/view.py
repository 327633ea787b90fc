"""What the controller decides on: everything it needs from the metadata store, as it was at one revision.

The time is part of it, and since when brokers are missing: deciding twice on one view gives the same.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from respool.cluster import keys
from respool.cluster.keys import BrokerOverrides, RegistryEntry
from respool.model.cluster import BrokerEndpoint, PartitionImage
from respool.model.ids import BrokerId, TopicId, TopicPartition
from respool.ports.metadata_store import Guard, StoredValue


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    # A broker missing for so long is taken for dead for good: its replicas are made anew elsewhere.
    dead_after_ms: int = 10 * 60_000
    # So many partitions are copied to one broker, and so many from one, at a time.
    copies_per_broker_max: int = 8
    # More than this part of the partitions that should be led by a broker is led by others: leaders go back.
    leader_imbalance_max: float = 0.10
    # Replicas of the brokers' own topics.
    offsets_topic_replication_factor: int = 3
    transaction_state_topic_replication_factor: int = 3
    # Where unclean election is allowed: so long those who have everything may take to come back.
    unclean_wait_ms: int = 30_000
    # Partitions that no topic counts for so long are left of a creation that was broken off.
    stray_after_ms: int = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """What of a topic's settings the controller goes by."""

    min_isr: int = 1
    # unclean.leader.election.enable
    is_unclean_allowed: bool = False
    # respool.flush=always: what is committed is on disk, so a crash takes nothing of it away.
    is_synced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    name: str
    id: TopicId
    partitions: tuple[PartitionImage, ...]
    overrides: Mapping[str, str] = field(default_factory=dict)
    rules: TopicRules = TopicRules()
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    # The revision of /controller as held by who decides. Every write is guarded by it.
    controller_revision: int
    # Those that run now.
    brokers: Mapping[BrokerId, BrokerEndpoint]
    registry: Mapping[BrokerId, RegistryEntry]
    topics: Mapping[str, TopicView]
    # By the brokers' ids as text; of all of them under no name.
    broker_overrides: Mapping[str, BrokerOverrides] = field(default_factory=dict)
    # Keys of partitions that no topic counts, with their revisions.
    strays: Mapping[str, int] = field(default_factory=dict)
    # Topics whose partitions this broker is writing now: theirs are no strays yet.
    creating: frozenset[TopicId] = frozenset()
    missing_since_ms: Mapping[BrokerId, int] = field(default_factory=dict)
    now_ms: int = 0
    settings: ClusterSettings = ClusterSettings()
    # Leaders go back to where they should be only now and then, not at every change.
    is_leader_check_due: bool = True

    @property
    def guard(self) -> Guard:
        """Nothing is written by a controller that is none any more."""
        return Guard(key=keys.CONTROLLER, revision=self.controller_revision)

    def partitions(self) -> Iterator[tuple[TopicView, int, PartitionImage]]:
        """Every partition, in an order that does not depend on the store's."""
        for name in sorted(self.topics):
            topic = self.topics[name]
            for number, image in enumerate(topic.partitions):
                yield topic, number, image

    def partition(self, of: TopicPartition) -> tuple[TopicView, PartitionImage] | None:
        topic = self.topics.get(of.topic)
        if topic is None or not 0 <= of.partition < len(topic.partitions):
            return None
        return topic, topic.partitions[of.partition]

    def is_live(self, broker: BrokerId) -> bool:
        return broker in self.brokers

    def can_join(self, broker: BrokerId) -> bool:
        """It runs and is not about to stop, so it may come into an ISR."""
        endpoint = self.brokers.get(broker)
        return endpoint is not None and not endpoint.is_draining

    def can_lead(self, broker: BrokerId) -> bool:
        """It runs and will go on running here. Others lead only where nobody else can."""
        return self.can_join(broker) and not self.is_sent_away(broker)

    def can_take(self, broker: BrokerId) -> bool:
        """It may be given replicas."""
        return self.can_lead(broker)

    def is_given_up(self, broker: BrokerId) -> bool:
        """It does not run, and nobody waits for it any more."""
        if self.is_live(broker):
            return False
        entry = self.registry.get(broker)
        if entry is not None and entry.is_removed:
            return True
        since = self.missing_since_ms.get(broker)
        return since is not None and self.now_ms - since >= self.settings.dead_after_ms

    def is_leaving(self, broker: BrokerId) -> bool:
        """Its replicas are to go elsewhere."""
        return self.is_sent_away(broker) or self.is_given_up(broker)

    def rack_of(self, broker: BrokerId) -> str | None:
        endpoint = self.brokers.get(broker)
        if endpoint is not None:
            return endpoint.rack
        entry = self.registry.get(broker)
        return entry.rack if entry is not None else None

    def takers(self) -> dict[BrokerId, str | None]:
        """The brokers that may be given replicas, with their racks; with none while one of them names none.

        Racks are told one broker after the other, by restarts. Until all have, those without would be one rack, and the
        few others would get a replica of every partition.
        """
        racks = {one: self.brokers[one].rack for one in sorted(self.brokers) if self.can_take(one)}
        return racks if all(racks.values()) else dict.fromkeys(racks)

    def racks_of(self, brokers: Iterable[BrokerId]) -> dict[BrokerId, str | None]:
        """Where these stand, as far as replicas are spread by it: see `takers`."""
        is_told = all(self.takers().values())
        return {one: self.rack_of(one) if is_told else None for one in brokers}

    def is_sent_away(self, broker: BrokerId) -> bool:
        """An operator has drained or removed it."""
        entry = self.registry.get(broker)
        return entry is not None and (entry.is_drained or entry.is_removed)


def read_view(
    values: Mapping[str, StoredValue],
    *,
    controller_revision: int,
    rules_of: Callable[[Mapping[str, str]], TopicRules],
    creating: frozenset[TopicId] = frozenset(),
    missing_since_ms: Mapping[BrokerId, int] | None = None,
    now_ms: int = 0,
    settings: ClusterSettings | None = None,
    is_leader_check_due: bool = True,
) -> ClusterView:
    """A view of all keys of the store, as they were together."""
    brokers: dict[BrokerId, BrokerEndpoint] = {}
    registry: dict[BrokerId, RegistryEntry] = {}
    overrides: dict[str, BrokerOverrides] = {}
    topics: dict[str, TopicView] = {}
    strays: dict[str, int] = {}
    for key, stored in values.items():
        if key.startswith(keys.BROKERS):
            broker = BrokerId(int(key.removeprefix(keys.BROKERS)))
            registration = keys.decode_broker(broker, stored.value, revision=stored.revision)
            brokers[broker] = registration.endpoint
        elif key.startswith(keys.REGISTRY):
            broker = BrokerId(int(key.removeprefix(keys.REGISTRY)))
            registry[broker] = keys.decode_registry(stored.value, revision=stored.revision)
        elif key.startswith(keys.BROKER_CONFIGS):
            name = key.removeprefix(keys.BROKER_CONFIGS)
            overrides[name] = keys.decode_broker_config(stored.value, revision=stored.revision)
        elif key.startswith(keys.PARTITIONS):
            strays[key] = stored.revision
    for key, stored in values.items():
        if key.startswith(keys.TOPICS):
            name = key.removeprefix(keys.TOPICS)
            record = keys.decode_topic(stored.value)
            own = [keys.partition_key(record.id, one) for one in range(record.partition_count)]
            there = [one for one in own if one in values]
            for one in there:
                del strays[one]
            if len(there) < len(own):
                # The changes of one write may come one by one: it is about to come, or to go.
                continue
            topics[name] = TopicView(
                name=name,
                id=record.id,
                partitions=tuple(
                    keys.decode_partition(values[one].value, revision=values[one].revision)
                    for one in own
                ),
                overrides=record.overrides,
                rules=rules_of(record.overrides),
                revision=stored.revision,
            )
    return ClusterView(
        controller_revision=controller_revision,
        brokers=brokers,
        registry=registry,
        topics=topics,
        broker_overrides=overrides,
        strays=strays,
        creating=creating,
        missing_since_ms=missing_since_ms or {},
        now_ms=now_ms,
        settings=settings or ClusterSettings(),
        is_leader_check_due=is_leader_check_due,
    )
