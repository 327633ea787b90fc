"""The group coordinators of this broker: one shard for each partition of `__consumer_offsets`."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Protocol

from respool.broker.catalog import Catalog
from respool.broker.partitions import Partitions
from respool.broker.shard import Machine, Shard
from respool.broker.topics import Topics
from respool.coordination.consumer_requests import TopicsView, TopicView
from respool.coordination.decision import Decision
from respool.coordination.java_hash import partition_for
from respool.model.cluster import TopicImage
from respool.model.errors import NotCoordinator
from respool.model.internal_topics import CONSUMER_OFFSETS
from respool.ports.clock import Clock
from respool.ports.offload import Offload

# What has failed to write must not be tried again at once: reading its log anew is work.
REOPEN_DELAY_S = 2.0


class GroupMachine(Machine, Protocol):
    def on_topics_changed(self, topics: TopicsView, *, now_ms: int) -> Decision: ...

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
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._catalog = catalog
        self._topics = topics
        self._partitions = partitions
        self._clock = clock
        self._offload = offload
        self._partition_count = partition_count
        self._new_machine = new_machine
        self._spawn = spawn
        self._shards: dict[int, Shard] = {}
        # Of each shard: its machine, and the topics there were when it was last told of them.
        self._machines: dict[Shard, GroupMachine] = {}
        self._topics_told: dict[Shard, TopicsView] = {}
        self._creating = asyncio.Lock()
        # Partitions whose shards failed, and when they are tried again.
        self._reopening: dict[int, asyncio.TimerHandle] = {}

    def open(self) -> None:
        """Make a shard for every partition there is; until `load` is done, their groups are told to wait."""
        self._topics.on_changed = self._on_topics_changed
        topic = self._catalog.image.topics.get(CONSUMER_OFFSETS)
        if topic is not None:
            self._open(topic)

    async def load(self) -> None:
        await asyncio.gather(*(self._load(shard) for shard in self._shards.values()))

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
        for timer in self._reopening.values():
            timer.cancel()
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

    async def _load(self, shard: Shard) -> None:
        await shard.load()
        # Topics may have come and gone meanwhile.
        self._tell_topics(shard, self._topics_view())

    def _on_topics_changed(self) -> None:
        view = self._topics_view()
        for shard in self._shards.values():
            # One that still loads is told when it has.
            if shard.is_active:
                self._tell_topics(shard, view)

    def _tell_topics(self, shard: Shard, view: TopicsView) -> None:
        machine, told = self._machines[shard], self._topics_told[shard]
        now_ms = self._clock.now_ms()
        deleted = [name for name in told if name not in view]
        if deleted:
            shard.tell(machine.on_topics_deleted(deleted, now_ms=now_ms))
        shard.tell(machine.on_topics_changed(view, now_ms=now_ms))
        self._topics_told[shard] = view

    def _topics_view(self) -> TopicsView:
        return {
            name: TopicView(topic.id, len(topic.partitions), topic.internal)
            for name, topic in self._catalog.image.topics.items()
        }

    def _open(self, topic: TopicImage) -> None:
        for number in range(len(topic.partitions)):
            self._open_shard(number)

    def _open_shard(self, number: int) -> Shard:
        view = self._topics_view()
        machine = self._new_machine()
        machine.on_topics_changed(view, now_ms=self._clock.now_ms())
        shard = Shard(
            partition=self._partitions.find(CONSUMER_OFFSETS, number),
            machine=machine,
            clock=self._clock,
            offload=self._offload,
            on_failed=lambda: self._reopen_later(number),
        )
        self._shards[number] = shard
        self._machines[shard] = machine
        self._topics_told[shard] = view
        return shard

    def _reopen_later(self, number: int) -> None:
        """A full disk may have room again by then. A partition that is offline stays so: loading it fails."""
        loop = asyncio.get_running_loop()
        self._reopening[number] = loop.call_later(REOPEN_DELAY_S, self._reopen, number)

    def _reopen(self, number: int) -> None:
        del self._reopening[number]
        failed = self._shards[number]
        del self._machines[failed]
        told = self._topics_told.pop(failed)
        shard = self._open_shard(number)
        # Topics deleted since are gone when it has loaded.
        self._topics_told[shard] = told
        self._spawn(self._load(shard))
