"""Topic changes: decided on the cluster image, written in parts, decided again after a conflict.

Any broker may change topics, and several at the same time: the metadata store applies a write only if its guards still
hold. A topic exists, or has more partitions, with the last of its writes; it is deleted with the first.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from respool.broker.metadata.catalog import Catalog, Decide, retry_on_conflict
from respool.cluster import topic_requests
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.view import ClusterView
from respool.model.cluster import TopicImage
from respool.model.errors import InvalidPartitions, InvalidRequest, UnknownTopicId
from respool.model.ids import BrokerId, TopicId
from respool.model.stored_topic_config import understood
from respool.ports.metadata_store import GuardFailed, StoreUnavailable

logger = logging.getLogger(__name__)

USE_DEFAULT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to be created; -1 stands for the default number of partitions or replicas."""

    name: str
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    overrides: Mapping[str, str] = field(default_factory=dict)
    # The replicas of each partition; None: they are assigned automatically.
    assignment: Mapping[int, Iterable[int]] | None = None


class TopicChanges:
    """All methods raise RequestError for invalid changes, and StoreUnavailable if the outcome is unknown."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._settings = catalog.settings

    async def create(self, wanted: NewTopic, *, validate_only: bool = False) -> TopicImage:
        name, count = wanted.name, wanted.partition_count
        topic_id = TopicId(self._catalog.rng.uuid())
        assigned = None if not wanted.assignment else _brokers_of(wanted.assignment)
        if count == USE_DEFAULT:
            count = self._settings.topics.num_partitions

        def decide(view: ClusterView) -> list[GuardedWrite]:
            factor = wanted.replication_factor
            if factor == USE_DEFAULT:
                # A request without a factor gets at most as many replicas as there are brokers.
                factor = min(
                    self._settings.topics.default_replication_factor, max(1, len(view.candidates()))
                )
            if name not in view.topics:
                self._check_room(view, len(assigned) if assigned else count, factor=factor)
            return topic_requests.create_topic(
                view,
                name,
                topic_id=topic_id,
                overrides=wanted.overrides,
                partition_count=count,
                replication_factor=factor,
                assignment=assigned,
            )

        # An override that cannot be parsed must not get into the store.
        self._catalog.parse_config(wanted.overrides)
        return await self._make(name, decide, topic_id=topic_id, validate_only=validate_only)

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
            topic = view.topics.get(name)
            have = 0 if topic is None else len(topic.partitions)
            if topic is not None and partition_count > have:
                factor = len(topic.partitions[0].target)
                self._check_room(view, partition_count - have, factor=factor)
            return topic_requests.grow_topic(
                view,
                name,
                partition_count=partition_count,
                assignment=None if named is None else dict(enumerate(named, start=have)),
            )

        topic_id = self._catalog.topic(name).id
        return await self._make(name, decide, topic_id=topic_id, validate_only=validate_only)

    async def change_overrides(
        self,
        name: str,
        rewrite: Callable[[TopicImage], Mapping[str, str]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Replace the topic's overrides by the result of `rewrite`."""

        def decide(view: ClusterView) -> list[GuardedWrite]:
            before = self._catalog.topic(name)
            overrides = rewrite(before)
            # Existing overrides that are unknown here were set by a newer version: they stay, and block no change.
            foreign = before.overrides.items() - understood(before.overrides).items()
            self._catalog.parse_config(dict(one for one in overrides.items() if one not in foreign))
            return topic_requests.configure_topic(view, name, overrides=overrides)

        await self._make(name, decide, validate_only=validate_only)

    async def delete(
        self, name: str, *, topic_id: TopicId | None = None, revision: int | None = None
    ) -> None:
        """Delete the topic if it still has this id: another topic may have been created with the same name.

        With `revision`, delete it only if it was not changed since.
        """

        def decide(view: ClusterView) -> list[GuardedWrite]:
            topic = self._catalog.topic(name)
            if topic_id not in (None, topic.id):
                raise UnknownTopicId(f"the topic {name!r} with id {topic_id} was just deleted")
            if revision not in (None, topic.revision):
                raise InvalidRequest(f"the topic {name!r} has been changed meanwhile")
            return topic_requests.delete_topic(view, name)

        async def write(writes: Sequence[GuardedWrite]) -> None:
            await self._catalog.write(writes[0])
            try:
                for one in writes[1:]:
                    await self._catalog.write(one)
            except (GuardFailed, StoreUnavailable) as error:
                # The partition keys are no longer used, and are garbage collected later.
                logger.info("partitions of the deleted topic %r are left for now: %s", name, error)

        await retry_on_conflict(self._catalog, decide, write)

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
        return self._catalog.topic(name)

    async def _write_all(self, writes: Sequence[GuardedWrite]) -> None:
        first_revision = await self._catalog.write(writes[0])
        for one in writes[1:-1]:
            await self._catalog.write(one)
        if len(writes) > 1:
            await self._catalog.write(topic_requests.sealed(writes, first_revision=first_revision))

    def _check_room(self, view: ClusterView, added: int, *, factor: int) -> None:
        """Refuse partitions beyond the limit, before replicas are assigned."""
        takers = max(1, len(view.candidates()))
        have = sum(len(one.target) for topic in view.topics.values() for one in topic.partitions)
        after = have + added * max(1, min(factor, takers))
        limit = self._settings.topics.partitions_max * takers
        if after > limit:
            raise InvalidPartitions(
                f"{added} more partitions would make {after} replicas on {takers} broker(s), limit {limit} "
                f"(partitions_max = {self._settings.topics.partitions_max} on each)"
            )


def _brokers_of(assignment: Mapping[int, Iterable[int]]) -> dict[int, tuple[BrokerId, ...]]:
    return {number: _brokers(brokers) for number, brokers in assignment.items()}


def _brokers(brokers: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))
