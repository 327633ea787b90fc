"""The cluster image, made from the metadata store, and guarded writes to the store.

A change is decided on the image and written, and only then becomes visible: the image is replaced, never mutated. A
failed guard means that another broker was first: the caller decides again on the current image.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn, TypeAlias

from respool.broker.metadata.catalog_feed import CatalogFeed
from respool.cluster import keys, strays
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.image_reader import ImageReader, stray_keys
from respool.cluster.view import ClusterView
from respool.cluster.view_reader import read_view
from respool.model.broker_config import BrokerConfig
from respool.model.cluster import (
    BrokerEndpoint,
    ClusterImage,
    PartitionImage,
    RegistryEntry,
    TopicImage,
)
from respool.model.cluster_settings import ControllerSettings
from respool.model.errors import InvalidConfig, RequestTimedOut, UnknownTopicOrPartition
from respool.model.ids import BrokerId, LeaderEpoch, TopicId
from respool.model.settings import Settings
from respool.model.topic_config import TopicConfig
from respool.ports.metadata_store import Guard, GuardFailed, MetadataStore, StoredValue
from respool.ports.random_source import RandomSource

# The cluster changes rarely: this many conflicts have another cause.
TRIES_MAX = 10

Decide: TypeAlias = Callable[[ClusterView], list[GuardedWrite]]
Write: TypeAlias = Callable[[Sequence[GuardedWrite]], Awaitable[None]]


class Catalog:
    def __init__(
        self, *, store: MetadataStore, settings: Settings, rng: RandomSource, is_alone: bool = False
    ) -> None:
        """`is_alone`: a single broker with its own store. It does not register, and there is no controller."""
        self._store = store
        self._feed = CatalogFeed(store, on_changed=self._on_changed)
        self.settings = settings
        self.rng = rng
        self.is_alone = is_alone
        self.me = BrokerId(settings.broker_id)
        # Topics whose partitions this broker is writing.
        self.creating: set[TopicId] = set()
        self.image = ClusterImage(cluster_id="", brokers={}, controller=self.me)
        self._reader = ImageReader(me=self.me, defaults=settings.topic_defaults)
        # Called with the name of each topic or view that was deleted, by any broker.
        self.on_deleted: Callable[[str], None] = lambda _: None
        # Called first when the image has changed: rights come before what they allow.
        self.on_image: Callable[[], None] = lambda: None
        # Called when the image has changed.
        self.on_changed: Callable[[], None] = lambda: None
        # Others that are called then, after `on_changed`.
        self.observers: list[Callable[[], None]] = []
        # Set on every change of the image, and then replaced by a new event.
        self._changed = asyncio.Event()

    async def cluster_id(self, new: str) -> str:
        """Return the cluster's id; store `new` if there is none yet. Brokers that start at the same time agree on one.

        Raises:
            StoreUnavailable: try again.
        """
        while True:
            stored = await self._store.get(keys.CLUSTER)
            if stored is not None:
                return keys.decode_cluster(stored.value)
            with suppress(GuardFailed):
                await self.put(keys.CLUSTER, keys.encode_cluster(new), revision=0)

    async def load(self, *, cluster_id: str, me: BrokerEndpoint) -> None:
        """Read all metadata."""
        self.image = ClusterImage(cluster_id=cluster_id, brokers={me.id: me}, controller=me.id)
        await self._feed.load()
        # Also if the store is empty: what the settings say is enforced from the first request on.
        self.on_image()
        if self.is_alone:
            # There is no controller to remove strays, and no topic is being created now.
            for write in strays.collect(self.view()):
                await self.write(write)

    async def refresh(self) -> None:
        """Read the store's current content, no matter how long the store is unavailable."""
        await self._feed.load_when_there()

    async def follow(self) -> NoReturn:
        """Follow the store's changes forever."""
        await self._feed.follow()

    async def read_view(self) -> ClusterView:
        """Read the store, and return the view on which decisions about the cluster are made.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        await self._feed.load()
        return self.view()

    async def sure_view(self) -> ClusterView:
        """Return the view from memory; read the store first only if the outcome of an earlier write is unknown.

        The view has no strays, since a change for a client does not clean them up.

        Raises:
            StoreUnavailable: the store must be read and does not answer.
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
        """Return the view of this broker's image, guarded by `controller_revision`, by default the current one."""
        values, image = self._feed.values, self.image
        if not self.is_alone and not self.is_registered:
            # Decisions consider only registered brokers.
            running = {one: at for one, at in image.brokers.items() if one != self.me}
            image = replace(image, brokers=running)
        return ClusterView(
            image=image,
            # 0: there is no controller, and there must be none when the write is applied.
            controller_revision=(
                image.controller_revision if controller_revision is None else controller_revision
            ),
            strays=(stray_keys(values, image, self._reader.incomplete) if with_strays else {}),
            creating=frozenset(self.creating),
            now_ms=now_ms,
            settings=settings or ControllerSettings(),
            is_leader_check_due=is_leader_check_due,
        )

    async def is_topic_stored(self, name: str) -> bool:
        """True if the store has the topic; the image may not have it yet.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        return await self._store.get(keys.topic_key(name)) is not None

    async def wait_until(self, is_so: Callable[[], bool], *, timeout_s: float) -> bool:
        """Wait until this is true of the image. Return False after a timeout."""
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                while not is_so():
                    await self._changed.wait()
        except TimeoutError:
            return is_so()
        return True

    async def wait_until_led(self, names: Collection[str], *, timeout_ms: int) -> bool:
        """Wait until all partitions of these topics have running leaders. Return False after a timeout.

        A topic that was deleted in the meantime counts as led.
        """
        return await self.wait_until(
            lambda: all(map(self.is_led, names)), timeout_s=timeout_ms / 1000
        )

    def is_led(self, name: str) -> bool:
        """True if all of the topic's partitions have leaders that run."""
        topic = self.image.topics.get(name)
        brokers = self.image.brokers
        return topic is None or all(one.leader in brokers for one in topic.partitions)

    def registry(self) -> Mapping[BrokerId, RegistryEntry]:
        """Every broker that has ever registered, running or not."""
        return self.image.registry

    def broker_config(self) -> BrokerConfig:
        """The settings that apply to this broker now; without an override, those of its settings file."""
        return BrokerConfig.of(
            self.me, self.image.broker_overrides, base=self.settings.broker_defaults
        )

    @property
    def topic_defaults(self) -> TopicConfig:
        """The defaults of topic settings that apply on this broker now."""
        return self._reader.defaults

    @property
    def controller_key(self) -> StoredValue | None:
        """The controller key with its revision; None if there is no controller."""
        return self._feed.values.get(keys.CONTROLLER)

    @property
    def is_registered(self) -> bool:
        """True if this broker is registered, according to its image."""
        return keys.broker_key(self.me) in self._feed.values

    async def put(self, key: str, value: bytes, *, revision: int, lease: int | None = None) -> int:
        """Write one key that was last changed at `revision`; the change is visible here when this returns.

        Raises:
            GuardFailed, LeaseExpired, StoreUnavailable: see `MetadataStore.transact`.
        """
        return await self._feed.write(
            guards=[Guard(key=key, revision=revision)], puts={key: value}, lease=lease
        )

    async def write(self, write: GuardedWrite) -> int:
        """Write a decision about the cluster; the change is visible here when this returns.

        Raises:
            GuardFailed: the state that it was decided on has changed.
            StoreUnavailable: it is unknown whether the change was written.
        """
        return await self._feed.write(guards=write.guards, puts=write.puts, deletes=write.deletes)

    def on_listening(self, me: BrokerEndpoint) -> None:
        """Set this broker's address, which is known only once the socket is bound."""
        self.image = replace(self.image, brokers={**self.image.brokers, me.id: me})

    async def bump_leader_epochs(self) -> None:
        """Bump all leader epochs, so that consumers detect records that were lost in a crash (KIP-320)."""
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

    def readable(self, name: str) -> TopicImage:
        """The topic or view of this name."""
        found = self.image.readable(name)
        if found is None:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return found

    def topic_after(self, name: str, writes: Iterable[GuardedWrite]) -> TopicImage:
        """Return the topic or view as it would be after these writes."""
        values = dict(self._feed.values)
        for write in writes:
            values |= {key: StoredValue(value=one, revision=0) for key, one in write.puts.items()}
        topic = self._reader.read_topic(values, name) or read_view(
            values, name, self.image.topics_by_id
        )
        assert isinstance(topic, TopicImage)
        return topic

    def parse_config(self, overrides: Mapping[str, str]) -> TopicConfig:
        """
        Raises:
            InvalidConfig: a setting is invalid, or this broker lacks what it needs.
        """
        config = TopicConfig.parse(overrides, base=self.topic_defaults)
        if config.remote_storage_enable and not self.settings.archive.address:
            raise InvalidConfig(
                "remote.storage.enable = true needs an archive: set archive = s3://bucket/prefix, or another address, "
                "on every broker"
            )
        return config

    def _on_changed(self, changed: frozenset[str]) -> None:
        before = self.image
        self.image = self._reader.read(
            self._feed.values, changed, before, revision=self._feed.revision
        )
        self.on_image()
        # A view is deleted with its parent, perhaps before its own key is.
        gone = before.views.keys() - self.image.views.keys()
        for name in sorted({*keys.topic_names(changed), *gone}):
            if before.readable(name) is not None and self.image.readable(name) is None:
                self.on_deleted(name)
        self._changed.set()
        self._changed = asyncio.Event()
        self.on_changed()
        for observer in self.observers:
            observer()


def _partition_puts(
    topic_id: TopicId, partitions: Iterable[PartitionImage], *, first: int
) -> dict[str, bytes]:
    return {
        keys.partition_key(topic_id, number): keys.encode_partition(partition)
        for number, partition in enumerate(partitions, start=first)
    }


async def retry_on_conflict(catalog: Catalog, decide: Decide, write: Write) -> None:
    """Write optimistically: decide, compare and swap, and decide again after a conflict.

    Raises:
        RequestTimedOut: every attempt conflicted with another write.
        StoreUnavailable: it is unknown whether the change was written.
    """
    for _ in range(TRIES_MAX):
        # The view may be outdated: "nothing to do" must be decided on the store's current content.
        writes = decide(await catalog.sure_view()) or decide(await catalog.read_view())
        try:
            return await write(writes)
        except GuardFailed:
            await catalog.read_view()
    raise RequestTimedOut(f"others have changed the cluster {TRIES_MAX} times meanwhile")
