"""The group coordinators of this broker: one shard for each partition of `__consumer_offsets`."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from respool.broker.catalog import Catalog
from respool.broker.partitions import Partitions
from respool.broker.shard import Machine, Shard
from respool.broker.topics import Topics
from respool.coordination.java_hash import partition_for
from respool.model.cluster import TopicImage
from respool.model.errors import InvalidGroupId, NotCoordinator
from respool.model.internal_topics import CONSUMER_OFFSETS
from respool.ports.clock import Clock
from respool.ports.offload import Offload

T = TypeVar("T")


class Groups:
    def __init__(
        self,
        *,
        catalog: Catalog,
        topics: Topics,
        partitions: Partitions,
        clock: Clock,
        offload: Offload,
        partition_count: int,
        new_machine: Callable[[], Machine],
    ) -> None:
        self._catalog = catalog
        self._topics = topics
        self._partitions = partitions
        self._clock = clock
        self._offload = offload
        self._partition_count = partition_count
        self._new_machine = new_machine
        self._shards: dict[int, Shard] = {}
        self._creating = asyncio.Lock()

    def open(self) -> None:
        """Make a shard for every partition there is; until `load` is done, their groups are told to wait."""
        topic = self._catalog.image.topics.get(CONSUMER_OFFSETS)
        if topic is not None:
            self._open(topic)

    async def load(self) -> None:
        await asyncio.gather(*(shard.load() for shard in self._shards.values()))

    async def ensure_topic(self) -> None:
        """The topic is made when the first group asks for its coordinator."""
        async with self._creating:
            if self._shards:
                return
            topic = await self._topics.create_internal(
                CONSUMER_OFFSETS, partition_count=self._partition_count
            )
            self._open(topic)
            await self.load()

    def stop(self) -> None:
        for shard in self._shards.values():
            shard.stop()

    def partition_of(self, group_id: str) -> int:
        """Which partition looks after the group."""
        return partition_for(group_id, len(self._shards) or self._partition_count)

    def shard_of(self, group_id: str) -> Shard:
        """The shard that looks after the group.

        Raises:
            InvalidGroupId: the name is empty.
            NotCoordinator: no group has asked for a coordinator yet.
        """
        if not group_id:
            raise InvalidGroupId("the group id is empty")
        shard = self._shards.get(self.partition_of(group_id))
        if shard is None:
            raise NotCoordinator(f"the coordinator of {group_id!r} is not here; look for it first")
        return shard

    async def ask(self, group_id: str, request: Any) -> Any:
        """Put a request to the group's machine and wait for its reply.

        Raises:
            RequestError: the coordinator cannot be asked now; nothing is known of the request's outcome.
        """
        return await self.shard_of(group_id).ask(request)

    async def ask_all(self, request: Any) -> list[Any]:
        """Put a request to every shard.

        Raises:
            CoordinatorLoadInProgress, CoordinatorNotAvailable: one of them cannot answer.
        """
        return list(await asyncio.gather(*(shard.ask(request) for shard in self._shards.values())))

    def machines(self) -> Iterator[tuple[Shard, Machine]]:
        for shard in self._shards.values():
            yield shard, shard.machine

    def by_shard(self, items: Mapping[str, T]) -> dict[Shard, dict[str, T]]:
        """Sort what belongs to groups by the shard that looks after each."""
        sorted_items: dict[Shard, dict[str, T]] = {}
        for group_id, item in items.items():
            sorted_items.setdefault(self.shard_of(group_id), {})[group_id] = item
        return sorted_items

    def _open(self, topic: TopicImage) -> None:
        for number in range(len(topic.partitions)):
            self._shards[number] = Shard(
                partition=self._partitions.find(topic.name, number),
                machine=self._new_machine(),
                clock=self._clock,
                offload=self._offload,
            )
