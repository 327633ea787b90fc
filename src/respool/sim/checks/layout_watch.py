"""Watches a topic that is shrunk and grown: P2, nothing but markers is appended to sealed logs."""

import asyncio
from collections.abc import Iterator, Sequence

from respool.broker.partitions.partition import Partition
from respool.cluster.layout_requests import is_aligned, is_handed_over
from respool.log.partition_log import ReadSpec
from respool.model.cluster import TopicImage
from respool.model.errors import RespoolError
from respool.model.ids import Offset
from respool.records.validate import walk_batches
from respool.sim.checks.cluster_observer import ClusterObserver
from respool.sim.checks.layout_history import LayoutHistory
from respool.sim.machine import Machine

LOOK_EVERY_S = 0.1
# A change is completed within this time after the faults have ended, and what was held is shown.
PATIENCE_S = 60.0


class LayoutWatch:
    def __init__(
        self,
        topic: str,
        *,
        machines: Sequence[Machine],
        observer: ClusterObserver,
        history: LayoutHistory,
    ) -> None:
        self._topic = topic
        self._machines = machines
        self._observer = observer
        self._history = history

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    def image(self) -> TopicImage | None:
        """The topic as the store has it now."""
        return self._observer.view().topics.get(self._topic)

    def look(self) -> None:
        topic = self.image()
        if topic is None or topic.layout is None:
            return
        for partition in self._held():
            number = partition.name.partition
            if number >= len(topic.partitions) or not topic.layout.is_sealed(number):
                continue
            handover = topic.partitions[number].handover
            if handover is not None and handover.sealed_end is not None:
                self._check_sealed(partition, handover.sealed_end)

    def _held(self) -> Iterator[Partition]:
        for machine in self._machines:
            for partition in machine.broker.partitions if machine.broker is not None else ():
                if (
                    partition.name.topic == self._topic
                    and partition.is_online
                    and partition.has_log
                ):
                    yield partition

    def _check_sealed(self, partition: Partition, end: Offset) -> None:
        """What is committed above the noted end must be markers: a deposed leader may have more that is not."""
        first = max(end, partition.log_start)
        if first >= partition.high_watermark:
            return
        try:
            data = partition.log.read(
                ReadSpec(first, max_offset=partition.high_watermark, bytes_max=1 << 20)
            )
        except RespoolError:
            # Its disk fails, or the partition is about to be taken away.
            return
        for _, header in walk_batches(data):
            if header.base_offset >= end and not header.is_control:
                self._history.violate(
                    "P2",
                    f"{partition.name} is sealed at {end}, and has a batch at {header.base_offset}",
                )
                return

    # -- in the end --------------------------------------------------------------------------------------------------

    async def check_complete(self) -> None:
        """P4: all faults have ended, and no group has members: the last change is complete, and nothing is held."""
        until_s = asyncio.get_running_loop().time() + PATIENCE_S
        while (wrong := self._incomplete()) is not None:
            if asyncio.get_running_loop().time() > until_s:
                self._history.violate("P4", wrong)
                return
            await asyncio.sleep(0.25)

    def _incomplete(self) -> str | None:
        topic = self.image()
        if topic is None:
            return f"there is no topic {self._topic}"
        if topic.layout is None:
            return None
        if not is_aligned(topic, topic.layout):
            return f"the families of {self._topic} are not alike"
        if not is_handed_over(topic):
            return f"the last change of {self._topic} is not complete"
        held = [
            number
            for number, one in enumerate(topic.partitions)
            if one.handover is not None and one.handover.hold is not None
        ]
        return f"partitions {held} of {self._topic} are not shown to their ends" if held else None
