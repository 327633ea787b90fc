"""Changes of how many of a topic's partitions take records, requested by clients: decided on the image, and written.

A change may need the replicas of its partitions to be aligned first, which the controller does. Then it is asked for
again, until it is complete or the time is over; what was aligned by then stays so, and nothing else has changed.
"""

from collections.abc import Callable, Sequence

from respool.broker.metadata.catalog import Catalog, retry_on_conflict
from respool.cluster.guarded_write import GuardedWrite
from respool.cluster.layout_requests import (
    LayoutChange,
    retire_topic,
    shrink_topic,
    unseal,
    with_common_family,
)
from respool.cluster.view import ClusterView
from respool.model.cluster import TopicImage
from respool.model.errors import UnknownTopicOrPartition

DecideLayout = Callable[[ClusterView, TopicImage], LayoutChange]


class LayoutChanges:
    """All methods raise RequestError for invalid changes, and StoreUnavailable if the outcome is unknown."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def shrink(
        self, name: str, *, to: int, is_unkeyed: bool, validate_only: bool = False
    ) -> bool:
        """Return False if replicas are to be aligned first: ask again."""
        return await self._change(
            name,
            lambda view, topic: shrink_topic(view, topic, to=to, is_unkeyed=is_unkeyed),
            validate_only=validate_only,
        )

    async def prepare_growth(self, name: str, *, to: int, validate_only: bool = False) -> bool:
        """Unseal partitions, or prepare a topic that was shrunk for more of them. Return False as `shrink` does."""

        def decide(view: ClusterView, topic: TopicImage) -> LayoutChange:
            if topic.layout is None or to <= topic.active_count:
                return LayoutChange(writes=[], is_complete=True)
            if to <= len(topic.partitions):
                return unseal(view, topic, to=to)
            return with_common_family(view, topic, to) or LayoutChange(writes=[], is_complete=True)

        return await self._change(name, decide, validate_only=validate_only)

    async def retire(self, topic: TopicImage, *, validate_only: bool = False) -> None:
        """Take the sealed partitions away, if the topic is as it was when they were checked."""

        def decide(view: ClusterView, now: TopicImage) -> LayoutChange:
            if (now.id, now.layout) != (topic.id, topic.layout):
                raise UnknownTopicOrPartition(f"the topic {topic.name!r} has just been changed")
            return LayoutChange(writes=retire_topic(view, now), is_complete=True)

        await self._change(topic.name, decide, validate_only=validate_only)

    async def _change(self, name: str, decide: DecideLayout, *, validate_only: bool) -> bool:
        changes: list[LayoutChange] = []

        def decide_writes(view: ClusterView) -> list[GuardedWrite]:
            view.image.check_is_no_view(name, instead="change the partitions of")
            topic = view.topics.get(name)
            if topic is None:
                raise UnknownTopicOrPartition(f"there is no topic {name!r}")
            changes.append(decide(view, topic))
            return changes[-1].writes

        if validate_only:
            decide_writes(await self._catalog.sure_view())
            return True
        await retry_on_conflict(self._catalog, decide_writes, self._write)
        return changes[-1].is_complete

    async def _write(self, writes: Sequence[GuardedWrite]) -> None:
        for one in writes:
            await self._catalog.write(one)
