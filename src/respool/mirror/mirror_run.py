"""One run of a mirror: syncs topics, copies partitions and group offsets, until it is done or stopped."""

import asyncio
import re
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from respool.client.kafka.metadata import Place
from respool.client.kafka.security import IN_THE_CLEAR, Security
from respool.mirror.cluster_link import LATEST, ClusterLink, LinkError
from respool.mirror.clusters import connect_both
from respool.mirror.copier import PartitionCopier
from respool.mirror.group_copier import GroupCopyResult, GroupOffsetCopier
from respool.mirror.partition_copy import CopyState, PartitionCopy, StopReason
from respool.mirror.progress import MirrorEvent, MirrorStatus, OnEvent, Severity, topic_progress
from respool.mirror.retry_log import RetryLog, StallTimeout
from respool.mirror.target_topics import TargetTopics, TopicFilter
from respool.mirror.topic_sync import TopicSync
from respool.model.operator_errors import NotFound, OperatorError, Unreachable
from respool.model.quantities import counted

TOPICS_SECONDS = 5.0
GROUPS_SECONDS = 10.0
POLL_SECONDS = 0.05
# With `once`: the delay after a pass over the groups in which some failed.
GROUPS_RETRY_SECONDS = 0.5
# With `once`: the run fails if nothing was copied for this long.
STALL_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlan:
    source: str
    target: str
    topics: TopicFilter
    groups: tuple[re.Pattern[str], ...] = ()
    # End when everything that existed at the start is copied.
    once: bool = False
    # Do not follow the source's log starts.
    keep_longer: bool = False
    from_security: Security = IN_THE_CLEAR
    to_security: Security = IN_THE_CLEAR
    # Arguments of `Cluster` that replace the mirror's own timeouts.
    from_timeouts: Mapping[str, int] = field(default_factory=dict)
    to_timeouts: Mapping[str, int] = field(default_factory=dict)


class MirrorRun:
    """`run` it once. All but the coroutines may be used from any thread."""

    def __init__(self, plan: MirrorPlan, *, on_event: OnEvent) -> None:
        """
        Raises:
            Unreachable: one cluster does not answer.
            UsageError: source and target are the same cluster.
        """
        self._plan = plan
        self._on_event = on_event
        clusters = connect_both(
            plan.source,
            plan.target,
            from_security=plan.from_security,
            to_security=plan.to_security,
            from_timeouts=plan.from_timeouts,
            to_timeouts=plan.to_timeouts,
        )
        target_topics = TargetTopics(*clusters)
        try:
            target_topics.check_target()
        except BaseException:
            for cluster in clusters:
                cluster.close()
            raise
        # Groups that have members at the target.
        self._active_groups: set[str] = set()
        self._group_count: int | None = None
        self._are_groups_copied = False
        self._group_passes = self._last_good_group_pass = 0
        self._wake_groups = asyncio.Event()
        self._group_pass_ended = asyncio.Condition()
        self._stall = StallTimeout(seconds_max=STALL_SECONDS_MAX, now_s=time.monotonic())
        self._source = ClusterLink("the source", clusters[0])
        self._target = ClusterLink("the target", clusters[1])
        self._groups = GroupOffsetCopier(*clusters, plan.groups) if plan.groups else None
        self._copier = PartitionCopier(
            self._source,
            self._target,
            keep_longer=plan.keep_longer,
            compacted=target_topics.compacted,
            on_stopped=self._on_stopped,
            on_loss=self._on_loss,
        )
        self._retries = RetryLog(on_event)
        self._topics = TopicSync(
            plan.topics,
            self._source,
            self._target,
            target_topics=target_topics,
            copier=self._copier,
            on_event=on_event,
            retries=self._retries,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._is_stop_requested = False
        # Set when the first partitions are known, and when the run ends.
        self.has_started = threading.Event()

    @property
    def status(self) -> MirrorStatus:
        return MirrorStatus(
            bytes_copied=self._copier.bytes_copied,
            offsets_copied=self._copier.offsets_copied,
            topics=topic_progress(list(self._copier.partitions.values())),
            group_count=self._group_count,
        )

    def request_stop(self) -> None:
        self._is_stop_requested = True
        if self._loop is not None:
            # RuntimeError: the loop is closed, so the run has ended.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)

    @property
    def is_paused(self) -> bool:
        return self._copier.is_paused

    def pause(self) -> None:
        self._copier.is_paused = True

    def unpause(self) -> None:
        self._copier.is_paused = False

    async def run(self) -> None:
        """Return when done (`once`), when all topics are stopped, or after `request_stop`.

        Raises:
            OperatorError: something could not be mirrored.
        """
        self._loop = asyncio.get_running_loop()
        if self._is_stop_requested:
            self._stop.set()
        work = asyncio.create_task(self._work())
        stop = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
            was_stopped = not work.done()
            work.cancel()
            stop.cancel()
            await asyncio.gather(work, stop, return_exceptions=True)
        finally:
            await self._source.close()
            await self._target.close()
            self.has_started.set()
        if not was_stopped and not work.cancelled():
            _raise_first(work.exception())
        self._check_mirrored(self._topics.not_mirrored)

    async def wait_until_caught_up(self) -> None:
        """Return when the target has all that the source had at the time of the call, and the groups' offsets.

        Raises:
            OperatorError: a topic was stopped.
        """
        is_synced = False
        ends: dict[Place, int] = {}
        while True:
            self._check_mirrored(self._topics.stopped)
            # This waits while a cluster does not answer; `_keep_topics_in_sync` reports that.
            with suppress(LinkError):
                if not is_synced:
                    await self._topics.sync()
                    is_synced = True
                unknown = [place for place in self._copier.partitions if place not in ends]
                ends |= await self._source.offsets(unknown, LATEST)
            if is_synced and not self._topics.waiting and self._is_copied_up_to(ends):
                break
            await asyncio.sleep(POLL_SECONDS)
        if self._groups is not None:
            next_pass = self._group_passes + 1
            self._wake_groups.set()
            async with self._group_pass_ended:
                await self._group_pass_ended.wait_for(
                    lambda: self._last_good_group_pass >= next_pass
                )

    def _is_copied_up_to(self, ends: Mapping[Place, int]) -> bool:
        return all(
            place in ends and copy.state is CopyState.COPYING and copy.target_end >= ends[place]
            for place, copy in self._copier.partitions.items()
        )

    def _check_mirrored(self, missed: Collection[str]) -> None:
        if missed:
            raise OperatorError(
                f"{counted(len(missed), 'topic')} not mirrored: {', '.join(sorted(missed))}",
                hint="the reasons are reported above; these copies were not changed",
            )

    async def _work(self) -> None:
        await self._first_sync()
        self.has_started.set()
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._copier.run()),
                tasks.create_task(self._keep_topics_in_sync()),
            ]
            if self._groups is not None:
                running.append(tasks.create_task(self._keep_copying_groups(self._groups)))
            await self._wait_for_end()
            for task in running:
                task.cancel()

    async def _wait_for_end(self) -> None:
        while not self._has_ended():
            await asyncio.sleep(POLL_SECONDS)
            now_s = time.monotonic()
            self._stall.on_copies(self._copier.bytes_copied, now_s=now_s)
            if self.is_paused:
                self._stall.on_pause(now_s=now_s)
            waits_for_groups = self._copier.is_done and self._groups is not None
            if self._plan.once and self._stall.is_over(
                waits_for_groups=waits_for_groups, now_s=now_s
            ):
                self._fail_stalled()

    def _fail_stalled(self) -> None:
        """
        Raises:
            Unreachable: partitions make no progress.
            OperatorError: only offsets of groups are missing.
        """
        hint = "run it again to continue where it stopped"
        if not self._copier.is_done:
            whys = {one.why for one in self._copier.partitions.values() if one.why}
            whys |= self._retries.all()
            raise Unreachable(
                f"nothing was copied for {STALL_SECONDS_MAX:.0f} seconds: {'; '.join(sorted(whys))}",
                hint=hint,
            )
        # None during the first pass over the groups, which reports its failures when it ends.
        if why := self._retries.why("groups"):
            raise OperatorError(
                f"all messages are copied, but not the offsets of all groups: {why}", hint=hint
            )

    def _has_ended(self) -> bool:
        copies = self._copier.partitions.values()
        is_any_waiting = bool(self._topics.waiting) and not self._plan.once
        if copies and not is_any_waiting and all(one.state is CopyState.STOPPED for one in copies):
            return True
        has_groups = self._groups is None or self._are_groups_copied
        return self._plan.once and self._copier.is_done and has_groups

    # -- topics --------------------------------------------------------------------------------------------------------

    async def _first_sync(self) -> None:
        try:
            await self._topics.sync()
        except LinkError as error:
            raise Unreachable(str(error)) from error
        if not self._copier.partitions and not self._topics.not_mirrored:
            if self._plan.once:
                raise NotFound(
                    f"no topic at {self._plan.source} matches the patterns",
                    hint=f"see: respool topic list --broker {self._plan.source}",
                )
            self._on_event(MirrorEvent("no topic matches yet; waiting for one"))

    async def _keep_topics_in_sync(self) -> None:
        while True:
            await asyncio.sleep(TOPICS_SECONDS)
            try:
                await self._topics.sync()
            except (LinkError, OperatorError) as error:
                self._retries.on_failed("topics", error)
            else:
                self._retries.on_passed("topics")

    def _on_stopped(self, topic: str, reason: StopReason, why: str) -> None:
        self._topics.on_stopped(topic, reason, why)

    def _on_loss(self, copy: PartitionCopy, count: int, *, aborted: int, left_open: int) -> None:
        message = (
            f"{copy.name}: the source deleted {counted(count, 'offset')} from {copy.target_end} on before they were "
            "copied"
        )
        if aborted:
            message += f"; {counted(aborted, 'open transaction')} aborted in the copy"
        if left_open:
            message += (
                f"; {left_open:,} left open, until their end is copied or the topic is promoted"
            )
        self._on_event(MirrorEvent(message))

    # -- groups --------------------------------------------------------------------------------------------------------

    async def _keep_copying_groups(self, groups: GroupOffsetCopier) -> None:
        while True:
            # Records copied during the pass do not count: the pass may have missed their groups' offsets.
            was_done = self._copier.is_done
            self._group_passes += 1
            ends = {
                place: copy.target_end
                for place, copy in self._copier.partitions.items()
                if copy.state is CopyState.COPYING
            }
            result: GroupCopyResult | None = None
            self._wake_groups.clear()
            try:
                result = await asyncio.to_thread(groups.copy, ends)
            except OperatorError as error:
                self._retries.on_failed_because("groups", error.message)
            else:
                self._on_groups(result)
                self._are_groups_copied = was_done and not result.failures
                if not result.failures:
                    self._last_good_group_pass = self._group_passes
            async with self._group_pass_ended:
                self._group_pass_ended.notify_all()
            has_failed = bool(self._retries.why("groups"))
            self._stall.on_groups(
                has_failed=has_failed,
                has_committed=result is not None and bool(result.committed),
                now_s=time.monotonic(),
            )
            if self._plan.once:
                await asyncio.sleep(GROUPS_RETRY_SECONDS if has_failed else POLL_SECONDS)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake_groups.wait(), GROUPS_SECONDS)

    def _on_groups(self, result: GroupCopyResult) -> None:
        if result.failures:
            self._retries.on_failed_because("groups", result.failures)
        else:
            self._retries.on_passed("groups")
        self._group_count = len(result.wanted - result.active)
        for name in sorted(result.active - self._active_groups):
            message = f"group {name} has members at the target: its offsets are not copied"
            self._on_event(MirrorEvent(message, Severity.INFO))
        self._active_groups |= result.active


def _raise_first(error: BaseException | None) -> None:
    """The first failure, unwrapped from the exception groups of tasks."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is not None:
        raise error
