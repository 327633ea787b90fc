"""A mirror's look at the topics of both clusters: makes what is missing, grows what has grown, ends what cannot go on.

One topic's trouble is its own: the others are looked after all the same, and it is tried again at the next look.
"""

import asyncio

from respool.cli.errors import BrokerUnreachable
from respool.cli.mirror_output import MirrorReport
from respool.client.kafka.metadata import TopicMap
from respool.mirror.cluster_link import ClusterLink
from respool.mirror.copier import MirrorCopy
from respool.mirror.partition_copy import Cause
from respool.mirror.retry_log import Troubles
from respool.mirror.target_topics import (
    NoMirrors,
    TopicCare,
    Wanted,
    partition_counts,
    why_not_followed,
)
from respool.model.operator_errors import OperatorError


class TopicSurvey:
    def __init__(
        self,
        wanted: Wanted,
        source: ClusterLink,
        target: ClusterLink,
        *,
        care: TopicCare,
        copy: MirrorCopy,
        report: MirrorReport,
        troubles: Troubles,
    ) -> None:
        self._wanted = wanted
        self._source = source
        self._target = target
        self._care = care
        self._copy = copy
        self._report = report
        self._troubles = troubles
        # What the source's topics were when their copying began.
        self._followed: dict[str, TopicMap] = {}
        # Why these are copied no more.
        self.stopped: dict[str, str] = {}
        # Of these nothing is copied, or not every partition, until another look does better.
        self.waiting: set[str] = set()

    @property
    def not_mirrored(self) -> list[str]:
        return sorted({*self.stopped, *self.waiting})

    async def look(self) -> None:
        """
        Raises:
            LinkError, OperatorError: none could be looked after.
        """
        await self._source.refresh()
        await self._target.refresh()
        names = self._wanted.of(self._source.topics)
        for gone in self.waiting.difference(names):
            self._on_well(gone)
        await self._make_missing(names)
        held = [name for name in {*names, *self._followed} if name in self._target.topics]
        mirrors = await asyncio.to_thread(self._care.mirrors_among, held) if held else {}
        there = [name for name in held if name in self._source.topics]
        await asyncio.to_thread(self._care.look_for_compacted, there)
        for name, known in self._followed.items():
            why = why_not_followed(
                name,
                self._source.topics.get(name),
                known,
                self._target.topics.get(name),
                is_mirror=mirrors.get(name, True),
            )
            if why:
                self._copy.stop_topic(name, *why)
        for name in names:
            if name in self._target.topics and name not in self.stopped:
                await self._follow(name, is_mirror=mirrors.get(name, False))

    def on_stopped(self, topic: str, cause: Cause, why: str) -> None:
        if topic in self.stopped:
            return
        self.stopped[topic] = why
        self.waiting.discard(topic)
        self._report.note(f"error: {why}", style="bold red")
        self._report.note(f"  {_advice(topic, cause, self._target.bootstrap)}", style="")

    async def _make_missing(self, names: list[str]) -> None:
        missing = [name for name in names if name not in self._target.topics]
        for name in missing:
            if name in self._followed:
                why = f"{name} was deleted at the target; the next start copies it anew"
                self._copy.stop_topic(name, Cause.LET_GO, why)
                continue
            count = partition_counts(self._source.topics, name)
            try:
                await asyncio.to_thread(self._care.create, name, partitions=count)
            except (BrokerUnreachable, NoMirrors):
                raise
            except OperatorError as error:
                self._on_failed(name, error)
                continue
            self._report.note(f"created {name} at the target", style="")
            if left_out := self._care.left_out.pop(name, None):
                self._report.note(f"{name}: not known here, and left out: {', '.join(left_out)}")
        if missing:
            await self._target.refresh()

    async def _follow(self, name: str, *, is_mirror: bool) -> None:
        wanted = partition_counts(self._source.topics, name)
        have = partition_counts(self._target.topics, name)
        if not is_mirror:
            if name not in self._followed:
                why = f"there is a topic {name} at the target, and it is no mirror"
                self.on_stopped(name, Cause.NO_MIRROR, why)
            return
        if have > wanted:
            why = f"{name} has {have} partitions at the target, and {wanted} at the source"
            if name in self._followed:
                self._copy.stop_topic(name, Cause.DIFFERS, why)
            else:
                self.on_stopped(name, Cause.DIFFERS, why)
            return
        numbers = set(self._source.topics[name].leaders)
        if have == wanted or await self._grow(name, partitions=wanted):
            self._on_well(name)
        else:
            numbers &= self._target.topics[name].leaders.keys()
        self._followed.setdefault(name, self._source.topics[name])
        self._copy.add((name, number) for number in numbers)

    async def _grow(self, name: str, *, partitions: int) -> bool:
        try:
            await asyncio.to_thread(self._care.grow, name, partitions=partitions)
        except BrokerUnreachable:
            raise
        except OperatorError as error:
            self._on_failed(name, error)
            return False
        self._report.note(f"{name} has {partitions} partitions now", style="")
        await self._target.refresh()
        return True

    def _on_failed(self, name: str, error: OperatorError) -> None:
        self.waiting.add(name)
        self._troubles.on_failed(name, error)

    def _on_well(self, name: str) -> None:
        self.waiting.discard(name)
        self._troubles.on_passed(name)


def _advice(topic: str, cause: Cause, target: str) -> str:
    match cause:
        case Cause.LET_GO:
            return "nothing is to be done; leave it out with --exclude the next time"
        case Cause.NO_MIRROR:
            return (
                f"leave it out with --exclude {topic}; or, if it is an old copy to be gone on with: "
                f"respool topic alter {topic} --set respool.mirror=true --broker {target}"
            )
        case Cause.REFUSED:
            return "the copy is left as it is; start the mirror again when that is mended"
        case Cause.DIFFERS:
            return (
                f"the copy is left as it is. To copy all anew: respool topic delete {topic} --broker {target}, "
                "and start the mirror again"
            )
