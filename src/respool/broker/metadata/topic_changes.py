"""Topic changes: decided on the cluster image, written in parts, decided again after a conflict.

Any broker may change topics, and several at the same time: the metadata store applies a write only if its guards still
hold. A topic exists, or has more partitions, with the last of its writes; it is deleted with the first.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from respool.broker.metadata.catalog import Catalog, Decide, retry_on_conflict
from respool.broker.metadata.write_each import write_each
from respool.cluster import topic_requests, view_requests
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.layout_requests import check_stays_shrunk
from respool.cluster.topic_requests import replica_counts
from respool.cluster.view import ClusterView
from respool.model.cluster import TopicImage
from respool.model.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    RequestError,
    UnknownTopicId,
)
from respool.model.ids import BrokerId, TopicId
from respool.model.stored_topic_config import understood
from respool.model.topic_config import AT_CREATION_ONLY
from respool.model.view_config import (
    OF,
    ViewConfig,
    check_is_no_view_setting,
    describes_view,
)
from respool.ports.metadata_store import GuardFailed, StoreUnavailable

logger = logging.getLogger(__name__)

T = TypeVar("T")

USE_DEFAULT = -1
# Topics that are created or deleted in one write of a single broker's store, so that it syncs once for all.
TOPICS_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic or view to be created; -1 stands for the default number of partitions or replicas, or its parent's."""

    name: str
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    overrides: Mapping[str, str] = field(default_factory=dict)
    # The replicas of each partition; None: they are assigned automatically.
    assignment: Mapping[int, Iterable[int]] | None = None

    @property
    def parent(self) -> str | None:
        """The topic of which this is to be a view; None: it is to be a topic."""
        return self.overrides.get(OF, "").strip() if describes_view(self.overrides) else None


class TopicChanges:
    """All methods raise RequestError for invalid changes, and StoreUnavailable if the outcome is unknown."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._settings = catalog.settings

    async def create(self, wanted: NewTopic, *, validate_only: bool = False) -> TopicImage:
        topic_id = TopicId(self._catalog.rng.uuid())

        def decide(view: ClusterView) -> list[GuardedWrite]:
            return self._decide_creation(view, wanted, topic_id, replica_counts(view))

        # An override that cannot be parsed must not get into the store.
        self._check_config(wanted)
        return await self._make(wanted.name, decide, topic_id=topic_id, validate_only=validate_only)

    async def create_each(
        self, wanted: Iterable[NewTopic], done: dict[str, TopicImage | RequestError]
    ) -> None:
        """Create these topics and views, many in one write. `done` gets each result as soon as it is known.

        Raises:
            StoreUnavailable: it is unknown whether the topics that are not in `done` were created.
        """
        every = list(wanted)
        # A view's parent may be in the same request.
        for some in (
            [one for one in every if one.parent is None],
            [one for one in every if one.parent is not None],
        ):
            await self._create_chunks(some, done)

    async def _create_chunks(
        self, wanted: Iterable[NewTopic], done: dict[str, TopicImage | RequestError]
    ) -> None:
        configs: dict[tuple[tuple[str, str], ...], RequestError | None] = {}
        for chunk in _chunks(wanted):
            drafts: dict[str, tuple[NewTopic, TopicId]] = {}
            for one in chunk:
                overrides = tuple(one.overrides.items())
                if overrides not in configs:
                    configs[overrides] = self._config_error(one)
                error = configs[overrides]
                if error is None:
                    drafts[one.name] = one, TopicId(self._catalog.rng.uuid())
                else:
                    done[one.name] = error
            await self._create_together(drafts, done)

    async def _create_together(
        self,
        drafts: Mapping[str, tuple[NewTopic, TopicId]],
        done: dict[str, TopicImage | RequestError],
    ) -> None:
        held: Counter[BrokerId] = Counter()

        def begin(view: ClusterView) -> None:
            held.clear()
            held.update(replica_counts(view))

        def decide(view: ClusterView, name: str) -> list[GuardedWrite]:
            return self._decide_creation(view, *drafts[name], held)

        ids = [topic_id for _, topic_id in drafts.values()]
        self._catalog.creating.update(ids)
        try:
            await write_each(
                self._catalog,
                list(drafts),
                decide,
                begin=begin,
                write_parts=self._write_all,
                outcome=self._catalog.readable,
                done=done,
            )
        finally:
            self._catalog.creating.difference_update(ids)

    def _config_error(self, wanted: NewTopic) -> RequestError | None:
        try:
            self._check_config(wanted)
        except RequestError as error:
            return error
        return None

    def _check_config(self, wanted: NewTopic) -> None:
        if wanted.parent is None:
            self._catalog.parse_config(wanted.overrides)
        else:
            ViewConfig.parse(wanted.overrides)

    def _decide_creation(
        self, view: ClusterView, wanted: NewTopic, topic_id: TopicId, held: Counter[BrokerId]
    ) -> list[GuardedWrite]:
        if wanted.parent is not None:
            if wanted.assignment:
                raise InvalidReplicaAssignment("a view has no replicas of its own to be assigned")
            return view_requests.create_view(
                view,
                wanted.name,
                topic_id=topic_id,
                config=ViewConfig.parse(wanted.overrides),
                partition_count=wanted.partition_count,
                replication_factor=wanted.replication_factor,
            )
        count, factor = wanted.partition_count, wanted.replication_factor
        assigned = None if not wanted.assignment else _brokers_of(wanted.assignment)
        if count == USE_DEFAULT:
            count = self._settings.topics.num_partitions
        takers = len(view.candidates())
        if factor == USE_DEFAULT:
            # A request without a factor gets at most as many replicas as there are brokers.
            factor = min(self._settings.topics.default_replication_factor, max(1, takers))
        if wanted.name not in view.topics and wanted.name not in view.image.views:
            added = len(assigned) if assigned else count
            self._check_room(takers, held.total(), added, factor=factor)
        return topic_requests.create_topic(
            view,
            wanted.name,
            topic_id=topic_id,
            overrides=wanted.overrides,
            partition_count=count,
            replication_factor=factor,
            assignment=assigned,
            held=held,
        )

    async def grow(
        self,
        name: str,
        *,
        partition_count: int,
        assignments: Iterable[Iterable[int]] | None = None,
        validate_only: bool = False,
    ) -> TopicImage:
        """Add partitions to a topic. Existing records stay in their partitions."""
        named = None if assignments is None else [*map(_brokers, assignments)]

        def decide(view: ClusterView) -> list[GuardedWrite]:
            view.image.check_is_no_view(name, instead="add partitions to")
            topic = view.topics.get(name)
            have = 0 if topic is None else len(topic.partitions)
            if topic is not None and partition_count > have:
                factor = len(topic.partitions[0].target)
                replicas = replica_counts(view).total()
                takers = len(view.candidates())
                self._check_room(takers, replicas, partition_count - have, factor=factor)
            return topic_requests.grow_topic(
                view,
                name,
                partition_count=partition_count,
                assignment=None if named is None else dict(enumerate(named, start=have)),
            )

        topic_id = self._catalog.readable(name).id
        return await self._make(name, decide, topic_id=topic_id, validate_only=validate_only)

    async def change_overrides(
        self,
        name: str,
        rewrite: Callable[[TopicImage], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Replace the settings of the topic or view by the result of `rewrite`."""

        def decide(view: ClusterView) -> list[GuardedWrite]:
            before = self._catalog.readable(name)
            overrides = rewrite(before)
            if before.view is not None:
                return view_requests.configure_view(view, before, overrides)
            for one in overrides:
                check_is_no_view_setting(one, name)
            _check_unchanged(before, overrides)
            _check_archive_stays(before, overrides)
            # Existing overrides that are unknown here were set by a newer version: they stay, and block no change.
            foreign = before.overrides.items() - understood(before.overrides).items()
            config = self._catalog.parse_config(
                dict(one for one in overrides.items() if one not in foreign)
            )
            check_stays_shrunk(before, config)
            return topic_requests.configure_topic(view, name, overrides=overrides)

        await self._make(name, decide, validate_only=validate_only)

    async def delete(
        self, name: str, *, topic_id: TopicId | None = None, revision: int | None = None
    ) -> None:
        """Delete the topic or view if it still has this id: another one may have been created with the same name.

        With `revision`, delete it only if it was not changed since.
        """

        def decide(view: ClusterView) -> list[GuardedWrite]:
            topic = self._catalog.readable(name)
            if topic_id not in (None, topic.id):
                raise UnknownTopicId(f"the topic {name!r} with id {topic_id} was just deleted")
            if revision not in (None, topic.revision):
                raise InvalidRequest(f"the topic {name!r} has been changed meanwhile")
            return _deletion(view, topic)

        await retry_on_conflict(self._catalog, decide, self._write_deletion)

    async def delete_each(
        self, ids: Mapping[str, TopicId | None], done: dict[str, RequestError | None]
    ) -> None:
        """Delete these topics and views, many in one write, each as `delete` does. `done` and errors: `create_each`."""

        def decide(view: ClusterView, name: str) -> list[GuardedWrite]:
            topic = self._catalog.readable(name)
            if ids[name] not in (None, topic.id):
                raise UnknownTopicId(f"the topic {name!r} with id {ids[name]} was just deleted")
            return _deletion(view, topic)

        # Views first: they would go with their parents.
        views = self._catalog.image.views
        for chunk in _chunks(sorted(ids, key=lambda name: name not in views)):
            await write_each(
                self._catalog,
                chunk,
                decide,
                write_parts=self._write_deletion,
                outcome=lambda _: None,
                done=done,
            )

    async def _write_deletion(self, writes: Sequence[GuardedWrite]) -> None:
        await self._catalog.write(writes[0])
        try:
            for one in writes[1:]:
                await self._catalog.write(one)
        except (GuardFailed, StoreUnavailable) as error:
            # The partition keys are no longer used, and are garbage collected later.
            logger.info("some partitions' keys are left for now: %s: %s", writes[0].why, error)

    async def _make(
        self,
        name: str,
        decide: Decide,
        *,
        topic_id: TopicId | None = None,
        validate_only: bool,
    ) -> TopicImage:
        if validate_only:
            return self._catalog.topic_after(name, decide(await self._catalog.sure_view()))
        if topic_id is None:
            await retry_on_conflict(self._catalog, decide, self._write_all)
        else:
            self._catalog.creating.add(topic_id)
            try:
                await retry_on_conflict(self._catalog, decide, self._write_all)
            finally:
                self._catalog.creating.discard(topic_id)
        return self._catalog.readable(name)

    async def _write_all(self, writes: Sequence[GuardedWrite]) -> None:
        first_revision = await self._catalog.write(writes[0])
        for one in writes[1:-1]:
            await self._catalog.write(one)
        if len(writes) > 1:
            await self._catalog.write(topic_requests.sealed(writes, first_revision=first_revision))

    def _check_room(self, takers: int, have: int, added: int, *, factor: int) -> None:
        """Refuse partitions beyond the limit, before replicas are assigned. `have` is the number of replicas now."""
        takers = max(1, takers)
        after = have + added * max(1, min(factor, takers))
        limit = self._settings.topics.partitions_max * takers
        if after > limit:
            raise InvalidPartitions(
                f"{added} more partitions would make {after} replicas on {takers} broker(s), limit {limit} "
                f"(partitions_max = {self._settings.topics.partitions_max} on each)"
            )


def _check_unchanged(before: TopicImage, overrides: Mapping[str, str]) -> None:
    """
    Raises:
        InvalidConfig: a setting would change that a topic has from its creation on.
    """
    changed = [
        one for one in sorted(AT_CREATION_ONLY) if before.overrides.get(one) != overrides.get(one)
    ]
    if changed:
        raise InvalidConfig(
            f"{', '.join(changed)} of {before.name!r} cannot be changed: create another topic with the new value"
        )


def _check_archive_stays(before: TopicImage, overrides: Mapping[str, str]) -> None:
    """
    Raises:
        InvalidConfig: the archived part of the log would be lost without saying so.
    """

    def is_true(name: str) -> bool:
        return overrides.get(name, "").strip().lower() == "true"

    if before.config.remote_storage_enable and not (
        is_true("remote.storage.enable") or is_true("remote.log.delete.on.disable")
    ):
        raise InvalidConfig(
            f"remote.storage.enable of {before.name!r} can be set to false only together with "
            "remote.log.delete.on.disable = true: what is archived is deleted then. To stop copying and keep it, set "
            "remote.log.copy.disable = true"
        )


def _deletion(view: ClusterView, topic: TopicImage) -> list[GuardedWrite]:
    if topic.view is not None:
        return view_requests.delete_view(view, topic)
    return topic_requests.delete_topic(view, topic.name)


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    waiting = iter(items)
    while chunk := list(islice(waiting, TOPICS_AT_ONCE)):
        yield chunk


def _brokers_of(assignment: Mapping[int, Iterable[int]]) -> dict[int, tuple[BrokerId, ...]]:
    return {number: _brokers(brokers) for number, brokers in assignment.items()}


def _brokers(brokers: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))
