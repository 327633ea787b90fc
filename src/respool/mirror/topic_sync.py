"""Keeps the target's topics in sync with the source's: creates them, adds partitions, stops those that diverged.

A topic that fails does not delay the others; it is retried at the next sync.
"""

import asyncio
from collections.abc import Mapping

from respool.client.kafka.layout_descriptions import TopicLayout
from respool.client.kafka.metadata import TopicMetadata
from respool.mirror.cluster_link import ClusterLink
from respool.mirror.copier import PartitionCopier
from respool.mirror.partition_copy import StopReason
from respool.mirror.progress import MirrorEvent, OnEvent, Severity
from respool.mirror.retry_log import RetryLog
from respool.mirror.target_topics import (
    MirrorsUnsupported,
    TargetTopics,
    TopicFilter,
    partition_counts,
    why_not_followed,
)
from respool.model.operator_errors import OperatorError, Unreachable


class TopicSync:
    def __init__(
        self,
        wanted: TopicFilter,
        source: ClusterLink,
        target: ClusterLink,
        *,
        target_topics: TargetTopics,
        copier: PartitionCopier,
        on_event: OnEvent,
        retries: RetryLog,
    ) -> None:
        self._wanted = wanted
        self._source = source
        self._target = target
        self._target_topics = target_topics
        self._copier = copier
        self._on_event = on_event
        self._retries = retries
        # One sync at a time.
        self._lock = asyncio.Lock()
        # The source's topics at the time when copying began.
        self._followed: dict[str, TopicMetadata] = {}
        # Topic -> why it is no longer copied.
        self.stopped: dict[str, str] = {}
        self._noted_views: set[str] = set()
        # The source's topics that were shrunk.
        self._layouts: Mapping[str, TopicLayout] = {}
        # Topics that could not be created or grown; retried at each sync.
        self.waiting: set[str] = set()

    @property
    def not_mirrored(self) -> list[str]:
        return sorted({*self.stopped, *self.waiting})

    async def sync(self) -> None:
        """
        Raises:
            LinkError, OperatorError: a cluster does not answer; no topic was synced.
        """
        async with self._lock:
            await self._sync()

    async def _sync(self) -> None:
        await self._source.refresh()
        await self._target.refresh()
        names = await self._selected()
        for gone in self.waiting.difference(names):
            self._on_passed(gone)
        await self._create_missing(names)
        held = [name for name in {*names, *self._followed} if name in self._target.topics]
        mirrors = await asyncio.to_thread(self._target_topics.mirrors_among, held) if held else {}
        self._layouts = await asyncio.to_thread(self._target_topics.source_layouts)
        there = [name for name in held if name in self._source.topics]
        await asyncio.to_thread(self._target_topics.note_compacted_at_source, there)
        for name, known in self._followed.items():
            why = why_not_followed(
                name,
                self._source.topics.get(name),
                known,
                self._target.topics.get(name),
                is_mirror=mirrors.get(name, True),
            )
            if why:
                self._copier.stop_topic(name, *why)
        for name in names:
            if name in self._target.topics and name not in self.stopped:
                await self._follow(name, is_mirror=mirrors.get(name, False))

    async def _selected(self) -> list[str]:
        """The source's topics that are wanted. A view stores nothing: its records are copied with its parent."""
        wanted = self._wanted.of(self._source.topics)
        topics = [self._source.topics[name] for name in wanted]
        views = await asyncio.to_thread(self._target_topics.views_among, topics) if topics else ()
        for name in sorted(set(views) - self._noted_views):
            self._noted_views.add(name)
            self._on_event(
                MirrorEvent(
                    f"{name} is a view and is not copied; create it at the target",
                    Severity.INFO,
                    f"see its condition with: respool view describe {name}",
                )
            )
        return [name for name in wanted if name not in views]

    def on_stopped(self, topic: str, reason: StopReason, why: str) -> None:
        if topic in self.stopped:
            return
        self.stopped[topic] = why
        self.waiting.discard(topic)
        hint = _advice(topic, reason, self._target.cluster.bootstrap)
        self._on_event(MirrorEvent(why, Severity.ERROR, hint))

    async def _create_missing(self, names: list[str]) -> None:
        missing = [name for name in names if name not in self._target.topics]
        for name in missing:
            if name in self._followed:
                why = f"{name} was deleted at the target; the next run copies it again"
                self._copier.stop_topic(name, StopReason.RELEASED, why)
                continue
            count = partition_counts(self._source.topics, name)
            try:
                await asyncio.to_thread(self._target_topics.create, name, partitions=count)
            except (Unreachable, MirrorsUnsupported):
                raise
            except OperatorError as error:
                self._on_failed(name, error)
                continue
            self._on_event(MirrorEvent(f"created {name} at the target", Severity.INFO))
            if left_out := self._target_topics.left_out.pop(name, None):
                message = (
                    f"{name}: settings that Respool refuses were left out: {', '.join(left_out)}"
                )
                self._on_event(MirrorEvent(message))
        if missing:
            await self._target.refresh()

    async def _follow(self, name: str, *, is_mirror: bool) -> None:
        wanted = partition_counts(self._source.topics, name)
        have = partition_counts(self._target.topics, name)
        if not is_mirror:
            if name not in self._followed:
                why = f"topic {name} exists at the target and is not a mirror"
                self.on_stopped(name, StopReason.NOT_A_MIRROR, why)
            return
        layout = self._layouts.get(name)
        if have > wanted and (layout is None or have > layout.named):
            why = f"{name} has {have} partitions at the target, and {wanted} at the source"
            if name in self._followed:
                self._copier.stop_topic(name, StopReason.DIFFERS, why)
            else:
                self.on_stopped(name, StopReason.DIFFERS, why)
            return
        numbers = set(self._source.topics[name].leaders)
        if not await self._note_active(name, layout):
            return
        # The copy keeps partitions that were retired at the source.
        if layout is not None and layout.listed < layout.named:
            self._copier.drop_retired(name, listed=layout.listed)
        if have >= wanted or await self._grow(name, partitions=wanted):
            self._on_passed(name)
        else:
            numbers &= self._target.topics[name].leaders.keys()
        self._followed.setdefault(name, self._source.topics[name])
        self._copier.add((name, number) for number in numbers)

    async def _note_active(self, name: str, layout: TopicLayout | None) -> bool:
        """Return False if it failed: what was written by the new layout must not be copied before."""
        active = 0 if layout is None or layout.active == layout.named else layout.active
        try:
            has_changed = await asyncio.to_thread(self._target_topics.note_active, name, active)
        except Unreachable:
            raise
        except OperatorError as error:
            self._on_failed(name, error)
            return False
        if has_changed:
            what = f"{active} partitions" if active else "all partitions"
            message = f"{name} takes messages in {what} at the source; promote does the same here"
            self._on_event(MirrorEvent(message, Severity.INFO))
        return True

    async def _grow(self, name: str, *, partitions: int) -> bool:
        try:
            await asyncio.to_thread(self._target_topics.grow, name, partitions=partitions)
        except Unreachable:
            raise
        except OperatorError as error:
            self._on_failed(name, error)
            return False
        self._on_event(MirrorEvent(f"{name} has {partitions} partitions now", Severity.INFO))
        await self._target.refresh()
        return True

    def _on_failed(self, name: str, error: OperatorError) -> None:
        self.waiting.add(name)
        self._retries.on_failed(name, error)

    def _on_passed(self, name: str) -> None:
        self.waiting.discard(name)
        self._retries.on_passed(name)


def _advice(topic: str, reason: StopReason, target: str) -> str:
    match reason:
        case StopReason.RELEASED:
            return "nothing to do; exclude it next time with --exclude"
        case StopReason.NOT_A_MIRROR:
            return (
                f"exclude it with --exclude {topic}; or, to continue an old copy: "
                f"respool topic alter {topic} --set respool.mirror=true --broker {target}"
            )
        case StopReason.REFUSED:
            return "the copy was not changed; start the mirror again when the cause is fixed"
        case StopReason.DIFFERS:
            return (
                f"the copy was not changed. To copy the topic again: respool topic delete {topic} --broker {target}, "
                "and restart the mirror"
            )
