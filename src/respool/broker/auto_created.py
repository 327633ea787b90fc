"""Topics created automatically and not used since: one is deleted again if its first message is too large.

Deleting a topic because it is empty could lose a batch that another producer appends meanwhile. So, on a single broker:

1. All partitions are locked (`Partition.changing`), so that none can get a role.
2. In one step of the event loop, the topic is found unused and its partitions resign. From here on an append is refused
   with NOT_LEADER, also of a batch that was admitted before: the client looks the topic up again, and creates it again.
3. The topic's key is deleted if nobody changed it since the creation. If the outcome is unknown, it is read first.
4. The partitions are unlocked; those of a topic that still exists lead again.

A topic that was read, or that a client asked to create, is used: a consumer that read its end would miss the first
messages of the next topic with this name. In a cluster other brokers may have such clients, so topics stay there.

A topic becomes unused before its partitions lead and before another request to create it is answered, so nobody can
have read or found it by then.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, TypeAlias
from uuid import UUID

from respool.broker.membership.hosted_replicas import HostedReplicas
from respool.broker.metadata.catalog import Catalog
from respool.broker.metadata.deleted_topics import DeletedTopics
from respool.broker.metadata.topics import Topics
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.broker.replication.roles import Roles
from respool.model.cluster import TopicImage
from respool.model.errors import RequestError
from respool.ports.metadata_store import StoreUnavailable

logger = logging.getLogger(__name__)

Log: TypeAlias = Callable[[str], None]

# Producers write to a new topic at once. The oldest ones are forgotten: they stay.
UNUSED_MAX = 1_000


class AutoCreatedTopics:
    """The unused ones. After a restart of the broker there are none: a topic that was there before stays."""

    def __init__(
        self,
        *,
        topics: Topics,
        catalog: Catalog,
        partitions: Partitions,
        hosted_replicas: HostedReplicas,
        roles: Roles,
        deleted: DeletedTopics,
        is_clustered: bool,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._topics = topics
        self._deleted = deleted
        self._catalog = catalog
        self._partitions = partitions
        self._hosted_replicas = hosted_replicas
        self._roles = roles
        self._is_clustered = is_clustered
        self._spawn = spawn
        # As they were created, oldest first.
        self._unused: dict[str, TopicImage] = {}
        # The same topics: consumers fetch by id.
        self._unused_by_id: dict[UUID, TopicImage] = {}
        # Names in requests to create topics, and the number of such requests in progress.
        self._wanted: Counter[str] = Counter()
        # Deletions in progress.
        self._deleting: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._unused)

    def on_created(self, topic: TopicImage) -> None:
        if self._is_clustered or topic.name in self._wanted:
            return
        while len(self._unused) >= UNUSED_MAX:
            self._forget(next(iter(self._unused.values())))
        self._unused[topic.name] = topic
        self._unused_by_id[topic.id] = topic

    def on_used(self, topics: Iterable[str | UUID]) -> None:
        """A client has read these topics, written to them or asked to create them: they stay."""
        if not self._unused:
            return
        for one in topics:
            topic = self._unused.get(one) if isinstance(one, str) else self._unused_by_id.get(one)
            if topic is not None:
                self._forget(topic)

    @contextmanager
    def wanted(self, names: Collection[str]) -> Iterator[None]:
        """A client asks to create these topics: they are used, also those that are auto-created meanwhile."""
        self.on_used(names)
        self._wanted.update(names)
        try:
            yield
        finally:
            for name in names:
                self._wanted[name] -= 1
                if not self._wanted[name]:
                    del self._wanted[name]

    def _forget(self, topic: TopicImage) -> None:
        del self._unused[topic.name]
        del self._unused_by_id[topic.id]

    def delete_unused(self, names: Iterable[str], *, log: Log) -> "asyncio.Future[None] | None":
        """Delete those of these topics that are unused: their first message was too large. None: there are none.

        The future is done when they are deleted or stay, or when the metadata store does not answer.
        """
        unused = [self._unused[name] for name in names if name in self._unused]
        if not unused:
            return None
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._spawn(self._delete_each(unused, answered, log))
        return answered

    async def wait_for_deletions(self) -> None:
        """Wait for deletions in progress: their topics are still in the image."""
        while self._deleting:
            await asyncio.wait(self._deleting)

    async def _delete_each(
        self, topics: Iterable[TopicImage], answered: "asyncio.Future[None]", log: Log
    ) -> None:
        self._deleting.add(answered)
        try:
            for topic in topics:
                if await self._delete(topic, answered):
                    why = "auto-created, and its first message was too large"
                    log(f"deleted topic {topic.name!r}: {why}")
        finally:
            self._on_answered(answered)

    async def _delete(self, topic: TopicImage, answered: "asyncio.Future[None]") -> bool:
        partitions = self._partitions.of_topic(topic.name)
        async with AsyncExitStack() as locks:
            for partition in partitions:
                await locks.enter_async_context(partition.changing)
            if not self._is_unused(topic, partitions):
                return False
            self._forget(topic)
            for partition in partitions:
                self._roles.forget(partition)
            try:
                await self._topics.delete_unchanged(topic)
            except RequestError as error:
                logger.info("the unused topic %r stays: %s", topic.name, error)
            except StoreUnavailable as error:
                logger.warning("the unused topic %r may be deleted or not: %s", topic.name, error)
                self._on_answered(answered)
                # The partitions must not lead before the outcome is known.
                await self._catalog.refresh()
        is_deleted = topic.id not in self._catalog.image.topics_by_id
        if is_deleted:
            # No client has asked for this: the producer may create it again with its next, smaller message.
            self._deleted.forget(topic.name)
            self._topics.on_changed()
        await self._hosted_replicas.reconcile([topic.name])
        return is_deleted

    def _on_answered(self, answered: "asyncio.Future[None]") -> None:
        self._deleting.discard(answered)
        if not answered.done():
            answered.set_result(None)

    def _is_unused(self, topic: TopicImage, partitions: list[Partition]) -> bool:
        known = self._catalog.image.topics.get(topic.name)
        return (
            self._unused.get(topic.name) is topic
            and known is not None
            and (known.id, known.revision) == (topic.id, topic.revision)
            and len(partitions) == len(topic.partitions)
            and all(
                one.topic_id == topic.id
                and one.is_leading
                and one.is_online
                and not one.log.log_end
                for one in partitions
            )
        )
