"""The cluster image, made from the metadata store, and guarded writes to the store.

A change is decided on the image, written, and visible only then: the image is replaced, never mutated. A failed guard
means that another broker was first: the caller decides again on the current image.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn

from respool.broker.metadata.catalog_feed import CatalogFeed
from respool.cluster import keys, strays
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.image_reader import ImageReader, stray_partitions
from respool.cluster.view import ClusterView
from respool.model.broker_config import BrokerConfig, overrides_for
from respool.model.cluster import (
    BrokerEndpoint,
    ClusterImage,
    PartitionImage,
    RegistryEntry,
    TopicImage,
)
from respool.model.cluster_settings import ControllerSettings
from respool.model.errors import UnknownTopicOrPartition
from respool.model.ids import BrokerId, LeaderEpoch, TopicId
from respool.model.settings import Settings
from respool.model.topic_config import TopicConfig
from respool.ports.metadata_store import Guard, GuardFailed, MetadataStore, StoredValue
from respool.ports.random_source import RandomSource


class Catalog:
    def __init__(
        self, *, store: MetadataStore, settings: Settings, rng: RandomSource, is_alone: bool = False
    ) -> None:
        """`is_alone`: the store is this broker's only. It does not register, and there is no controller."""
        self._store = store
        self._feed = CatalogFeed(store, on_changed=self._on_changed)
        self.settings = settings
        self.rng = rng
        self._is_alone = is_alone
        self.me = BrokerId(settings.broker_id)
        # Topics whose partitions are being written from here.
        self.creating: set[TopicId] = set()
        self.image = ClusterImage(cluster_id="", brokers={}, controller=self.me)
        self._reader = ImageReader(me=self.me, defaults=settings.topic_defaults)
        # Called when the image has changed.
        self.on_changed: Callable[[], None] = lambda: None
        # Set, and replaced by another, whenever it has.
        self._changed = asyncio.Event()

    async def cluster_id(self, new: str) -> str:
        """The cluster's id, which is this one if it has none yet; first brokers that start at once agree on one.

        Raises:
            StoreUnavailable: ask again.
        """
        while True:
            stored = await self._store.get(keys.CLUSTER)
            if stored is not None:
                return keys.decode_cluster(stored.value)
            with suppress(GuardFailed):
                await self.put(keys.CLUSTER, keys.encode_cluster(new), revision=0)

    async def load(self, *, cluster_id: str, me: BrokerEndpoint) -> None:
        """Read every topic there is."""
        self.image = ClusterImage(cluster_id=cluster_id, brokers={me.id: me}, controller=me.id)
        await self._feed.load()
        if self._is_alone:
            # There is no controller to do it; nothing is being created now.
            for write in strays.collect(self.view()):
                await self.write(write)

    async def refresh(self) -> None:
        """See what the store has now, however long it is away."""
        await self._feed.load_when_there()

    async def follow(self) -> NoReturn:
        """See what others change, for ever."""
        await self._feed.follow()

    async def read_view(self) -> ClusterView:
        """What decisions about the cluster are made on, as the store has it now.

        Raises:
            StoreUnavailable: it does not answer.
        """
        await self._feed.load()
        return self.view()

    async def sure_view(self) -> ClusterView:
        """The same as far as it is known here; read anew only if a write before this may have been done or not.

        Without strays: who changes something for a client does not collect them.

        Raises:
            StoreUnavailable: it would have to be read anew.
        """
        if self._feed.is_doubtful:
            await self._feed.load()
        return self.view(with_strays=False)

    def view(
        self,
        *,
        controller_revision: int | None = None,
        now_ms: int = 0,
        settings: ControllerSettings | None = None,
        is_leader_check_due: bool = True,
        with_strays: bool = True,
    ) -> ClusterView:
        """The same from this broker's image; guarded by the controller's key, or by the current controller's."""
        values, image = self._feed.values, self.image
        if not self._is_alone and not self.is_registered:
            # Decisions go by the brokers that are registered.
            running = {one: at for one, at in image.brokers.items() if one != self.me}
            image = replace(image, brokers=running)
        return ClusterView(
            image=image,
            # 0: there is no controller, and there must be none when the write is applied.
            controller_revision=(
                image.controller_revision if controller_revision is None else controller_revision
            ),
            strays=(
                stray_partitions(values, image, self._reader.incomplete) if with_strays else {}
            ),
            creating=frozenset(self.creating),
            now_ms=now_ms,
            settings=settings or ControllerSettings(),
            is_leader_check_due=is_leader_check_due,
        )

    async def wait_until_led(self, names: Collection[str], *, timeout_ms: int) -> bool:
        """Wait until all partitions of these topics have running leaders; False: some have none after the timeout.

        A topic that is gone meanwhile has nothing to be led.
        """
        try:
            async with asyncio.timeout(max(0, timeout_ms) / 1000):
                while not all(map(self.is_led, names)):
                    await self._changed.wait()
        except TimeoutError:
            return all(map(self.is_led, names))
        return True

    def is_led(self, name: str) -> bool:
        """Whether all of the topic's partitions have leaders that run."""
        topic = self.image.topics.get(name)
        brokers = self.image.brokers
        return topic is None or all(one.leader in brokers for one in topic.partitions)

    def registry(self) -> Mapping[BrokerId, RegistryEntry]:
        """Every broker that has ever registered, running or not."""
        return self.image.registry

    def broker_config(self) -> BrokerConfig:
        """What holds for this broker now; what was never set is as in its settings file."""
        return BrokerConfig.parse(
            overrides_for(self.me, self.image.broker_overrides),
            base=self.settings.broker_defaults,
        )

    @property
    def controller_key(self) -> StoredValue | None:
        """Who the controller is, and since which revision; None: nobody."""
        return self._feed.values.get(keys.CONTROLLER)

    @property
    def is_registered(self) -> bool:
        """Whether this broker is, as far as it is known here."""
        return keys.broker_key(self.me) in self._feed.values

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

    def on_listening(self, me: BrokerEndpoint) -> None:
        """The address is known only once the socket is bound."""
        self.image = replace(self.image, brokers={**self.image.brokers, me.id: me})

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

    def topic_after(self, name: str, writes: Iterable[GuardedWrite]) -> TopicImage:
        """The topic as it would be after these writes."""
        values = dict(self._feed.values)
        for write in writes:
            values |= {key: StoredValue(value=one, revision=0) for key, one in write.puts.items()}
        topic = self._reader.read_topic(values, name)
        assert topic is not None
        return topic

    def parse_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        return TopicConfig.parse(overrides, base=self.settings.topic_defaults)

    def _on_changed(self, changed: frozenset[str]) -> None:
        self.image = self._reader.read(
            self._feed.values, changed, self.image, revision=self._feed.revision
        )
        self._changed.set()
        self._changed = asyncio.Event()
        self.on_changed()


def _partition_puts(
    topic_id: TopicId, partitions: Iterable[PartitionImage], *, first: int
) -> dict[str, bytes]:
    return {
        keys.partition_key(topic_id, number): keys.encode_partition(partition)
        for number, partition in enumerate(partitions, start=first)
    }
