"""The group coordinators of this broker: one shard for each partition of `__consumer_offsets`."""

import asyncio
from collections.abc import Callable, Collection
from typing import Any, Protocol

from respool.broker.catalog import Catalog
from respool.broker.partitions import Partitions
from respool.broker.shard import Machine, Shard
from respool.broker.topics import Topics
from respool.coordination.decision import Decision
from respool.coordination.java_hash import partition_for
from respool.model.cluster import TopicImage
from respool.model.errors import NotCoordinator
from respool.model.internal_topics import CONSUMER_OFFSETS
from respool.ports.clock import Clock
from respool.ports.offload import Offload


class GroupMachine(Machine, Protocol):
    def on_topics_deleted(self, names: Collection[str], *, now_ms: int) -> Decision: ...


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
        new_machine: Callable[[], GroupMachine],
    ) -> None:
        self._catalog = catalog
        self._topics = topics
        self._partitions = partitions
        self._clock = clock
        self._offload = offload
        self._partition_count = partition_count
        self._new_machine = new_machine
        self._shards: dict[int, Shard] = {}
        self._machines: dict[Shard, GroupMachine] = {}
        # The topics there were when groups were last told of them.
        self._topics_seen: Collection[str] = ()
        self._creating = asyncio.Lock()

    def open(self) -> None:
        """Make a shard for every partition there is; until `load` is done, their groups are told to wait."""
        self._topics.on_changed = self._on_topics_changed
        self._topics_seen = self._catalog.image.topics.keys()
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
            NotCoordinator: no group has asked for a coordinator yet.
        """
        shard = self._shards.get(self.partition_of(group_id))
        if shard is None:
            raise NotCoordinator(f"the coordinator of {group_id!r} is not here; look for it first")
        return shard

    def ask(self, group_id: str, request: Any) -> "asyncio.Future[Any]":
        """Put a request to the group's machine; its reply comes when it is safe to give.

        Raises:
            RequestError: the coordinator cannot be asked now. The reply may also be one of them; then nothing is known
                of the request's outcome.
        """
        return self.shard_of(group_id).ask(request)

    async def ask_all(self, request: Any) -> list[Any]:
        """Put a request to every shard.

        Raises:
            CoordinatorLoadInProgress, CoordinatorNotAvailable: one of them cannot answer.
        """
        return list(await asyncio.gather(*(shard.ask(request) for shard in self._shards.values())))

    def _on_topics_changed(self) -> None:
        topics = self._catalog.image.topics.keys()
        deleted = [name for name in self._topics_seen if name not in topics]
        self._topics_seen = topics
        if not deleted:
            return
        # A shard that still loads misses this. It does no harm: offsets name the topic's id, and expire.
        now_ms = self._clock.now_ms()
        for shard, machine in self._machines.items():
            shard.tell(machine.on_topics_deleted(deleted, now_ms=now_ms))

    def _open(self, topic: TopicImage) -> None:
        for number in range(len(topic.partitions)):
            machine = self._new_machine()
            shard = Shard(
                partition=self._partitions.find(topic.name, number),
                machine=machine,
                clock=self._clock,
                offload=self._offload,
            )
            self._shards[number] = shard
            self._machines[shard] = machine
