"""Topics as clients change them: the catalog says so first, then the partitions follow.

One change at a time. If the broker dies in between, the catalog is right: at the next start partitions it names are
opened, and folders it does not name are put aside.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

from respool.broker.catalog import Catalog
from respool.broker.holdings import Holdings
from respool.model.cluster import TopicImage
from respool.model.errors import (
    InvalidTopic,
    RequestTimedOut,
    TopicAlreadyExists,
    UnknownTopicId,
)
from respool.model.ids import TopicId
from respool.model.internal_topics import INTERNAL_TOPICS, is_internal
from respool.ports.metadata_store import StoreUnavailable


class Topics:
    def __init__(self, *, catalog: Catalog, holdings: Holdings) -> None:
        self._catalog = catalog
        self._holdings = holdings
        self._changing = asyncio.Lock()
        # Told when topics came, grew or went: groups share their partitions out anew.
        self.on_changed: Callable[[], None] = lambda: None

    async def create(
        self,
        name: str,
        *,
        partition_count: int = -1,
        replication_factor: int = -1,
        overrides: Mapping[str, str] | None = None,
        assignment: Mapping[int, Iterable[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicImage:
        _refuse_internal(name)
        async with self._change():
            try:
                topic = await self._catalog.create_topic(
                    name,
                    partition_count=partition_count,
                    replication_factor=replication_factor,
                    overrides=overrides or {},
                    assignment=assignment,
                    validate_only=validate_only,
                )
            except TopicAlreadyExists:
                # Perhaps by a request before this one, of which the store's answer was lost.
                await self._holdings.settle([name])
                raise
            if not validate_only:
                await self._holdings.settle([name])
                self.on_changed()
            return topic

    async def create_internal(self, name: str, *, partition_count: int) -> TopicImage:
        """Create one of the broker's own topics, or return it as it is."""
        async with self._change():
            if name not in self._catalog.image.topics:
                await self._create_internal(name, partition_count)
            # Also where it is not new: a try before this one may not have got this far.
            await self._holdings.settle([name])
            return self._catalog.topic(name)

    async def _create_internal(self, name: str, partition_count: int) -> None:
        try:
            await self._catalog.create_topic(
                name,
                partition_count=partition_count,
                replication_factor=-1,
                overrides=INTERNAL_TOPICS[name],
            )
        except TopicAlreadyExists:
            # By a try before this one, of which the store's answer was lost.
            if name not in self._catalog.image.topics:
                raise

    async def create_if_missing(self, name: str) -> TopicImage:
        """Auto-creation: two clients asking at once get one topic with one id."""
        try:
            return await self.create(name)
        except TopicAlreadyExists:
            return self._catalog.topic(name)

    async def add_partitions(
        self,
        name: str,
        *,
        partition_count: int,
        assignments: Iterable[Iterable[int]] | None = None,
        validate_only: bool = False,
    ) -> None:
        # Which partition looks after a group follows from their number.
        _refuse_internal(name)
        async with self._change():
            await self._catalog.add_partitions(
                name,
                partition_count=partition_count,
                assignments=assignments,
                validate_only=validate_only,
            )
            if not validate_only:
                await self._holdings.settle([name])
                self.on_changed()

    async def change_overrides(
        self,
        name: str,
        rewrite: Callable[[TopicImage], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Give the topic the settings that `rewrite` makes of those it has."""
        async with self._change():
            overrides = rewrite(self._catalog.topic(name))
            await self._catalog.set_overrides(name, overrides, validate_only=validate_only)
            if not validate_only:
                await self._holdings.settle([name])

    async def delete(self, name: str, *, topic_id: TopicId | None = None) -> None:
        """Delete the topic, if it still is the one with that id: another may have come under its name."""
        _refuse_internal(name)
        async with self._change():
            if topic_id not in (None, self._catalog.topic(name).id):
                raise UnknownTopicId(f"the topic {name!r} with id {topic_id} was just deleted")
            await self._catalog.delete_topic(name)
            self.on_changed()
            await self._holdings.settle([name])

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        """One change at a time. Whether one was made that the store did not confirm is known after the next start."""
        async with self._changing:
            try:
                yield
            except StoreUnavailable as error:
                raise RequestTimedOut(f"the metadata store does not answer: {error}") from error


def _refuse_internal(name: str) -> None:
    if is_internal(name):
        raise InvalidTopic(f"{name!r} belongs to the broker; it makes and keeps it by itself")
