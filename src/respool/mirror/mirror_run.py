"""A mirror at work: looks for topics, copies them, copies groups' offsets, and tells how it is doing, until it ends."""

import asyncio
import re
import signal
import time
from dataclasses import dataclass

from respool.cli import output
from respool.cli.errors import BrokerUnreachable
from respool.cli.interrupts import handling_signals
from respool.cli.kafka import Cluster
from respool.cli.mirror_output import MirrorReport
from respool.mirror.cluster_link import ClusterLink, LinkError
from respool.mirror.copier import MirrorCopy
from respool.mirror.group_copier import GroupCare
from respool.mirror.partition_copy import Cause, PartitionCopy, State
from respool.mirror.retry_log import Troubles
from respool.mirror.stall_timeout import Patience
from respool.mirror.target_topics import TopicCare, Wanted
from respool.mirror.topic_sync import TopicSurvey
from respool.model.operator_errors import NotFound, OperatorError, UsageError

SURVEY_SECONDS = 5.0
GROUPS_SECONDS = 10.0
NAP_SECONDS = 0.05
# After a look at groups, once, of which some could not be copied.
AGAIN_SECONDS = 0.5
LIVE_SECONDS = 0.5
# With --once: how long nothing may go on before it is given up.
AWAY_SECONDS_MAX = 60.0
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlan:
    source: str
    target: str
    topics: Wanted
    groups: tuple[re.Pattern[str], ...] = ()
    once: bool = False
    keep_longer: bool = False
    as_json: bool = False
    interval_seconds: float = 10.0


class MirrorRun:
    def __init__(self, plan: MirrorPlan) -> None:
        """
        Raises:
            BrokerUnreachable: one side does not answer.
        """
        self._plan = plan
        clusters = connect_both(plan.source, plan.target)
        self._topics = TopicCare(*clusters)
        self._topics.check_target()
        self._groups = GroupCare(*clusters, plan.groups) if plan.groups else None
        self._busy_groups: set[str] = set()
        self._groups_copied = False
        self._patience = Patience(seconds_max=AWAY_SECONDS_MAX, now_s=time.monotonic())

    async def run(self) -> None:
        """Until it is done (--once), or SIGINT or SIGTERM.

        Raises:
            OperatorError: something could not be mirrored.
        """
        self._source = ClusterLink("the source", self._plan.source)
        self._target = ClusterLink("the target", self._plan.target)
        self._copy = MirrorCopy(
            self._source,
            self._target,
            keep_longer=self._plan.keep_longer,
            compacted=self._topics.compacted,
            on_stopped=self._on_stopped,
            on_loss=self._on_loss,
        )
        self._report = MirrorReport(self._copy, as_json=self._plan.as_json)
        self._troubles = Troubles(self._report)
        self._survey = TopicSurvey(
            self._plan.topics,
            self._source,
            self._target,
            care=self._topics,
            copy=self._copy,
            report=self._report,
            troubles=self._troubles,
        )
        interrupted = asyncio.Event()
        with handling_signals(ENDING_SIGNALS, interrupted.set):
            work = asyncio.create_task(self._work())
            stop = asyncio.create_task(interrupted.wait())
            try:
                with self._report.shown():
                    await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
                    was_interrupted = not work.done()
                    work.cancel()
                    stop.cancel()
                    await asyncio.gather(work, stop, return_exceptions=True)
                    self._report.tell(time.monotonic())
            finally:
                if self._groups is not None:
                    self._groups.close()
                await self._source.close()
                await self._target.close()
        if was_interrupted:
            output.note("stopped; the next start goes on where the copies end")
        elif not work.cancelled():
            _raise_one(work.exception())
        if missed := self._survey.not_mirrored:
            raise OperatorError(
                f"{output.counted(len(missed), 'topic')} not mirrored: {', '.join(missed)}",
                hint="why is said above; the copies are left as they were",
            )

    async def _work(self) -> None:
        await self._survey_first()
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(self._copy.run()),
                tasks.create_task(self._keep_surveying()),
                tasks.create_task(self._keep_telling()),
            ]
            if self._groups is not None:
                running.append(tasks.create_task(self._keep_groups(self._groups)))
            await self._wait_for_end()
            for task in running:
                task.cancel()

    async def _wait_for_end(self) -> None:
        while not self._has_ended():
            await asyncio.sleep(NAP_SECONDS)
            now_s = time.monotonic()
            self._patience.on_copies(self._copy.bytes_copied, now_s=now_s)
            waits_for_groups = self._copy.is_done and self._groups is not None
            if self._plan.once and self._patience.is_over(
                waits_for_groups=waits_for_groups, now_s=now_s
            ):
                self._give_up()

    def _give_up(self) -> None:
        """
        Raises:
            BrokerUnreachable: partitions stand still.
            OperatorError: all is copied but offsets of groups.
        """
        hint = "run it again to go on where it stopped"
        if not self._copy.is_done:
            whys = {one.why for one in self._copy.partitions.values() if one.why}
            whys |= self._troubles.all()
            raise BrokerUnreachable(
                f"nothing was copied for {AWAY_SECONDS_MAX:.0f} seconds: {'; '.join(sorted(whys))}",
                hint=hint,
            )
        # None while the groups are looked at for the first time, which tells why when it ends.
        if why := self._troubles.why("groups"):
            raise OperatorError(
                f"all messages are copied, but not the offsets of all groups: {why}", hint=hint
            )

    def _has_ended(self) -> bool:
        copies = self._copy.partitions.values()
        is_any_left = bool(self._survey.waiting) and not self._plan.once
        if copies and not is_any_left and all(one.state is State.STOPPED for one in copies):
            return True
        has_groups = self._groups is None or self._groups_copied
        return self._plan.once and self._copy.is_done and has_groups

    # -- topics --------------------------------------------------------------------------------------------------------

    async def _survey_first(self) -> None:
        try:
            await self._survey.look()
        except LinkError as error:
            raise BrokerUnreachable(str(error)) from error
        if not self._copy.partitions and not self._survey.not_mirrored:
            if self._plan.once:
                raise NotFound(
                    f"no topic at {self._plan.source} matches --topics",
                    hint=f"see: respool topic list --broker {self._plan.source}",
                )
            self._report.note("no topic matches yet; waiting for one")

    async def _keep_surveying(self) -> None:
        while True:
            await asyncio.sleep(SURVEY_SECONDS)
            try:
                await self._survey.look()
            except (LinkError, OperatorError) as error:
                self._troubles.on_failed("topics", error)
            else:
                self._troubles.on_passed("topics")

    def _on_stopped(self, topic: str, cause: Cause, why: str) -> None:
        self._survey.on_stopped(topic, cause, why)

    def _on_loss(self, copy: PartitionCopy, count: int, *, aborted: int, left_open: int) -> None:
        gone = output.counted(count, "offset")
        told = f"{copy.name}: the source had deleted {gone} from {copy.target_end} on before they were copied"
        if aborted:
            told += f"; open there, and taken for aborted: {output.counted(aborted, 'transaction')}"
        if left_open:
            told += f", and still open: {left_open:,}, which end with what is copied next, or with a promotion"
        self._report.note(told)

    # -- groups and words ----------------------------------------------------------------------------------------------

    async def _keep_groups(self, groups: GroupCare) -> None:
        while True:
            was_done, are_moved = self._copy.is_done, False
            ends = {
                place: copy.target_end
                for place, copy in self._copy.partitions.items()
                if copy.state is State.COPYING
            }
            try:
                done = await asyncio.to_thread(groups.copy, ends)
            except OperatorError as error:
                self._troubles.on_told("groups", error.message)
            else:
                if done.troubles:
                    self._troubles.on_told("groups", done.troubles)
                else:
                    self._troubles.on_passed("groups")
                self._report.group_count = len(done.wanted - done.busy)
                for name in sorted(done.busy - self._busy_groups):
                    self._report.note(
                        f"group {name} is at work at the target: its offsets are its own", style=""
                    )
                self._busy_groups |= done.busy
                # What was copied after the last look counts, too.
                self._groups_copied = was_done and not done.troubles
                are_moved = bool(done.moved)
            self._patience.on_groups(
                has_trouble=bool(self._troubles.why("groups")),
                are_moved=are_moved,
                now_s=time.monotonic(),
            )
            if not self._plan.once:
                await asyncio.sleep(GROUPS_SECONDS)
            else:
                await asyncio.sleep(AGAIN_SECONDS if self._troubles.why("groups") else NAP_SECONDS)

    async def _keep_telling(self) -> None:
        while True:
            self._report.tell(time.monotonic())
            seconds = LIVE_SECONDS if self._report.is_live else self._plan.interval_seconds
            await asyncio.sleep(seconds)


def connect_both(source: str, target: str) -> tuple[Cluster, Cluster]:
    """
    Raises:
        BrokerUnreachable: nobody answers there.
        UsageError: they are one, which would be a copy of itself.
    """
    clusters = _connect(source, "--from"), _connect(target, "--to")
    ids = {one.id for one in clusters}
    if len(ids) == 1 and None not in ids:
        raise UsageError(
            f"--from {source} and --to {target} are brokers of the same cluster, {ids.pop()}",
            hint="a mirror is a copy in another cluster",
        )
    return clusters


def _connect(address: str, option: str) -> Cluster:
    try:
        return Cluster.connect(address)
    except BrokerUnreachable as error:
        raise BrokerUnreachable(f"{option} {address}: {error.message}", hint=_REACH_HINT) from error


_REACH_HINT = (
    "both clusters must be reachable from here, also at the addresses their brokers advertise"
)


def _raise_one(error: BaseException | None) -> None:
    """The first failure, out of the groups that tasks wrap it in."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if error is not None:
        raise error
