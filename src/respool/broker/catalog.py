"""The topics there are: guarded writes of the metadata store, and the image made of what is in it.

A change is decided on the image, written as one transaction, and only then seen: the image is replaced, never
changed. A guard that fails means somebody else was first: the caller's request fails with what is true now.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NoReturn

from respool.broker.catalog_feed import CatalogFeed
from respool.broker.image_reader import ImageReader
from respool.cluster import keys
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.view import ClusterSettings, ClusterView, TopicRules, read_view
from respool.model.cluster import BrokerEndpoint, ClusterImage, PartitionImage, TopicImage
from respool.model.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from respool.model.ids import BrokerId, LeaderEpoch, TopicId, check_topic_name
from respool.model.settings import Settings
from respool.model.topic_config import Flush, TopicConfig
from respool.ports.dice import Dice
from respool.ports.metadata_store import Guard, GuardFailed, MetadataStore


class Catalog:
    def __init__(self, *, store: MetadataStore, settings: Settings, dice: Dice) -> None:
        self._feed = CatalogFeed(store, on_changed=self._on_changed)
        self._settings = settings
        self._dice = dice
        self._me = BrokerId(settings.broker_id)
        self.image = ClusterImage(cluster_id="", brokers={}, controller=self._me)
        self._reader = ImageReader(me=self._me, parse_config=self.parse_config)
        # Told when the image has changed.
        self.on_changed: Callable[[], None] = lambda: None

    async def load(self, *, cluster_id: str, me: BrokerEndpoint) -> None:
        """Read every topic there is."""
        self.image = ClusterImage(cluster_id=cluster_id, brokers={me.id: me}, controller=me.id)
        await self._feed.load()

    async def follow(self) -> NoReturn:
        """See what others change, for ever."""
        await self._feed.follow()

    async def read_view(self) -> ClusterView:
        """What decisions about the cluster are made on, as the store has it now."""
        await self._feed.load()
        return self.view()

    def view(
        self,
        *,
        controller_revision: int = 0,
        now_ms: int = 0,
        settings: ClusterSettings | None = None,
        is_leader_check_due: bool = True,
    ) -> ClusterView:
        """The same, as far as it is known here."""
        return read_view(
            self._feed.values,
            controller_revision=controller_revision,
            rules_of=self._rules_of,
            now_ms=now_ms,
            settings=settings,
            is_leader_check_due=is_leader_check_due,
        )

    @property
    def has_controller(self) -> bool:
        return keys.CONTROLLER in self._feed.values

    async def put(self, key: str, value: bytes, *, revision: int, lease: int | None = None) -> int:
        """Write one key that was last changed at that revision; it is seen here when this returns.

        Raises:
            GuardFailed, LeaseExpired, StoreUnavailable: as `MetadataStore.transact`.
        """
        return await self._feed.write(
            guards=[Guard(key=key, revision=revision)], puts={key: value}, lease=lease
        )

    async def write(self, write: GuardedWrite) -> int:
        """Write a decision of the cluster's; it is seen here when this returns.

        Raises:
            GuardFailed: what it was decided on has changed.
            StoreUnavailable: whether it was written is unknown.
        """
        return await self._feed.write(guards=write.guards, puts=write.puts, deletes=write.deletes)

    def _rules_of(self, overrides: Mapping[str, str]) -> TopicRules:
        config = self.parse_config(overrides)
        return TopicRules(
            min_isr=config.min_insync_replicas,
            is_synced=config.respool_flush is Flush.ALWAYS,
        )

    def on_listening(self, me: BrokerEndpoint) -> None:
        """The address is known only once the socket is bound."""
        self.image = replace(self.image, brokers={**self.image.brokers, me.id: me})

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int,
        replication_factor: int,
        overrides: Mapping[str, str],
        assignment: Mapping[int, Iterable[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicImage:
        """Create a topic; -1 stands for the broker's default number.

        Raises:
            RequestError: name, numbers, assignment or settings cannot be, or the topic exists.
        """
        check_topic_name(name)
        if name in self.image.topics:
            raise TopicAlreadyExists(f"there is a topic {name!r} already")
        if assignment:
            partition_count = self._check_assignment(assignment)
        elif partition_count == -1:
            partition_count = self._settings.num_partitions
        if partition_count < 1:
            raise InvalidPartitions(f"a topic needs at least 1 partition, not {partition_count}")
        if not assignment:
            self._check_replication_factor(replication_factor)
        self._check_room_for(partition_count)
        record = keys.TopicRecord(
            id=TopicId(self._dice.uuid()), overrides=overrides, partition_count=partition_count
        )
        partitions = [self._new_partition() for _ in range(partition_count)]
        image = self._reader.topic_image(name, record, partitions)
        if validate_only:
            return image
        try:
            await self._feed.write(
                guards=[Guard(key=keys.topic_key(name), revision=0)],
                puts={
                    keys.topic_key(name): keys.encode_topic(record),
                    **_partition_puts(record.id, partitions, first=0),
                },
            )
        except GuardFailed:
            # It may be our own, whose answer was lost: from now on it is seen.
            await self._feed.load()
            raise TopicAlreadyExists(f"there is a topic {name!r} already") from None
        return self.topic(name)

    async def add_partitions(
        self,
        name: str,
        *,
        partition_count: int,
        assignments: Iterable[Iterable[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicImage:
        """Grow a topic to `partition_count` partitions. Records stay where they are."""
        topic = self.topic(name)
        have = len(topic.partitions)
        if partition_count <= have:
            raise InvalidPartitions(
                f"{name!r} has {have} partitions; the new number must be larger, not {partition_count}"
            )
        if assignments is not None:
            assigned = dict(enumerate(assignments, start=have))
            if len(assigned) != partition_count - have:
                raise InvalidReplicaAssignment(
                    f"replicas are named for {len(assigned)} partitions, {partition_count - have} are to be added"
                )
            self._check_assignment(assigned, first=have)
        self._check_room_for(partition_count - have)
        added = [self._new_partition() for _ in range(partition_count - have)]
        grown = replace(topic, partitions=(*topic.partitions, *added))
        if validate_only:
            return grown
        await self._rewrite(grown, _partition_puts(topic.id, added, first=have))
        return self.topic(name)

    async def set_overrides(
        self, name: str, overrides: Mapping[str, str], *, validate_only: bool = False
    ) -> TopicImage:
        """Replace what is set for the topic itself.

        Raises:
            InvalidConfig: a setting is unknown or cannot have that value.
        """
        topic = self.topic(name)
        changed = replace(topic, overrides=dict(overrides), config=self.parse_config(overrides))
        if validate_only:
            return changed
        await self._rewrite(changed, {})
        return self.topic(name)

    async def delete_topic(self, name: str) -> TopicImage:
        topic = self.topic(name)
        partitions = range(len(topic.partitions))
        await self._feed.write(
            deletes=[
                keys.topic_key(name),
                *(keys.partition_key(topic.id, number) for number in partitions),
            ]
        )
        return topic

    async def bump_leader_epochs(self) -> None:
        """A new leadership for every partition: what was lost in a crash must be noticed by readers (KIP-320)."""
        puts: dict[str, bytes] = {}
        for topic in self.image.topics.values():
            bumped = [
                replace(one, leader_epoch=LeaderEpoch(one.leader_epoch + 1))
                for one in topic.partitions
            ]
            puts.update(_partition_puts(topic.id, bumped, first=0))
        if puts:
            await self._feed.write(puts=puts)

    def topic(self, name: str) -> TopicImage:
        topic = self.image.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return topic

    def parse_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        return TopicConfig.parse(overrides, base=self._settings.topic_defaults)

    async def _rewrite(self, topic: TopicImage, puts: Mapping[str, bytes]) -> None:
        stored = self._feed.values.get(keys.topic_key(topic.name))
        record = keys.TopicRecord(
            id=topic.id, overrides=topic.overrides, partition_count=len(topic.partitions)
        )
        if stored is None or keys.decode_topic(stored.value).id != topic.id:
            raise UnknownTopicOrPartition(f"the topic {topic.name!r} was just deleted")
        await self._feed.write(
            guards=[Guard(key=keys.topic_key(topic.name), revision=stored.revision)],
            puts={keys.topic_key(topic.name): keys.encode_topic(record), **puts},
        )

    def _on_changed(self, changed: frozenset[str]) -> None:
        self.image = self._reader.read(
            self._feed.values, changed, self.image, revision=self._feed.revision
        )
        self.on_changed()

    def _new_partition(self) -> PartitionImage:
        return PartitionImage(
            replicas=(self._me,), isr=(self._me,), leader=self._me, leader_epoch=LeaderEpoch(0)
        )

    def _check_replication_factor(self, factor: int) -> None:
        if factor not in (-1, 1):
            raise InvalidReplicationFactor(
                f"replication factor {factor}: there is 1 broker, so it must be 1"
            )

    def _check_assignment(self, assignment: Mapping[int, Iterable[int]], *, first: int = 0) -> int:
        """The partitions named must be consecutive, each on brokers that exist."""
        if sorted(assignment) != list(range(first, first + len(assignment))):
            raise InvalidReplicaAssignment(
                f"partitions {sorted(assignment)} are not {first}, {first + 1}, … without gaps"
            )
        for partition, brokers in assignment.items():
            if list(brokers) != [self._me]:
                raise InvalidReplicaAssignment(
                    f"partition {partition}: the only broker is {self._me}"
                )
        return len(assignment)

    def _check_room_for(self, added: int) -> None:
        have = sum(len(topic.partitions) for topic in self.image.topics.values())
        limit = self._settings.partitions_max
        if have + added > limit:
            raise InvalidPartitions(
                f"{added} more partitions would make {have + added}, limit {limit} (partitions_max)"
            )


def _partition_puts(
    topic_id: TopicId, partitions: Iterable[PartitionImage], *, first: int
) -> dict[str, bytes]:
    return {
        keys.partition_key(topic_id, number): keys.encode_partition(partition)
        for number, partition in enumerate(partitions, start=first)
    }
