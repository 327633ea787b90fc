"""The topics there are: guarded writes of the metadata store, and the image made of what is in it.

A change is decided on the image, written as one transaction, and only then seen: the image is replaced, never
changed. A guard that fails means somebody else was first: the caller's request fails with what is true now.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import NoReturn

from respool.broker.catalog_feed import CatalogFeed
from respool.cluster import keys
from respool.model.cluster import BrokerEndpoint, ClusterImage, PartitionImage, TopicImage
from respool.model.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from respool.model.ids import BrokerId, LeaderEpoch, TopicId, check_topic_name
from respool.model.internal_topics import is_internal
from respool.model.settings import Settings
from respool.model.topic_config import TopicConfig
from respool.ports.dice import Dice
from respool.ports.metadata_store import Guard, GuardFailed, MetadataStore


class Catalog:
    def __init__(self, *, store: MetadataStore, settings: Settings, dice: Dice) -> None:
        self._feed = CatalogFeed(store, on_changed=self._on_changed)
        self._settings = settings
        self._dice = dice
        self._me = BrokerId(settings.broker_id)
        self.image = ClusterImage(cluster_id="", brokers={}, controller=self._me)
        # Topics of which not every partition is known yet: the changes of one write come one by one.
        self._incomplete: dict[TopicId, str] = {}
        # Told when the image has changed.
        self.on_changed: Callable[[], None] = lambda: None

    async def load(self, *, cluster_id: str, me: BrokerEndpoint) -> None:
        """Read every topic there is."""
        self.image = ClusterImage(cluster_id=cluster_id, brokers={me.id: me}, controller=me.id)
        await self._feed.load()

    async def follow(self) -> NoReturn:
        """See what others change, for ever."""
        await self._feed.follow()

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
        image = self._topic_image(name, record, partitions)
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
        topics = dict(self.image.topics)
        # In an order of their own, so that a simulated run is the same each time.
        for name in sorted(self._names_of(changed)):
            topic = self._read_topic(name)
            if topic is None:
                topics.pop(name, None)
            else:
                topics[name] = topic
        self.image = replace(
            self.image,
            brokers=self._read_brokers() if _are_any(changed, keys.BROKERS) else self.image.brokers,
            controller=self._read_controller(),
            topics=topics,
            topics_by_id={topic.id: topic for topic in topics.values()},
            revision=self._feed.revision,
        )
        self.on_changed()

    def _read_brokers(self) -> dict[BrokerId, BrokerEndpoint]:
        """Those that are registered, and this one in any case: whoever asks has reached it."""
        brokers = {self._me: self.image.brokers[self._me]}
        for key, stored in self._feed.values.items():
            if key.startswith(keys.BROKERS):
                broker = BrokerId(int(key.removeprefix(keys.BROKERS)))
                registration = keys.decode_broker(broker, stored.value, revision=stored.revision)
                brokers[broker] = registration.endpoint
        return brokers

    def _read_controller(self) -> BrokerId:
        stored = self._feed.values.get(keys.CONTROLLER)
        # A broker alone is its own.
        return self._me if stored is None else keys.decode_controller(stored.value)

    def _names_of(self, changed: Iterable[str]) -> set[str]:
        """The topics that these keys are about."""
        names = {key.removeprefix(keys.TOPICS) for key in changed if key.startswith(keys.TOPICS)}
        for key in changed:
            if key.startswith(keys.PARTITIONS):
                topic_id, _ = keys.parse_partition_key(key)
                topic = self.image.topics_by_id.get(topic_id)
                if topic is not None:
                    names.add(topic.name)
                elif topic_id in self._incomplete:
                    names.add(self._incomplete[topic_id])
        return names

    def _read_topic(self, name: str) -> TopicImage | None:
        """The topic as the store has it; None where it, or one of its partitions, is not there (yet)."""
        values = self._feed.values
        stored = values.get(keys.topic_key(name))
        if stored is None:
            return None
        record = keys.decode_topic(stored.value)
        partitions = []
        for number in range(record.partition_count):
            one = values.get(keys.partition_key(record.id, number))
            if one is None:
                self._incomplete[record.id] = name
                return None
            partitions.append(keys.decode_partition(one.value, revision=one.revision))
        self._incomplete.pop(record.id, None)
        return self._topic_image(name, record, partitions)

    def _topic_image(
        self, name: str, record: keys.TopicRecord, partitions: Iterable[PartitionImage]
    ) -> TopicImage:
        return TopicImage(
            name=name,
            id=record.id,
            partitions=tuple(partitions),
            overrides=record.overrides,
            config=self.parse_config(record.overrides),
            internal=is_internal(name),
        )

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


def _are_any(changed: Iterable[str], prefix: str) -> bool:
    return any(key.startswith(prefix) for key in changed)


def _partition_puts(
    topic_id: TopicId, partitions: Iterable[PartitionImage], *, first: int
) -> dict[str, bytes]:
    return {
        keys.partition_key(topic_id, number): keys.encode_partition(partition)
        for number, partition in enumerate(partitions, start=first)
    }
