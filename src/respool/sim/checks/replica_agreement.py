"""Checks after the faults: in time, all replicas of a simulated cluster are in sync, and all brokers agree."""

import asyncio
from collections.abc import Iterator, Sequence

from respool.broker.partitions.partition import Partition
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, TopicPartition
from respool.sim.checks.cluster_observer import ClusterObserver
from respool.sim.checks.history import History
from respool.sim.checks.log_content import batches_between
from respool.sim.machine import Machine

# Time for leases to expire, elections, followers to catch up, and reassignments to finish.
LOOKS_MAX = 360
LOOK_EVERY_S = 0.25
# How many disagreements are reported.
REPORTED_MAX = 4


class ReplicaAgreement:
    def __init__(
        self, *, machines: Sequence[Machine], observer: ClusterObserver, history: History
    ) -> None:
        self._machines = {one.id: one for one in machines}
        self._observer = observer
        self._history = history

    async def reach(self, when: str) -> None:
        """Wait until all agree, and report what is missing if they do not; then compare all logs byte for byte."""
        missing: list[str] = []
        for _ in range(LOOKS_MAX):
            missing = list(self._missing())
            if not missing:
                break
            await asyncio.sleep(LOOK_EVERY_S)
        for text in missing[:REPORTED_MAX]:
            self._history.violate("D1", f"{when}: {text}")
        if not missing:
            for name, image in self._observer.partitions().items():
                self._compare(name, image)

    def _missing(self) -> Iterator[str]:
        registered = self._observer.view().brokers.keys()
        for broker in sorted(self._machines.keys() - registered):
            yield f"broker {broker} is not registered"
        if self._observer.controller() is None:
            yield "there is no controller"
        for name, image in self._observer.partitions().items():
            yield from (f"{name}: {text}" for text in self._missing_of(name, image))

    def _missing_of(self, name: TopicPartition, image: PartitionImage) -> Iterator[str]:
        if image.leader is None or set(image.isr) != set(image.replicas) or image.elr:
            yield f"it is not led, or not all are in sync: {image}"
            return
        if image.adding or image.removing:
            yield f"replicas are still moving: {image}"
            return
        leader = self._partition(image.leader, name)
        if leader is None or not leader.is_leading or leader.leader_epoch != image.leader_epoch:
            yield f"broker {image.leader} does not know that it leads in {image.leader_epoch}"
            return
        end = leader.log.log_end
        for broker in image.replicas:
            replica = self._partition(broker, name)
            ends = None if replica is None else (replica.high_watermark, replica.log.log_end)
            if ends != (end, end):
                yield f"broker {broker} has watermark and end {ends}, the leader's log ends at {end}"
        for machine in self._machines.values():
            if machine.broker is not None:
                yield from self._missing_in_image(machine, name, image)

    def _missing_in_image(
        self, machine: Machine, name: TopicPartition, image: PartitionImage
    ) -> Iterator[str]:
        """C17: every broker's image has the current leader, leader epoch and ISR."""
        assert machine.broker is not None
        topic = machine.broker.image.topics.get(name.topic)
        known = topic.partitions[name.partition] if topic is not None else None
        if known is None or (known.leader, known.leader_epoch, known.isr) != (
            image.leader,
            image.leader_epoch,
            image.isr,
        ):
            yield f"broker {machine.id} believes {known}, the store has {image}"

    def _compare(self, name: TopicPartition, image: PartitionImage) -> None:
        """C4: the logs are equal byte for byte. Not checked for topics that each broker compacts on its own."""
        if name.topic.startswith("__") or image.leader is None:
            return
        replicas = {}
        for broker in image.replicas:
            partition = self._partition(broker, name)
            assert partition is not None
            replicas[broker] = partition
        # Each deletes by itself what its leader has deleted.
        start = max(one.log_start for one in replicas.values())
        contents = {
            broker: batches_between(partition.log, start, partition.high_watermark)
            for broker, partition in replicas.items()
        }
        first = contents[image.leader]
        for broker, content in contents.items():
            if content != first:
                self._history.violate(
                    "C4", f"{name}: brokers {image.leader} and {broker} have other bytes"
                )

    def _partition(self, broker: BrokerId, name: TopicPartition) -> Partition | None:
        machine = self._machines[broker]
        if machine.broker is None:
            return None
        for one in machine.broker.partitions.of_topic(name.topic):
            if one.name == name and one.is_online:
                return one
        return None
