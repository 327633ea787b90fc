"""The cluster as one broker sees it, without a store: an image the test changes, and writes it looks at."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from broker.replica_bench import ME, brokers_of
from respool.broker.metadata.catalog import Catalog
from respool.cluster import keys
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.view import ClusterView
from respool.model.broker_config import BrokerConfig, overrides_for
from respool.model.cluster import BrokerEndpoint, ClusterImage, PartitionImage, TopicImage
from respool.model.cluster_settings import ControllerSettings
from respool.model.ids import BrokerId, TopicId
from respool.model.topic_config import TopicConfig
from respool.ports.metadata_store import MetadataStore, StoredValue

TOPIC_ID = TopicId(UUID(int=1))


class FakeCatalog:
    """Writes to the topic's only partition succeed, and are seen, unless a failure is ordered."""

    def __init__(self, *partitions: PartitionImage) -> None:
        self.image = ClusterImage(cluster_id="c", brokers={}, controller=BrokerId(1))
        self.show(*partitions)
        self.show_brokers(brokers_of())
        self.writes: list[GuardedWrite] = []
        # What the next writes raise, in this order.
        self.failures: list[Exception] = []
        # What a reading of a key brings, or raises, in this order; the last for ever.
        self.readings: list[PartitionImage | Exception | None] = []
        self.reads = 0
        self.views = 0

    @property
    def as_catalog(self) -> Catalog:
        return cast("Catalog", self)

    @property
    def as_store(self) -> MetadataStore:
        return cast("MetadataStore", self)

    def show(self, *partitions: PartitionImage, name: str = "rides", **config: str) -> None:
        overrides = {key.replace("_", "."): value for key, value in config.items()}
        topic = TopicImage(
            id=TOPIC_ID,
            name=name,
            config=TopicConfig.parse(overrides),
            overrides=overrides,
            partitions=partitions,
        )
        self.image = replace(self.image, topics=dict(self.image.topics) | {name: topic})

    def show_brokers(self, brokers: Mapping[BrokerId, BrokerEndpoint]) -> None:
        self.image = replace(self.image, brokers=brokers)

    def delete_topic(self) -> None:
        self.image = replace(self.image, topics={})

    def written(self) -> list[PartitionImage]:
        """The partitions as they were to be."""
        return [
            keys.decode_partition(value, revision=0)
            for write in self.writes
            for value in write.puts.values()
        ]

    async def write(self, write: GuardedWrite) -> int:
        self.writes.append(write)
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        (value,) = write.puts.values()
        self.show(keys.decode_partition(value, revision=99))
        return 99

    async def get(self, key: str) -> StoredValue | None:
        del key
        self.reads += 1
        found = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        if isinstance(found, Exception):
            raise found
        if found is None:
            return None
        return StoredValue(value=keys.encode_partition(found), revision=found.revision)

    def broker_config(self) -> BrokerConfig:
        return BrokerConfig.parse(overrides_for(ME, self.image.broker_overrides))

    def show_settings(self, name: str, **settings: int) -> None:
        """Those of a broker, or without a name of all."""
        texts = {key.replace("_", "."): str(value) for key, value in settings.items()}
        overrides = dict(self.image.broker_overrides) | {name: texts}
        self.image = replace(self.image, broker_overrides=overrides)

    def view(
        self, *, settings: ControllerSettings | None = None, with_strays: bool = True
    ) -> ClusterView:
        del with_strays
        self.views += 1
        return ClusterView(
            image=self.image, controller_revision=1, settings=settings or ControllerSettings()
        )


class Spawned:
    """Started in the background, by whoever owns it."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[Any]] = []

    def __call__(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.append(task)
        return task

    @property
    def under_way(self) -> int:
        return sum(not one.done() for one in self.tasks)

    async def join(self) -> None:
        await asyncio.gather(*self.tasks)


def with_adding(image: PartitionImage, adding: Iterable[BrokerId]) -> PartitionImage:
    return replace(image, adding=tuple(adding))
