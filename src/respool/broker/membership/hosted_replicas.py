"""The replicas on this broker follow the cluster image: opens those that the image assigns to it, closes the others.

It makes no difference whether this broker or another one changed the image.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator
from typing import NoReturn

from respool.broker.metadata.catalog import Catalog
from respool.broker.partitions.deferred_deletion import DeferredDeletion
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.broker.replication.roles import Roles
from respool.model.cluster import TopicImage
from respool.model.ids import BrokerId

OPEN_AGAIN_S = 5.0


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
        # One after the other: what is being deleted must be gone before its name is used again.
        self._settling = asyncio.Lock()

    def wanted(self) -> Iterator[tuple[TopicImage, int]]:
        """All partitions that this broker is to have."""
        for topic in self._catalog.image.topics.values():
            for number in range(len(topic.partitions)):
                if self._is_mine(topic, number):
                    yield topic, number

    async def settle(self, names: Iterable[str]) -> None:
        """Bring the partitions of these topics in line with the image."""
        async with self._settling:
            await self._settle(names)

    def tell_settings(self, name: str) -> None:
        """Let the partitions of a topic that are here go by the settings it has now.

        At once, whatever else is being opened or deleted: who has heard that a mirror is none any more may not find one
        that is still led as one.
        """
        topic = self._catalog.image.topics.get(name)
        if topic is None:
            return
        for one in self._partitions.of_topic(name):
            if one.topic_id == topic.id and one.is_online and one.config != topic.config:
                one.update_config(topic.config)

    async def keep_opening(self) -> NoReturn:
        """Retry to open logs that could not be opened or truncated for a full disk or too many open files."""
        while True:
            await asyncio.sleep(OPEN_AGAIN_S)
            await self.open_again()

    async def open_again(self) -> None:
        async with self._settling:
            unopened = self._partitions.unopened()
            for partition in unopened:
                self._roles.forget(partition)
                self._partitions.drop(partition)
            # Before anybody else has a turn: what is dropped here is in nobody's list.
            await self._settle(dict.fromkeys(one.name.topic for one in unopened))

    async def _settle(self, names: Iterable[str]) -> None:
        topics = {name: self._catalog.image.topics.get(name) for name in names}
        # All of them together: what the disk must confirm, it confirms for many at once.
        await self._let_go(
            [one for name in topics for one in self._superfluous(name, topics[name])]
        )
        await self._hold([one for one in topics.values() if one is not None])

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

    async def _hold(self, topics: Collection[TopicImage]) -> None:
        missing = []
        for topic in topics:
            self.tell_settings(topic.name)
            held = {one.name.partition for one in self._partitions.of_topic(topic.name)}
            missing += [
                (topic, number)
                for number in range(len(topic.partitions))
                if number not in held and self._is_mine(topic, number)
            ]
        await self._partitions.open_all(missing)
        await self.take_roles(topic.name for topic in topics)

    async def take_roles(self, names: Iterable[str]) -> None:
        """Let the partitions of these topics that are here lead and follow as the image says."""
        async with asyncio.TaskGroup() as group:
            for name in names:
                for partition in self._partitions.of_topic(name):
                    group.create_task(self._roles.settle(partition))

    async def _let_go(self, superfluous: list[Partition]) -> None:
        by_delay: dict[int, list[Partition]] = {}
        for partition in superfluous:
            self._roles.forget(partition)
            by_delay.setdefault(partition.delete_delay_ms, []).append(partition)
        for delay_ms, partitions in by_delay.items():
            paths = await self._partitions.remove(partitions)
            self._deferred_deletion.delete_later(paths, delay_ms=delay_ms)
