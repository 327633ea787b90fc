"""Changes of topics and views requested by clients: first in the catalog, then in the partitions.

This broker makes one change at a time; other brokers change topics too. If the broker dies in between, the catalog is
authoritative: the next start opens the partitions that it names, and moves other folders aside.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol, TypeVar

from respool.broker.metadata.catalog import Catalog
from respool.broker.metadata.layout_changes import LayoutChanges
from respool.broker.metadata.topic_changes import USE_DEFAULT, NewTopic, TopicChanges
from respool.cluster.layout_requests import is_handed_over
from respool.model.cluster import ClusterImage, TopicImage
from respool.model.errors import (
    InvalidTopic,
    ReassignmentInProgress,
    RequestError,
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

# How long a change of a topic's layout may take.
CHANGE_S = 10.0

T = TypeVar("T")
Item = TypeVar("Item")


class LocalReplicas(Protocol):
    """The replicas on this broker: `HostedReplicas`."""

    async def reconcile(self, names: Iterable[str]) -> None:
        """Open and close replicas of these topics, as the image says."""


class Topics:
    def __init__(self, *, catalog: Catalog, hosted_replicas: LocalReplicas) -> None:
        self._catalog = catalog
        self._writes = TopicChanges(catalog)
        self._layouts = LayoutChanges(catalog)
        self._hosted_replicas = hosted_replicas
        self._changing = asyncio.Lock()
        # Topics that may or may not have changed: the store did not answer.
        self._doubtful: set[str] = set()
        # Called when topics were created, got partitions or were deleted: groups rebalance.
        self.on_changed: Callable[[], None] = lambda: None

    async def create(
        self,
        name: str,
        *,
        partition_count: int = USE_DEFAULT,
        replication_factor: int = USE_DEFAULT,
        overrides: Mapping[str, str] | None = None,
        assignment: Mapping[int, Iterable[int]] | None = None,
    ) -> TopicImage:
        """
        Raises:
            RequestError: the topic cannot be created, or the store does not answer.
        """
        wanted = NewTopic(
            name=name,
            partition_count=partition_count,
            replication_factor=replication_factor,
            overrides=overrides or {},
            assignment=assignment,
        )
        return _raised((await self.create_each([wanted]))[name])

    async def create_each(
        self, wanted: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicImage | RequestError]:
        """Create several topics, each on its own; their partitions are opened together. Return the results by name."""
        topics = {one.name: one for one in wanted}

        async def create(done: dict[str, TopicImage | RequestError]) -> None:
            await self._writes.create_each(_public(topics, done).values(), done)

        async def validate(done: dict[str, TopicImage | RequestError]) -> None:
            for name, one in _public(topics, done).items():
                try:
                    done[name] = await self._writes.create(one, validate_only=True)
                except RequestError as error:
                    done[name] = error

        return await self._change_each(topics, validate if validate_only else create)

    async def create_internal(self, name: str, *, partition_count: int) -> TopicImage:
        """Create one of the broker's own topics, or return the existing one."""
        async with self._change(name):
            if name not in self._catalog.image.topics:
                await self._create_internal(name, partition_count)
            # Also for an existing topic: an earlier attempt may not have opened its partitions.
            await self._hosted_replicas.reconcile([name])
            return self._catalog.topic(name)

    async def _create_internal(self, name: str, partition_count: int) -> None:
        view = await self._catalog.sure_view()
        factor = internal_replication_factor(name, self._catalog.settings.controller)
        try:
            await self._writes.create(
                NewTopic(
                    name=name,
                    partition_count=partition_count,
                    # With fewer brokers than the factor there are fewer replicas, so that no client has to wait.
                    replication_factor=max(1, min(factor, len(view.candidates()))),
                    overrides=INTERNAL_TOPICS[name],
                )
            )
        except TopicAlreadyExists:
            # Created by another broker, or by an earlier attempt whose reply from the store was lost.
            if name not in self._catalog.image.topics:
                raise

    async def create_if_missing(
        self, name: str, *, on_created: Callable[[TopicImage], None]
    ) -> tuple[TopicImage, bool]:
        """Auto-creation: two clients that ask at once get one topic with one id. True: this call created it.

        `on_created` is called before the partitions have roles, and before the next change.
        """

        async def create(done: dict[str, TopicImage | RequestError]) -> None:
            try:
                _refuse_internal(name)
                topic = await self._writes.create(NewTopic(name=name))
                on_created(topic)
                done[name] = topic
            except RequestError as error:
                done[name] = error

        try:
            return _raised((await self._change_each([name], create))[name]), True
        except TopicAlreadyExists:
            # Also if it is a view: a topic must not take its name.
            return self._catalog.readable(name), False

    async def add_partitions(
        self,
        name: str,
        *,
        partition_count: int,
        assignments: Iterable[Iterable[int]] | None = None,
        validate_only: bool = False,
        timeout_s: float = CHANGE_S,
    ) -> None:
        # The number of partitions determines which partition stores a group.
        _refuse_internal(name)
        topic = self._catalog.image.topics.get(name)
        if topic is not None and topic.layout is not None:
            await self._until_complete(
                name,
                lambda: self._layouts.prepare_growth(
                    name, to=partition_count, validate_only=validate_only
                ),
                timeout_s=timeout_s,
            )
            if topic.active_count < partition_count <= len(topic.partitions):
                # Partitions that were sealed take records again.
                if not validate_only:
                    await self._wait_until_handed_over(name, timeout_s)
                return
        async with self._change(name):
            await self._writes.grow(
                name,
                partition_count=partition_count,
                assignments=assignments,
                validate_only=validate_only,
            )

    async def shrink(
        self,
        name: str,
        *,
        to: int,
        is_unkeyed: bool = False,
        validate_only: bool = False,
        timeout_s: float = CHANGE_S,
    ) -> None:
        """Seal the partitions from `to` on: their records go to the others.

        Raises:
            ReassignmentInProgress: their replicas are being aligned; ask again.
        """
        await self._until_complete(
            name,
            lambda: self._layouts.shrink(
                name, to=to, is_unkeyed=is_unkeyed, validate_only=validate_only
            ),
            timeout_s=timeout_s,
        )
        if not validate_only:
            await self._wait_until_handed_over(name, timeout_s)

    async def retire(self, topic: TopicImage, *, validate_only: bool = False) -> None:
        """Take the topic's sealed partitions away; the caller has checked that they are empty."""
        async with self._change(topic.name):
            await self._layouts.retire(topic, validate_only=validate_only)

    async def _until_complete(
        self, name: str, change: Callable[[], Awaitable[bool]], *, timeout_s: float
    ) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        while True:
            async with self._change(name):
                if await change():
                    return
            # Other topics may be changed while replicas are being aligned.
            left_s = until_s - loop.time()
            before = self._catalog.image
            if left_s <= 0 or not await self._catalog.wait_until(
                partial(self._is_another, before), timeout_s=left_s
            ):
                raise ReassignmentInProgress(
                    f"replicas of {name!r} are being aligned, so that one broker leads the partitions that share their "
                    "records; nothing else has changed: ask again"
                )

    def _is_another(self, before: ClusterImage) -> bool:
        return self._catalog.image is not before

    async def _wait_until_handed_over(self, name: str, timeout_s: float) -> None:
        """Wait until the leaders have noted the change. It is decided, whether they have or not."""

        def is_so() -> bool:
            topic = self._catalog.image.topics.get(name)
            return topic is None or is_handed_over(topic)

        await self._catalog.wait_until(is_so, timeout_s=timeout_s)

    async def change_overrides(
        self,
        name: str,
        rewrite: Callable[[TopicImage], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Replace the topic's overrides by the result of `rewrite`."""
        async with self._change(name):
            await self._writes.change_overrides(name, rewrite, validate_only=validate_only)

    async def delete(self, name: str, *, topic_id: TopicId | None = None) -> None:
        _raised((await self.delete_each({name: topic_id}))[name])

    async def delete_each(
        self, ids: Mapping[str, TopicId | None]
    ) -> dict[str, RequestError | None]:
        """Delete these topics, each only if it still has this id: another one may have been created with its name."""

        async def delete(done: dict[str, RequestError | None]) -> None:
            await self._writes.delete_each(_public(ids, done), done)

        return await self._change_each(ids, delete)

    async def delete_unchanged(self, topic: TopicImage) -> None:
        """Delete the topic from the catalog if nobody changed it since this image. Its partitions are the caller's.

        Raises:
            RequestError: it has been changed or deleted.
            StoreUnavailable: it is unknown whether it was deleted.
        """
        await self._writes.delete(topic.name, topic_id=topic.id, revision=topic.revision)

    async def _change_each(
        self,
        names: Collection[str],
        change: Callable[[dict[str, T | RequestError]], Awaitable[None]],
    ) -> dict[str, T | RequestError]:
        """Make several changes; a failed one does not affect the others. Then update the partitions of all.

        `change` puts each result into its argument as soon as it is known.
        """
        done: dict[str, T | RequestError] = {}
        if not names:
            return done
        try:
            async with self._change(*names):
                try:
                    await change(done)
                except StoreUnavailable as error:
                    # If the store is unavailable, this fails once instead of once per topic.
                    unknown = [name for name in names if name not in done]
                    self._doubtful.update(unknown)
                    done.update(dict.fromkeys(unknown, _unanswered(error)))
        except RequestTimedOut as error:
            return dict.fromkeys(names, error) | done
        return done

    @asynccontextmanager
    async def _change(self, *names: str) -> AsyncIterator[None]:
        """One change at a time. Then update the partitions, also for a change that had been made already."""
        async with self._changing:
            try:
                await self._reconcile_doubtful()
                before = {name: self._catalog.image.readable(name) for name in names}
                try:
                    yield
                finally:
                    await self._follow(before)
            except StoreUnavailable as error:
                self._doubtful.update(names)
                raise _unanswered(error) from error
            except asyncio.CancelledError:
                # The caller was cancelled, and the change may have been made.
                self._doubtful.update(names)
                raise

    async def _reconcile_doubtful(self) -> None:
        """Find out the results of changes that the store did not confirm."""
        if self._doubtful:
            await self._catalog.read_view()
            self.on_changed()
            await self._hosted_replicas.reconcile(sorted(self._doubtful))
            self._doubtful.clear()

    async def _follow(self, before: Mapping[str, TopicImage | None]) -> None:
        now = {name: self._catalog.image.readable(name) for name in before}
        changed = [name for name in before if now[name] is not before[name]]
        if not changed:
            return
        if any(now[name] is None for name in changed):
            # Groups need not wait until the deleted topic's files are moved aside.
            self.on_changed()
        await self._hosted_replicas.reconcile(changed)
        if any(_is_other(now[name], before[name]) for name in changed):
            self.on_changed()


def _is_other(now: TopicImage | None, before: TopicImage | None) -> bool:
    """True if `now` has partitions that `before` did not have, or patterns match it otherwise."""
    if now is None or before is None:
        return now is not None
    return _shape(now) != _shape(before)


def _shape(topic: TopicImage) -> tuple[TopicId, int, bool]:
    return topic.id, len(topic.partitions), topic.is_listed


def _raised(outcome: T | RequestError) -> T:
    if isinstance(outcome, RequestError):
        raise outcome
    return outcome


def _unanswered(error: StoreUnavailable) -> RequestTimedOut:
    return RequestTimedOut(f"the metadata store does not answer: {error}")


def _public(names: Mapping[str, Item], done: dict[str, T | RequestError]) -> dict[str, Item]:
    """The names that clients may change; the others get their error in `done`."""
    public = {}
    for name, item in names.items():
        try:
            _refuse_internal(name)
        except RequestError as error:
            done[name] = error
        else:
            public[name] = item
    return public


def _refuse_internal(name: str) -> None:
    if is_internal(name):
        raise InvalidTopic(f"{name!r} belongs to the broker; it makes and keeps it by itself")
