"""Ends holds of readers: once every group has read what the same keys got before, or when the time is over.

A key's records were in a partition that is now sealed, and go to its heir. So the heir's leader shows consumers nothing
newer until every group with members that reads the topic has committed the ends that were noted, or
`respool.shrink.barrier.ms` has passed. The same when a partition takes records again. Producers and followers continue.

The hold is in the partition's key, so followers and later leaders hold, too.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from respool.broker.layouts.group_reading import ReadingGroups
from respool.broker.layouts.handover_notes import without_hold
from respool.broker.metadata.catalog import Catalog
from respool.broker.partitions.registry import Partitions
from respool.model.cluster import TopicImage
from respool.model.errors import RequestError
from respool.model.ids import Offset, TopicId
from respool.model.layouts.partition_layout import ReaderHold
from respool.ports.clock import Clock
from respool.ports.metadata_store import GuardFailed, StoreUnavailable
from respool.ports.metrics import Metrics

logger = logging.getLogger(__name__)

LOOK_S = 0.1
# Groups named in the log.
NAMED_MAX = 10
HOLD_BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class ReaderHolds:
    def __init__(
        self,
        *,
        catalog: Catalog,
        partitions: Partitions,
        progress: ReadingGroups,
        clock: Clock,
        metrics: Metrics,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        on_released: Callable[[str], None],
    ) -> None:
        """`on_released` gets the name of a topic whose holds have changed."""
        self._catalog = catalog
        self._partitions = partitions
        self._progress = progress
        self._clock = clock
        self._spawn = spawn
        self._on_released = on_released
        self._watched: set[TopicId] = set()
        # By topic and partition: the hold, and the monotonic time when it began, as far as this broker can tell.
        self._begun: dict[tuple[TopicId, int], tuple[ReaderHold, int]] = {}
        self._seconds = metrics.histogram(
            "respool_shrink_barrier_seconds",
            "How long consumers were not shown new records of a partition, for the order of keys after a shrink.",
            buckets=HOLD_BOUNDS,
        )

    def on_topic(self, topic: TopicImage) -> None:
        """The topic's image has changed."""
        if topic.id not in self._watched and self._held(topic):
            self._watched.add(topic.id)
            self._spawn(self._watch(topic.id))

    def _held(self, topic: TopicImage) -> dict[int, ReaderHold]:
        """The holds of partitions that this broker leads."""
        held = {}
        for number, image in enumerate(topic.partitions):
            if image.handover is not None and image.handover.hold is not None:
                partition = self._partitions.held(topic.name, number)
                if partition is not None and partition.is_leading:
                    held[number] = image.handover.hold
        return held

    async def _watch(self, topic_id: TopicId) -> None:
        # Those that join during it do not prolong it.
        counted: set[str] | None = None
        try:
            while (topic := self._catalog.image.topics_by_id.get(topic_id)) is not None:
                held = self._held(topic)
                if not held:
                    break
                behind = None
                try:
                    readers = [
                        one for one in await self._progress.readers(topic) if one.has_members
                    ]
                    if counted is None:
                        counted = {one.group_id for one in readers}
                    behind = [one for one in readers if one.group_id in counted]
                except RequestError as error:
                    logger.debug("%s: groups cannot be asked for now: %s", topic.name, error)
                for number, hold in held.items():
                    names = None
                    if behind is not None:
                        # What was retired since cannot be read any more.
                        ends = {
                            one: end for one, end in hold.awaited if one < len(topic.partitions)
                        }
                        names = [one.group_id for one in behind if one.is_behind(ends)]
                    await self._release_if_due(topic, number, hold, names)
                await asyncio.sleep(LOOK_S)
        finally:
            self._watched.discard(topic_id)
            for key in [one for one in self._begun if one[0] == topic_id]:
                del self._begun[key]

    async def _release_if_due(
        self, topic: TopicImage, number: int, hold: ReaderHold, behind: list[str] | None
    ) -> None:
        """`behind`: the groups that have not read what is awaited; None: nobody can tell."""
        held_ms = self._held_ms(topic.id, number, hold)
        is_over = held_ms >= topic.config.respool_shrink_barrier_ms
        if behind != [] and not is_over:
            return
        current = self._catalog.image.topics_by_id.get(topic.id)
        if current is None or not self._is_held(current, number, hold):
            return
        why = f"{topic.name}-{number}: readers are shown all records"
        if behind:
            logger.warning(
                "%s after %d ms, though these groups have not read what their keys got before, in partitions %s: %s",
                why,
                held_ms,
                _ends_text(dict(hold.awaited)),
                ", ".join(behind[:NAMED_MAX]) + (" …" if len(behind) > NAMED_MAX else ""),
            )
        else:
            logger.info("%s after %d ms", why, held_ms)
        try:
            await self._catalog.write(without_hold(current, number, why=why))
        except (GuardFailed, StoreUnavailable) as error:
            logger.info("%s: not written yet: %s", why, error)
            return
        self._seconds.observe(held_ms / 1000)
        self._on_released(topic.name)

    def _held_ms(self, topic_id: TopicId, number: int, hold: ReaderHold) -> int:
        """How long readers have been held.

        The wall clock only says how long it was before this broker led the partition. From then on it may jump: it must
        neither end the hold early nor prolong it, and the clock of the leader before may have been another.
        """
        now_ms = self._clock.monotonic_ms()
        key = topic_id, number
        known = self._begun.get(key)
        if known is None or known[0] != hold:
            before_ms = max(0, self._clock.now_ms() - hold.since_ms)
            known = self._begun[key] = (hold, now_ms - before_ms)
        return now_ms - known[1]

    def _is_held(self, topic: TopicImage, number: int, hold: ReaderHold) -> bool:
        if number >= len(topic.partitions):
            return False
        handover = topic.partitions[number].handover
        return handover is not None and handover.hold == hold


def _ends_text(ends: Mapping[int, Offset]) -> str:
    return ", ".join(f"{number} up to {end}" for number, end in sorted(ends.items()))
