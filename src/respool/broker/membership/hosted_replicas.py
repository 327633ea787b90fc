"""The replicas that this broker hosts: opens those that the cluster image assigns to it, and closes the others.

It makes no difference whether this broker or another one changed the image.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NoReturn

from respool.broker.metadata.catalog import Catalog
from respool.broker.partitions.deferred_deletion import DeferredDeletion
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.broker.replication.roles import Roles
from respool.model.cluster import TopicImage
from respool.model.ids import BrokerId
from respool.model.topic_config import TopicConfig

OPEN_AGAIN_S = 5.0
# Taking a role keeps the event loop busy for about 0.1 ms.
STARTED_AT_ONCE = 20
# New partitions that are created in one call to another thread.
OPENED_TOGETHER = 20


class HostedReplicas:
    def __init__(
        self,
        *,
        me: BrokerId,
        catalog: Catalog,
        partitions: Partitions,
        deferred_deletion: DeferredDeletion,
        roles: Roles,
    ) -> None:
        self._me = me
        self._catalog = catalog
        self._partitions = partitions
        self._deferred_deletion = deferred_deletion
        self._roles = roles
        self._applied_defaults = catalog.topic_defaults
        # Called with a topic whose image has changed.
        self.on_topic: Callable[[str], None] = lambda _: None
        # One reconciliation at a time: a deleted partition must be gone before its name is used again.
        self._reconciling = asyncio.Lock()

    def wanted(self) -> Iterator[tuple[TopicImage, int]]:
        """Yield all partitions that the image assigns to this broker."""
        for topic in self._catalog.image.topics.values():
            for number in range(len(topic.partitions)):
                if self._is_mine(topic, number):
                    yield topic, number

    async def reconcile(self, names: Iterable[str]) -> None:
        """Reconcile the partitions of these topics with the image: close and open replicas, then take roles."""
        async with self._reconciling:
            await self._reconcile(names)

    def apply_settings(self, name: str) -> None:
        """Apply a topic's current settings to its partitions on this broker.

        This does not wait for other partitions to be opened or deleted: a client that knows that a mirror was promoted
        must not find a partition that is still led as a mirror.
        """
        topic = self._catalog.image.topics.get(name)
        if topic is None:
            return
        for one in self._partitions.of_topic(name):
            if one.topic_id == topic.id and one.is_online and one.config != topic.config:
                one.update_config(topic.config)
        self.on_topic(name)

    def apply_defaults(self) -> None:
        """Apply changed defaults of topic settings to all partitions on this broker. Called on every new image."""
        defaults = self._catalog.topic_defaults
        if defaults is self._applied_defaults:
            return
        self._applied_defaults = defaults
        for name in self._catalog.image.topics:
            self.apply_settings(name)

    async def keep_opening(self) -> NoReturn:
        """Retry to open logs that could not be opened or truncated because of a full disk or too many open files."""
        while True:
            await asyncio.sleep(OPEN_AGAIN_S)
            await self.open_again()

    async def open_again(self) -> None:
        async with self._reconciling:
            unopened = self._partitions.unopened()
            for partition in unopened:
                self._roles.forget(partition)
                self._partitions.drop(partition)
            # No other task runs before this: a dropped partition is in no list until it is opened again.
            await self._reconcile(dict.fromkeys(one.name.topic for one in unopened))

    async def _reconcile(self, names: Iterable[str]) -> None:
        topics = {name: self._catalog.image.topics.get(name) for name in names}
        # All together, so that they share their syncs.
        await self._close([one for name in topics for one in self._superfluous(name, topics[name])])
        await self._open([one for one in topics.values() if one is not None])

    def _superfluous(self, name: str, topic: TopicImage | None) -> list[Partition]:
        held = self._partitions.of_topic(name)
        if topic is None:
            return held
        return [
            one
            for one in held
            if one.topic_id != topic.id or not self._is_mine(topic, one.name.partition)
        ]

    def _is_mine(self, topic: TopicImage, number: int) -> bool:
        return number < len(topic.partitions) and self._me in topic.partitions[number].replicas

    async def _open(self, topics: Collection[TopicImage]) -> None:
        missing = []
        for topic in topics:
            self.apply_settings(topic.name)
            held = {one.name.partition for one in self._partitions.of_topic(topic.name)}
            missing += [
                (topic, number)
                for number in range(len(topic.partitions))
                if number not in held and self._is_mine(topic, number)
            ]
        await self._partitions.open_all(missing, together=OPENED_TOGETHER)
        for topic in topics:
            # They may have changed meanwhile.
            self.apply_settings(topic.name)
        await self.take_roles(topic.name for topic in topics)

    async def take_roles(self, names: Iterable[str]) -> None:
        """Make the partitions of these topics on this broker lead or follow as the image says."""
        partitions = [one for name in names for one in self._partitions.of_topic(name)]
        async with asyncio.TaskGroup() as group:
            for started, partition in enumerate(partitions):
                if started and started % STARTED_AT_ONCE == 0:
                    # Serve requests before the next ones: a topic may have thousands of partitions.
                    await asyncio.sleep(0)
                group.create_task(self._roles.take_role(partition))

    async def _close(self, superfluous: list[Partition]) -> None:
        by_delay: dict[int, list[Partition]] = {}
        for partition in superfluous:
            self._roles.forget(partition)
            by_delay.setdefault(_delete_delay_ms(partition), []).append(partition)
        for delay_ms, partitions in by_delay.items():
            paths = await self._partitions.remove(partitions)
            self._deferred_deletion.delete_later(paths, delay_ms=delay_ms)


def _delete_delay_ms(partition: Partition) -> int:
    """How long the files of a deleted partition are kept; the default if the log could not be opened."""
    config = partition.log.config if partition.is_online else TopicConfig()
    return config.file_delete_delay_ms
