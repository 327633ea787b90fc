"""Topics as clients change them: the catalog says so first, then the partitions follow.

One change at a time here; other brokers change topics too. If the broker dies in between, the catalog is right: at the
next start partitions it names are opened, and folders it does not name are put aside.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager

from respool.broker.catalog import Catalog
from respool.broker.holdings import Holdings
from respool.broker.topic_writes import TopicWrites
from respool.model.cluster import TopicImage
from respool.model.errors import (
    InvalidTopic,
    RequestTimedOut,
    TopicAlreadyExists,
)
from respool.model.ids import TopicId
from respool.model.internal_topics import (
    INTERNAL_TOPICS,
    internal_replication_factor,
    is_internal,
)
from respool.ports.metadata_store import StoreUnavailable


class Topics:
    def __init__(self, *, catalog: Catalog, holdings: Holdings) -> None:
        self._catalog = catalog
        self._writes = TopicWrites(catalog)
        self._holdings = holdings
        self._changing = asyncio.Lock()
        # Changed perhaps, perhaps not: the store did not say.
        self._doubtful: set[str] = set()
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
        async with self._change(name):
            return await self._writes.create(
                name,
                partition_count=partition_count,
                replication_factor=replication_factor,
                overrides=overrides or {},
                assignment=assignment,
                validate_only=validate_only,
            )

    async def create_internal(self, name: str, *, partition_count: int) -> TopicImage:
        """Create one of the broker's own topics, or return it as it is."""
        async with self._change(name):
            if name not in self._catalog.image.topics:
                await self._create_internal(name, partition_count)
            # Also where it is not new: a try before this one may not have got this far.
            await self._holdings.settle([name])
            return self._catalog.topic(name)

    async def _create_internal(self, name: str, partition_count: int) -> None:
        view = await self._catalog.sure_view()
        factor = internal_replication_factor(name, self._catalog.settings)
        try:
            await self._writes.create(
                name,
                partition_count=partition_count,
                # With fewer brokers than that there are fewer replicas, and nobody has to wait.
                replication_factor=max(1, min(factor, len(view.takers()))),
                overrides=INTERNAL_TOPICS[name],
            )
        except TopicAlreadyExists:
            # By another broker, or by a try before this one, of which the store's answer was lost.
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
        async with self._change(name):
            await self._writes.grow(
                name,
                partition_count=partition_count,
                assignments=assignments,
                validate_only=validate_only,
            )

    async def change_overrides(
        self,
        name: str,
        rewrite: Callable[[TopicImage], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Give the topic the settings that `rewrite` makes of those it has."""
        async with self._change(name):
            await self._writes.change_overrides(name, rewrite, validate_only=validate_only)

    async def delete(self, name: str, *, topic_id: TopicId | None = None) -> None:
        """Delete the topic, if it still is the one with that id: another may have come under its name."""
        _refuse_internal(name)
        async with self._change(name):
            await self._writes.delete(name, topic_id=topic_id)

    @asynccontextmanager
    async def _change(self, name: str) -> AsyncIterator[None]:
        """One change at a time. The partitions follow, whether it was made here or turns out to be made already."""
        async with self._changing:
            try:
                await self._settle_doubts()
                before = self._catalog.image.topics.get(name)
                try:
                    yield
                finally:
                    await self._follow(name, before)
            except StoreUnavailable as error:
                self._doubtful.add(name)
                raise RequestTimedOut(f"the metadata store does not answer: {error}") from error
            except asyncio.CancelledError:
                # Nobody waits for it any more, and it may have been done.
                self._doubtful.add(name)
                raise

    async def _settle_doubts(self) -> None:
        """Look what has become of the changes that the store did not confirm."""
        if self._doubtful:
            await self._catalog.read_view()
            self.on_changed()
            await self._holdings.settle(sorted(self._doubtful))
            self._doubtful.clear()

    async def _follow(self, name: str, before: TopicImage | None) -> None:
        after = self._catalog.image.topics.get(name)
        if after is before:
            return
        if after is None:
            # Groups need not wait until its files are put aside.
            self.on_changed()
        await self._holdings.settle([name])
        if after is not None and (before is None or _is_other(after, before)):
            self.on_changed()


def _is_other(one: TopicImage, other: TopicImage) -> bool:
    return one.id != other.id or len(one.partitions) != len(other.partitions)


def _refuse_internal(name: str) -> None:
    if is_internal(name):
        raise InvalidTopic(f"{name!r} belongs to the broker; it makes and keeps it by itself")
