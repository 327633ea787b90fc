"""The image of the cluster: brokers, topics, partitions, and the revisions that guard changes to them.

An image is immutable; a change creates a new one.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Self
from uuid import UUID

from respool.model.errors import PolicyViolation
from respool.model.group_config import GroupConfig
from respool.model.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from respool.model.layouts.partition_layout import Handover, PartitionLayout
from respool.model.security.acl import AclImage
from respool.model.security.delegation_token import DelegationToken
from respool.model.security.principal import CLIENT_LISTENER
from respool.model.security.quota import QuotaImage
from respool.model.security.scram_credential import User
from respool.model.topic_config import Flush, TopicConfig
from respool.model.where import Where

NO_CONTROLLER = BrokerId(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEndpoint:
    id: BrokerId
    host: str
    port: int
    rack: str | None = None
    # The broker epoch: the revision of its registration in the metadata store, which grows with every registration.
    epoch: int = 0
    # It is shutting down: it gets no new replicas or leaderships.
    is_draining: bool = False
    # It authorizes requests, as brokers of older versions do not.
    knows_acls: bool = True
    # Its version knows layouts of partitions: it leads sealed partitions as they must be led.
    knows_layouts: bool = True
    # The addresses of its other listeners, by their names. `host` and `port` are those of `listen`.
    listeners: tuple[tuple[str, str, int], ...] = ()

    def address(self, listener: str) -> tuple[str, int] | None:
        """Where clients of this listener reach the broker; None: it has no such listener."""
        if listener == CLIENT_LISTENER:
            return self.host, self.port
        for name, host, port in self.listeners:
            if name == listener:
                return host, port
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    # None: there is no leader now.
    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    # Eligible leader replicas (KIP-966): not in the ISR, but nothing was committed since they left it.
    elr: tuple[BrokerId, ...] = ()
    # The last leader, if ISR and ELR are empty.
    last_leader: BrokerId | None = None
    # The data folder in which the last leader has all records, if it has registered with another one since.
    last_folder: UUID | None = None
    # During a reassignment, `replicas` includes both the adding and the removing ones.
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    # The replicas before the reassignment, for its cancellation: a removing replica may come from an earlier target.
    origin: tuple[BrokerId, ...] = ()
    # Replicas with failed logs, as reported by their brokers, until the logs have been opened without errors. The
    # controller leaves them in the ISR only if no other replica is in it: they were the last to have all records.
    offline: tuple[BrokerId, ...] = ()
    # Set once a change of the topic's layout has concerned the partition.
    handover: Handover | None = None
    # The revision of the partition's key, which guards changes; 0: never written.
    revision: int = 0

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas after the reassignment."""
        if not self.removing:
            return self.replicas
        return tuple(broker for broker in self.replicas if broker not in self.removing)

    @property
    def serving_leader(self) -> BrokerId | None:
        """The leader, unless its log has failed and the controller has not reacted yet."""
        return None if self.leader in self.offline else self.leader

    def min_isr(self, asked: int) -> int:
        """The ISR size needed to commit: min.insync.replicas, capped at the number of replicas.

        Replicas that are being added do not count.
        """
        return max(1, min(asked, len(self.replicas) - len(self.adding)))

    def with_isr(
        self, isr: tuple[BrokerId, ...], *, min_isr: int, lost: Collection[BrokerId] = ()
    ) -> Self:
        """The image with another ISR, and the ELR that results from it. Both are always written together.

        Nothing is committed while the ISR is smaller than `min.insync.replicas`, nor while there is an ELR. So a member
        that leaves an ISR that is or becomes too small has all committed records, and remains eligible. `lost` are
        members known to have lost part of their log.
        """
        elr: tuple[BrokerId, ...] = ()
        if len(isr) < self.min_isr(min_isr):
            complete = {*self.isr, *self.elr}.difference(isr, lost)
            elr = tuple(broker for broker in self.replicas if broker in complete)
        return replace(self, isr=isr, elr=elr)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRules:
    """The part of a topic's configuration on which elections and ISR changes depend."""

    min_isr: int = 1
    # unclean.leader.election.enable
    is_unclean_allowed: bool = False
    # respool.flush=always: committed records are on disk, so a crash loses none of them.
    is_synced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewOf:
    """The definition of a view: the records of its parent, a topic, that match a condition."""

    parent: str
    # A view ends with its parent: a topic that is created with the same name later has none.
    parent_id: TopicId
    where: Where
    # Requests for all topics show it, and patterns match it.
    is_listed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DormantView:
    """The record of a view that cannot be served."""

    parent_id: TopicId
    # The parent was deleted: the record is collected, and its name is free. Otherwise this version does not understand
    # the condition.
    is_orphan: bool
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    name: str
    id: TopicId
    partitions: tuple[PartitionImage, ...]
    # The topic's own configuration; everything else comes from the broker's defaults.
    overrides: Mapping[str, str]
    config: TopicConfig
    internal: bool = False
    # Set for a view. It has no partitions of its own: `partitions` are its parent's, and so are leaders and offsets.
    view: ViewOf | None = None
    # Set once the topic was shrunk, or is about to be.
    layout: PartitionLayout | None = None
    # The revision of the topic's key in the metadata store.
    revision: int = 0
    # Derived from `config` once: the controller reads it for every partition.
    rules: TopicRules = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        config = self.config
        rules = TopicRules(
            min_isr=config.min_insync_replicas,
            is_unclean_allowed=config.unclean_leader_election_enable,
            is_synced=config.respool_flush is Flush.ALWAYS,
        )
        object.__setattr__(self, "rules", rules)

    @property
    def active_count(self) -> int:
        """The number of partitions that take records."""
        return len(self.partitions) if self.layout is None else self.layout.active

    @property
    def log_name(self) -> str:
        """The topic whose logs have the records: the parent of a view, or the topic itself."""
        return self.name if self.view is None else self.view.parent

    @property
    def is_listed(self) -> bool:
        """True if requests for all topics show it."""
        return self.view is None or self.view.is_listed


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryEntry:
    """The data that the store keeps about a broker while it is down."""

    rack: str | None = None
    # Its last address, for operators who look for a missing broker.
    host: str | None = None
    port: int | None = None
    # Removed from the cluster: it may not register.
    is_removed: bool = False
    # Its replicas are to move to other brokers.
    is_drained: bool = False
    # The broker epoch of its last clean shutdown. None: it runs, or it has crashed.
    clean_epoch: int | None = None
    # The last process of this broker that was about to register, however often it has registered.
    run: UUID | None = None
    # The data folder of that process.
    folder: UUID | None = None
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOverrides:
    """Configuration set at run time for a broker, for all, or for a group; as stored, so of newer versions too."""

    values: Mapping[str, str]
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    cluster_id: str
    # The registered brokers. A broker's own image always includes the broker itself.
    brokers: Mapping[BrokerId, BrokerEndpoint]
    controller: BrokerId
    # The revision of the controller's key; 0 if there is no controller.
    controller_revision: int = 0
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[TopicId, TopicImage] = field(default_factory=dict)
    # Views, apart from topics: whatever stores, places or counts partitions must not see them twice.
    views: Mapping[str, TopicImage] = field(default_factory=dict)
    views_by_id: Mapping[TopicId, TopicImage] = field(default_factory=dict)
    # Records of views that cannot be served, by the views' names.
    dormant_views: Mapping[str, DormantView] = field(default_factory=dict)
    # Every broker that has ever registered.
    registry: Mapping[BrokerId, RegistryEntry] = field(default_factory=dict)
    # Configuration of brokers as far as this version knows it, by broker id as text; "" for all brokers.
    broker_overrides: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # The same, as stored.
    stored_broker_overrides: Mapping[str, StoredOverrides] = field(default_factory=dict)
    # Configuration of groups by group id, as far as this version knows it; and the same, as stored.
    group_configs: Mapping[str, GroupConfig] = field(default_factory=dict)
    stored_group_overrides: Mapping[str, StoredOverrides] = field(default_factory=dict)
    acls: AclImage = field(default_factory=AclImage)
    quotas: QuotaImage = field(default_factory=QuotaImage)
    # Users by name, and delegation tokens by id.
    users: Mapping[str, User] = field(default_factory=dict)
    tokens: Mapping[str, DelegationToken] = field(default_factory=dict, repr=False)
    # Makes the salts of users that do not exist; empty: there were no logins yet.
    login_secret: bytes = field(default=b"", repr=False)
    # The metadata store's revision that this image shows.
    revision: int = 0

    def readable(self, name: str) -> TopicImage | None:
        """The topic or view of this name: what a consumer may read."""
        return self.topics.get(name) or self.views.get(name)

    def readable_by_id(self, topic_id: TopicId) -> TopicImage | None:
        return self.topics_by_id.get(topic_id) or self.views_by_id.get(topic_id)

    def listed(self) -> Iterator[TopicImage]:
        """The topics, and the views that requests for all topics show."""
        yield from self.topics.values()
        for one in self.views.values():
            if one.is_listed:
                yield one

    def views_of(self, topic_id: TopicId) -> Iterator[TopicImage]:
        """The views of this topic, sorted by name."""
        for name in sorted(self.views):
            view = self.views[name].view
            if view is not None and view.parent_id == topic_id:
                yield self.views[name]

    def log_name(self, name: str) -> str:
        """The topic whose logs have the records that are read under this name; an unknown name as it is."""
        view = self.views.get(name)
        return name if view is None else view.log_name

    def check_is_no_view(self, name: str, *, instead: str) -> None:
        """
        Raises:
            PolicyViolation: it is a view, and the request concerns what only its parent has; `instead` is what to do.
        """
        if name in self.views:
            parent = self.log_name(name)
            raise PolicyViolation(f"{name!r} is a view of {parent!r}: {instead} {parent!r} instead")

    def has_partition(self, topic: str, partition: int) -> bool:
        found = self.topics.get(topic)
        return found is not None and 0 <= partition < len(found.partitions)

    def taker(self, of: TopicPartition) -> TopicPartition | None:
        """The partition whose leader takes records for this one: its heir, if it was retired. None: there is none."""
        if self.has_partition(*of):
            return of
        topic = self.topics.get(of.topic)
        layout = None if topic is None else topic.layout
        if layout is None or not layout.active <= of.partition < layout.named:
            return None
        return TopicPartition(of.topic, layout.heir(of.partition))
