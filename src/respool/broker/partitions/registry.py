"""The open partitions of this broker: opens, finds by name, closes and deletes them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from itertools import islice
from typing import TypeAlias

from respool.broker.metadata.catalog import Catalog
from respool.broker.partitions.partition import IsrProposals, Partition
from respool.broker.partitions.sync_requests import SyncRequests
from respool.broker.partitions.topic_traffic import TopicTraffic
from respool.log.folder.data_folder import DataFolder
from respool.log.partition_log import PartitionLog
from respool.model.cluster import TopicImage
from respool.model.errors import NotLeader, RequestError, StorageError, UnknownTopicOrPartition
from respool.model.ids import Offset, TopicPartition
from respool.model.topic_config import TopicConfig
from respool.ports.clock import Clock
from respool.ports.offload import Offload

logger = logging.getLogger(__name__)

# Opening a log may mean scanning it; a few at a time keep the disk busy without flooding it.
OPENING_AT_ONCE = 8
# Partitions whose folders are renamed in one call to another thread.
REMOVED_TOGETHER = 50

_Removed: TypeAlias = tuple[Partition, PartitionLog | None]


class Partitions:
    def __init__(
        self,
        *,
        folder: DataFolder,
        catalog: Catalog,
        offload: Offload,
        clock: Clock,
        syncs: SyncRequests[Partition],
        isr: IsrProposals,
        may_act: Callable[[], bool],
        is_clustered: bool,
        traffic_of: Callable[[str], TopicTraffic],
        on_offline: Callable[[Partition], None] = lambda _: None,
    ) -> None:
        """`is_clustered`: after a crash the log's end does not count as committed, since other replicas have a say."""
        self._folder = folder
        self._catalog = catalog
        self._offload = offload
        self._clock = clock
        self._syncs = syncs
        self._isr = isr
        self._may_act = may_act
        self._is_clustered = is_clustered
        self._traffic_of = traffic_of
        self._on_offline = on_offline
        # Called with a partition that is served from now on; and awaited before the files of one are moved aside.
        self.on_opened: Callable[[Partition, TopicConfig], None] = lambda _, __: None
        self.on_closed: Callable[[Partition], Awaitable[None]] = _nothing
        self._partitions: dict[tuple[str, int], Partition] = {}
        # Invariant: the same partitions by topic; no topic has an empty set.
        self._numbers: dict[str, set[int]] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(tuple(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    @property
    def may_act(self) -> bool:
        """True while the lease is valid, so partitions led here may be served."""
        return self._may_act()

    def names(self) -> set[TopicPartition]:
        return {one.name for one in self}

    def find(self, topic: str, partition: int) -> Partition:
        """Raises:
        UnknownTopicOrPartition: the partition does not exist.
        NotLeader: the partition is on other brokers or is still being opened, or a deleted topic of the same name still
            has its partition here.
        """
        found = self._partitions.get((topic, partition))
        if found is None:
            if self._catalog.image.has_partition(topic, partition):
                raise NotLeader(f"{topic}-{partition} is not served here")
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{partition}")
        known = self._catalog.image.topics.get(topic)
        if known is not None and known.id != found.topic_id:
            # A write to it would be deleted with the old topic, and a read would return the old topic's records.
            raise NotLeader(f"{topic}-{partition} is being recreated")
        return found

    def find_leader(self, topic: str, partition: int) -> Partition:
        """Return the partition if this broker leads it.

        Raises:
            The exceptions of `find`; NotLeader also while another broker leads it, or this one may not act. A partition
                that is offline raises its own error when it is used.
        """
        found = self.find(topic, partition)
        if found.leader is None and (found.failure is None or self._is_clustered):
            raise NotLeader(f"{topic}-{partition} is led by another broker")
        if not self._may_act():
            raise NotLeader(f"{topic}-{partition}: this broker's lease has run out")
        return found

    def held(self, topic: str, partition: int) -> Partition | None:
        """The partition in any role; None if this broker has no replica of it."""
        try:
            return self.find(topic, partition)
        except RequestError:
            return None

    def find_readable(self, topic: str, partition: int) -> Partition:
        """Return the partition if consumers may read it here, from the leader or a follower (KIP-392).

        Raises:
            The exceptions of `find_leader`.
        """
        found = self.find(topic, partition)
        if found.follower is None:
            return self.find_leader(topic, partition)
        if not self._may_act():
            raise NotLeader(f"{topic}-{partition}: this broker's lease has run out")
        return found

    def is_online(self, topic: str, partition: int) -> bool:
        found = self._partitions.get((topic, partition))
        return found is not None and found.is_online

    def topics(self) -> tuple[str, ...]:
        """The topics that have partitions here."""
        return tuple(self._numbers)

    def of_topic(self, name: str) -> list[Partition]:
        """Return the partitions of a topic that are here."""
        numbers = self._numbers.get(name, ())
        return [self._partitions[name, number] for number in sorted(numbers)]

    def unopened(self) -> list[Partition]:
        """Return the partitions whose logs may be opened by another attempt."""
        return [one for one in self if one.awaits_opening]

    def drop(self, unopened: Partition) -> None:
        """Remove a partition whose log could not be opened or was abandoned, so that it is opened again."""
        assert unopened.awaits_opening
        self._forget(unopened)
        unopened.detach()

    async def open_all(
        self, wanted: Iterable[tuple[TopicImage, int]], *, together: int = 1
    ) -> None:
        """Open these partitions of the topics. A partition that cannot be opened is registered as offline.

        New ones are opened `together` in one call to another thread. Those that may have to be recovered are not: each
        call takes as long as all its scans.
        """
        turns = asyncio.Semaphore(OPENING_AT_ONCE)
        waiting = iter(wanted)
        async with asyncio.TaskGroup() as group:
            while some := list(islice(waiting, together)):
                group.create_task(self._open(some, turns))

    async def _open(
        self, wanted: Sequence[tuple[TopicImage, int]], turns: asyncio.Semaphore
    ) -> None:
        async with turns:
            logs = await self._offload.run(
                lambda: [self._open_log(topic, number) for topic, number in wanted]
            )
        for (topic, number), log in zip(wanted, logs, strict=True):
            self._add(TopicPartition(topic.name, number), topic, log)

    def _add(
        self, name: TopicPartition, topic: TopicImage, log: PartitionLog | StorageError
    ) -> None:
        high_watermark = None
        if isinstance(log, PartitionLog) and self._is_clustered:
            known = self._folder.high_watermark(name)
            high_watermark = min(max(known, log.log_start), log.log_end)
        partition = Partition(
            name=name,
            topic_id=topic.id,
            log=log,
            syncs=self._syncs,
            isr=self._isr,
            on_offline=self._on_offline,
            high_watermark=high_watermark,
            traffic=self._traffic_of(name.topic),
        )
        self._partitions[name] = partition
        self._numbers.setdefault(name.topic, set()).add(name.partition)
        if partition.failure is not None:
            self._on_offline(partition)
        self.on_opened(partition, topic.config)

    def _open_log(self, topic: TopicImage, number: int) -> PartitionLog | StorageError:
        name = TopicPartition(topic.name, number)
        try:
            return self._folder.open_partition(
                name,
                topic_id=topic.id,
                config=topic.config,
                now_ms=self._clock.now_ms(),
                is_replicated=self._is_clustered,
            )
        except StorageError as error:
            logger.error("%s cannot be opened and is offline: %s", name, error)
            return error

    async def remove(self, partitions: Iterable[Partition]) -> list[str]:
        """Take the partitions out of service immediately; return the paths to delete from disk."""
        removed: list[_Removed] = []
        for count, partition in enumerate(partitions, start=1):
            self._forget(partition)
            removed.append((partition, partition.detach()))
            if count % REMOVED_TOGETHER == 0:
                # Serve requests before the next ones.
                await asyncio.sleep(0)
        to_delete = []
        waiting = iter(removed)
        while some := list(islice(waiting, REMOVED_TOGETHER)):
            to_delete += await self._move_aside(some)
        names = [partition.name for partition, _ in removed]
        try:
            await self._offload.run(partial(self._folder.on_removed, names))
        except StorageError as error:
            # With the folder gone, the remaining checkpoint entries would look like a loss of data.
            logger.warning("deleted partitions' folders stay until a restart: %s", error)
            return []
        return to_delete

    async def _move_aside(self, removed: Sequence[_Removed]) -> list[str]:
        async with AsyncExitStack() as locks:
            for partition, _ in removed:
                # Another thread may be truncating the log. And a sync in flight may write files beside the log, which
                # would end up in the folder of the next topic with this name.
                await locks.enter_async_context(partition.changing)
                await self._syncs.drain_partition(partition)
                await self.on_closed(partition)
            logs = [(partition.name, log) for partition, log in removed]
            return await self._offload.run(lambda: self._remove_folders(logs))

    def _remove_folders(
        self, logs: Iterable[tuple[TopicPartition, PartitionLog | None]]
    ) -> list[str]:
        paths = []
        for name, log in logs:
            try:
                path = self._folder.remove_partition(name, log)
            except StorageError as error:
                # The catalog no longer names the partition, so the next start moves its folder aside.
                logger.warning(
                    "%s is deleted, but its folder stays until a restart: %s", name, error
                )
                continue
            if path is not None:
                paths.append(path)
        return paths

    def _forget(self, partition: Partition) -> None:
        topic, number = partition.name
        del self._partitions[topic, number]
        numbers = self._numbers[topic]
        numbers.discard(number)
        if not numbers:
            del self._numbers[topic]

    def high_watermarks(self) -> dict[TopicPartition, Offset]:
        return {one.name: one.high_watermark for one in self if one.is_online}

    def online_logs(self) -> dict[TopicPartition, PartitionLog]:
        return {one.name: one.log for one in self if one.is_online}

    def detach_all(self) -> dict[TopicPartition, PartitionLog]:
        """Take every partition out of service for closing, and return the logs of those that are online."""
        logs = {}
        for partition in self:
            was_online = partition.is_online
            log = partition.detach()
            if was_online and log is not None:
                logs[partition.name] = log
        self._partitions.clear()
        self._numbers.clear()
        return logs


async def _nothing(_: Partition) -> None:
    pass
