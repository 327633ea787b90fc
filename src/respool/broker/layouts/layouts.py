"""Topics that were shrunk: where their records go, and which of them consumers are shown.

```
 the layout changes, or a role does    the family's writes are held
 what is in its logs is committed      (a lost batch must not be followed by one that another log has)
 its replicas have no more than that   (a later leader must not commit a batch that another log has got meanwhile)
 the leader notes the change           where sealed partitions end, where their heirs' readers stop: one guarded write
 the family's writes are released      to the partitions that take them now
```
A family is led by one broker, except for moments: then each of its partitions refuses records for others, and its own
where a producer's state may lie in another.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from respool.broker.layouts.elasticity import Elasticity, ResizesTopics
from respool.broker.layouts.group_reading import ReadingGroups
from respool.broker.layouts.handover_notes import handover_writes, held_ends
from respool.broker.layouts.reader_holds import ReaderHolds
from respool.broker.layouts.succession import AwaitsHandover, Succession
from respool.broker.metadata.catalog import Catalog
from respool.broker.partitions.commit_waiters import when_committed, when_replicas_agree
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.broker.peer_link import PeerLink
from respool.broker.world import World
from respool.cluster.families import family_of
from respool.cluster.layout_requests import needs_handover
from respool.model.cluster import TopicImage
from respool.model.errors import NotLeader, RequestError
from respool.model.ids import Offset, TopicId, TopicPartition
from respool.model.layouts.partition_layout import PartitionLayout
from respool.pacing.backoff import Backoff
from respool.ports.metadata_store import GuardFailed, StoreUnavailable

logger = logging.getLogger(__name__)

RETRY_S = Backoff(first=0.02, longest=1.0)
HELD_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class _Family:
    """The partitions of one family that this broker leads, all of them, under one layout."""

    def __init__(
        self, topic: TopicImage, root: int, members: tuple[Partition, ...], *, now_s: float
    ) -> None:
        self.begun_s = now_s
        self.topic_id = topic.id
        self.topic_name = topic.name
        self.root = root
        self.epoch = topic.layout.epoch if topic.layout is not None else 0
        self.members = members
        # Batches above may be lost with this leader. Captured before the first write under this layout.
        self.ends = {one: one.log.log_end for one in members}
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_ready = False
        self.is_over = False
        self.successions: dict[int, Succession] = {}
        # The start and end of each log when the change was to be noted for the first time. Markers may come since.
        self.noted: dict[int, tuple[Offset, Offset]] = {}
        # Where readers of each partition are held while that is being written.
        self.holds: dict[int, Offset] = {}

    def end(self) -> None:
        """Another takes its place. Waiting writes look again."""
        self.is_over = True
        for one in self.successions.values():
            one.is_current = False
        self.release()

    def release(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)


class Layouts:
    def __init__(
        self,
        catalog: Catalog,
        partitions: Partitions,
        world: World,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._catalog = catalog
        self._partitions = partitions
        self._clock = world.clock
        self._metrics = world.metrics
        self._spawn = spawn
        self._families: dict[tuple[TopicId, int], _Family] = {}
        self._redirected = world.metrics.counter(
            "respool_redirected_batches_total",
            "Batches for sealed partitions, appended to their heirs.",
        )
        self._held_seconds = world.metrics.histogram(
            "respool_shrink_writes_held_seconds",
            "How long writers to partitions of topics that were shrunk waited for a change, or a new leader.",
            buckets=HELD_BOUNDS,
        )
        # None until the groups are there.
        self._holds: ReaderHolds | None = None
        self._elasticity: Elasticity | None = None

    def watch(self, progress: ReadingGroups, topics: ResizesTopics, link: PeerLink | None) -> None:
        """End holds of readers once the groups have read what they should; and resize elastic topics."""
        self._elasticity = Elasticity(
            catalog=self._catalog,
            partitions=self._partitions,
            topics=topics,
            link=link,
            clock=self._clock,
            metrics=self._metrics,
            spawn=self._spawn,
        )
        self._holds = ReaderHolds(
            catalog=self._catalog,
            partitions=self._partitions,
            progress=progress,
            clock=self._clock,
            metrics=self._metrics,
            spawn=self._spawn,
            on_released=self.on_topic,
        )

    def succession_for_markers(self, name: TopicPartition) -> Succession | None:
        """The logs in which transactions with records for this partition may be open; None: its own.

        Markers do not wait until a change of the layout is complete: there is nothing in new logs yet.

        Raises:
            NotLeader: this broker does not lead the whole family.
        """
        held = self._partitions.held(*name)
        if held is None and not self.has_succession(*name):
            return None
        if held is not None and not held.has_succession:
            return None
        return self._succession(*name, is_complete=False)

    def succession(self, topic: str, number: int) -> Succession:
        """Where records for this partition go.

        Raises:
            AwaitsHandover: the family's last change is not complete.
            NotLeader: this broker does not lead the whole family.
            UnknownTopicOrPartition: there is no such partition, and never was.
        """
        return self._succession(topic, number, is_complete=True)

    def _succession(self, topic: str, number: int, *, is_complete: bool) -> Succession:
        image = self._catalog.image.topics.get(topic)
        if image is None or image.layout is None or number >= image.layout.named:
            self._partitions.find_leader(topic, number)
            raise NotLeader(f"{topic}-{number}: its layout has just changed")
        layout = image.layout
        if not self._partitions.may_act:
            raise NotLeader(f"{topic}-{number}: this broker's lease has run out")
        family = self._families.get((image.id, layout.root(number)))
        if family is None or family.epoch != layout.epoch:
            raise NotLeader(
                f"{topic}-{number}: the partitions of its family are not all led by this broker"
            )
        if is_complete and not family.is_ready:
            raise AwaitsHandover(
                f"{topic}-{number}: its records go to partition {layout.heir(number)} in a moment",
                ready=family.ready,
            )
        found = family.successions.get(number)
        if found is None:
            found = family.successions[number] = self._new_succession(image, layout, number)
        return found

    def has_succession(self, topic: str, number: int) -> bool:
        """True if records may be sent for the partition though it was retired."""
        image = self._catalog.image.topics.get(topic)
        return (
            image is not None
            and image.layout is not None
            and len(image.partitions) <= number < image.layout.named
        )

    def _new_succession(
        self, topic: TopicImage, layout: PartitionLayout, number: int
    ) -> Succession:
        destination = layout.heir(number)
        # Retired partitions were empty.
        others = [
            self._partitions.find_leader(topic.name, one)
            for one in layout.lineage(number)
            if one != destination and one < len(topic.partitions)
        ]
        return Succession(
            name=TopicPartition(topic.name, number),
            topic_id=topic.id,
            destination=self._partitions.find_leader(topic.name, destination),
            others=tuple(others),
            redirected=self._redirected,
        )

    # -- events --------------------------------------------------------------------------------------------------------

    def on_topic(self, name: str) -> None:
        """The topic's image has changed, or its partitions here."""
        topic = self._catalog.image.topics.get(name)
        if topic is not None and self._elasticity is not None:
            self._elasticity.on_topic(topic)
        if topic is None or topic.layout is None:
            return
        layout = topic.layout
        for partition in self._partitions.of_topic(name):
            number = partition.name.partition
            if partition.topic_id != topic.id or number >= len(topic.partitions):
                continue
            partition.has_succession = len(layout.lineage(number)) > 1
            handover = topic.partitions[number].handover
            hold = None if handover is None else handover.hold
            held_end = None if hold is None else hold.end
            if handover is None or handover.epoch != layout.epoch:
                family = self._families.get((topic.id, layout.root(number)))
                if family is not None and family.epoch == layout.epoch:
                    held_end = family.holds.get(number, held_end)
            partition.watermarks.hold_readers(held_end)
        for root in range(min(layout.family, len(topic.partitions))):
            self._check_family(topic, layout, root)
        if self._holds is not None:
            self._holds.on_topic(topic)

    def on_role(self, partition: Partition) -> None:
        """The partition has become led here, or has ceased to be."""
        topic = self._catalog.image.topics.get(partition.name.topic)
        if topic is None or topic.id != partition.topic_id or topic.layout is None:
            return
        # What its log had at that moment may be less than another leader has appended since.
        self._end_family(topic.id, topic.layout.root(partition.name.partition))
        self.on_topic(topic.name)

    def _check_family(self, topic: TopicImage, layout: PartitionLayout, root: int) -> None:
        if layout.epoch == 0 or not any(
            len(layout.lineage(one)) > 1 for one in range(root, layout.named, layout.family)
        ):
            return
        key = (topic.id, root)
        numbers = family_of(topic, root)
        members = [self._led_here(topic, number) for number in numbers]
        led = tuple(one for one in members if one is not None)
        known = self._families.get(key)
        if len(led) < len(numbers):
            self._end_family(*key)
        elif known is None or known.epoch != layout.epoch or known.members != led:
            self._end_family(*key)
            family = self._families[key] = _Family(
                topic, root, led, now_s=self._clock.stopwatch_s()
            )
            self._spawn(self._complete(family))

    def _end_family(self, topic_id: TopicId, root: int) -> None:
        family = self._families.pop((topic_id, root), None)
        if family is not None:
            family.end()

    def _led_here(self, topic: TopicImage, number: int) -> Partition | None:
        try:
            partition = self._partitions.find_leader(topic.name, number)
        except RequestError:
            return None
        is_led = partition.topic_id == topic.id and partition.is_online and partition.is_leading
        return partition if is_led else None

    # -- completing a change -------------------------------------------------------------------------------------------

    async def _complete(self, family: _Family) -> None:
        """Commit what the family's logs have, note the change if nobody did, and release its writes."""
        failures = 0
        while not family.is_over:
            try:
                for partition, end in family.ends.items():
                    if partition.high_watermark < end:
                        partition.request_sync()
                        await when_committed(partition.waiters, end)
                if not self._is_noted(family):
                    for partition in family.members:
                        await when_replicas_agree(partition.waiters)
                if await self._note(family):
                    break
            except (RequestError, GuardFailed, StoreUnavailable) as error:
                failures += 1
                if failures == 1:
                    logger.info(
                        "%s: the layout's change is not noted yet: %s", family.topic_name, error
                    )
                await asyncio.sleep(RETRY_S.delay(failures))
        if not family.is_over:
            family.is_ready = True
            self._held_seconds.observe(self._clock.stopwatch_s() - family.begun_s)
        family.release()

    def _is_noted(self, family: _Family) -> bool:
        topic = self._catalog.image.topics_by_id.get(family.topic_id)
        return (
            topic is not None
            and topic.layout is not None
            and topic.layout.epoch == family.epoch
            and is_noted(topic, topic.layout, family.root)
        )

    async def _note(self, family: _Family) -> bool:
        """Write what the leader notes. Return True if the image has it."""
        topic = self._catalog.image.topics_by_id.get(family.topic_id)
        if topic is None or topic.layout is None or topic.layout.epoch != family.epoch:
            return family.is_over
        if not is_noted(topic, topic.layout, family.root):
            now_ms = self._clock.now_ms()
            family.noted = family.noted or {
                one.name.partition: (one.log.log_start, one.log.log_end) for one in family.members
            }
            # In effect at once: what readers are shown while this is being written, they must be shown afterwards.
            family.holds = held_ends(topic, family.noted, now_ms=now_ms)
            self.on_topic(topic.name)
            if family.is_over:
                return True
            writes = handover_writes(topic, family.noted, now_ms=now_ms)
            for write in writes:
                await self._catalog.write(write)
            logger.info(
                "%s: partitions %s: layout %d is in effect, %d partitions take records",
                topic.name,
                ", ".join(str(one.name.partition) for one in family.members),
                topic.layout.epoch,
                topic.layout.active,
            )
        changed = self._catalog.image.topics_by_id.get(family.topic_id)
        if changed is None or changed.layout is None or family.is_over:
            return family.is_over
        # The holds must be in effect before the first write.
        self.on_topic(changed.name)
        return not family.is_over and is_noted(changed, changed.layout, family.root)


def is_noted(topic: TopicImage, layout: PartitionLayout, root: int) -> bool:
    """True if the leader of this family has noted the topic's last change."""
    for number in family_of(topic, root):
        if needs_handover(layout, number):
            handover = topic.partitions[number].handover
            if handover is None or handover.epoch != layout.epoch:
                return False
    return True
