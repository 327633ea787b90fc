"""Invariants that must hold at every moment, checked against all brokers of a simulated cluster and the store.

C1   a partition has one leader per epoch: one process, because a restarted process has lost state
C2   leader epochs increase, and only a replica with all committed data is elected
C3   offsets are in order on every replica, and a high watermark never decreases
C4   committed batches are the same on every replica whose high watermark covers them
C6   every replica that the store lists as in sync has all committed batches
C7   a broker acts only while it is registered: it stops before its lease expires, and is replaced only afterwards

When a leader's high watermark is seen above all earlier ones, the batches below it are recorded as committed, and every
log is compared with them from then on.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from respool.broker.broker import Broker
from respool.broker.partitions.partition import Partition
from respool.cluster import keys
from respool.cluster.keys import TopicRecord
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, Offset, TopicId, TopicPartition
from respool.ports.metadata_store import KeyChanged
from respool.sim.checks.cluster_observer import ClusterObserver
from respool.sim.checks.history import History
from respool.sim.checks.log_content import (
    StoredBatch,
    StoredRecord,
    batches_between,
    records_between,
)
from respool.sim.machine import Machine
from respool.sim.net.simulated_store import SimStore

LOOK_EVERY_S = 0.05
START = Offset(0)

# By topic id, because a recreated topic has the same name.
Place = tuple[TopicId, int]


@dataclass(slots=True)
class Ledger:
    """Everything that was ever committed in a partition."""

    end: Offset = START
    # By base offset: batches, or records if the partition is compacted.
    content: dict[int, StoredBatch | StoredRecord] = field(default_factory=dict)


class ReplicaWatch:
    def __init__(
        self,
        *,
        machines: Sequence[Machine],
        store: SimStore,
        observer: ClusterObserver,
        has_everything: Callable[[BrokerId], bool],
        history: History,
        is_synced: bool,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`is_synced`: in-sync replicas have all acknowledged data on disk. `has_everything`: see `Restarter`."""
        self._machines = {one.id: one for one in machines}
        self._observer = observer
        self._has_everything = has_everything
        self._history = history
        self._is_synced = is_synced
        self._tell = tell
        self._ledgers: dict[Place, Ledger] = {}
        # Of partitions that were retired: the first leader epoch of the next partition of that number, which is empty.
        self._retired: dict[Place, int] = {}
        # The process that led in each epoch.
        self._leaders: dict[tuple[Place, int], str] = {}
        # The last seen high watermark of each replica in each epoch, with its count of truncations at that time. A
        # replica that was closed and opened again counts as another one.
        self._watermarks: dict[tuple[Partition, int], tuple[Offset, int]] = {}
        # The offset up to which each replica was compared with the ledger.
        self._compared: dict[Partition, Offset] = {}
        self._images: dict[str, PartitionImage] = {}
        self._elected: dict[tuple[str, int], BrokerId] = {}
        store.listeners.append(self._on_written)

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        online: dict[tuple[BrokerId, Place], Partition] = {}
        # The state of other brokers is unknown: they do not run, or have crashed and not registered since.
        trusted = {one for one in self._machines if self._has_everything(one)}
        for machine in self._machines.values():
            if machine.broker is not None and machine.process is not None:
                if not machine.is_stopping:
                    # A stopping broker refuses connections, so others consider it dead
                    # (`membership/failure_detector.py`).
                    self._check_lease(machine.process.name, machine.broker)
                for partition in machine.broker.partitions:
                    if partition.is_online and not self._is_retired(partition):
                        self._look_at(machine.process.name, partition)
                        if machine.id in trusted:
                            online[machine.id, _place(partition)] = partition
        for topic, number, image in self._observer.view().partitions():
            self._check_complete(TopicPartition(topic.name, number), topic.id, image, online)

    def _check_lease(self, process: str, broker: Broker) -> None:
        member = broker.member
        if member is None or not member.may_act():
            return
        registered = self._observer.epoch_of(broker.id)
        if registered != member.epoch:
            self._history.violate(
                "C7", f"{process} acts in broker epoch {member.epoch}, the store has {registered}"
            )

    # -- one replica -------------------------------------------------------------------------------------------------

    def _look_at(self, process: str, partition: Partition) -> None:
        name, log, high_watermark = partition.name, partition.log, partition.high_watermark
        # A follower whose log begins again where its leader's does sets its high watermark in a second step.
        log_start = Offset(0) if partition.changing.locked() else log.log_start
        if not log_start <= high_watermark <= log.log_end:
            marks = (log.log_start, high_watermark, log.log_end)
            self._violate("C3", name, f"{process}: start, watermark, end are {marks}")
        key = (partition, partition.leader_epoch)
        before, truncations = self._watermarks.get(key, (START, log.truncations))
        # A follower of a compacted log may truncate more than necessary: to the start of an offset gap, even if an
        # epoch began inside the gap.
        was_truncated = _is_compacted(name) and log.was_truncated_since(truncations)
        if high_watermark < before and not was_truncated:
            self._violate("C3", name, f"{process}: watermark from {before} to {high_watermark}")
        self._watermarks[key] = (high_watermark, log.truncations)
        if partition.is_leading:
            self._check_sole_leader(process, partition)
            self._write_down(process, partition)
        self._compare(process, partition)

    def _check_sole_leader(self, process: str, partition: Partition) -> None:
        leader = partition.leader
        if leader is None or len(leader.image.replicas) == 1:
            # No other broker has a replica, so this one may continue as leader of the same epoch.
            return
        name, epoch = partition.name, partition.leader_epoch
        first = self._leaders.setdefault((_place(partition), epoch), process)
        if first != process:
            self._violate("C1", name, f"{first} and {process} both lead in epoch {epoch}")

    def _write_down(self, process: str, partition: Partition) -> None:
        ledger = self._ledgers.setdefault(_place(partition), Ledger())
        high_watermark = partition.high_watermark
        if high_watermark <= ledger.end:
            return
        for offset, one in _content(partition, ledger.end, high_watermark):
            before = ledger.content.setdefault(offset, one)
            if before != one:
                self._violate(
                    "C5", partition.name, f"{process} leads with {one}, committed was {before}"
                )
        ledger.end = high_watermark

    def _compare(self, process: str, partition: Partition) -> None:
        ledger = self._ledgers.get(_place(partition))
        if ledger is None:
            return
        end = min(partition.high_watermark, ledger.end)
        start = self._compared.get(partition, START)
        if end <= start:
            return
        self._compared[partition] = end
        may_be_gone = _is_compacted(partition.name)
        for offset, one in _content(partition, start, end):
            committed = ledger.content.get(offset)
            if committed == one or (committed is None and may_be_gone):
                # The leader may have compacted the record before it was added to the ledger.
                continue
            self._violate("C4", partition.name, f"{process} has {one}, committed is {committed}")
            return

    # -- the store ---------------------------------------------------------------------------------------------------

    def _check_complete(
        self,
        name: TopicPartition,
        topic_id: TopicId,
        image: PartitionImage,
        online: Mapping[tuple[BrokerId, Place], Partition],
    ) -> None:
        place = topic_id, name.partition
        ledger = self._ledgers.get(place)
        if ledger is None:
            return
        for broker in (*image.isr, *image.elr):
            partition = online.get((broker, place))
            if partition is None:
                continue
            log_end = partition.log.synced_end if self._is_synced else partition.log.log_end
            if log_end < ledger.end:
                self._violate(
                    "C6",
                    name,
                    f"broker {broker} ends at {log_end}, {ledger.end} is committed, the store has {image}",
                )

    def _on_written(self, changes: Sequence[KeyChanged]) -> None:
        for change in changes:
            self._tell(f"store {change.revision}: {change.key} {(change.value or b'-').decode()}")
            if change.key.startswith(keys.TOPICS) and change.value is not None:
                self._on_topic_written(keys.decode_topic(change.value))
            if not change.key.startswith(keys.PARTITIONS):
                continue
            if change.value is None:
                self._images.pop(change.key, None)
                continue
            image = keys.decode_partition(change.value, revision=change.revision)
            self._check_image(change.key, self._images.get(change.key), image)
            self._images[change.key] = image

    def _on_topic_written(self, topic: TopicRecord) -> None:
        for number in range(
            topic.partition_count, 0 if topic.layout is None else topic.layout.named
        ):
            assert topic.layout is not None
            self._ledgers.pop((topic.id, number), None)
            self._retired[topic.id, number] = topic.layout.first_epoch

    def _is_retired(self, partition: Partition) -> bool:
        """True for the one before, and for a follower: a broker that was down meanwhile still has that one's log, and
        truncates it when it hears of the new leader.
        """
        first_epoch = self._retired.get(_place(partition))
        if first_epoch is None:
            return False
        return partition.leader_epoch < first_epoch or not partition.is_leading

    def _check_image(self, key: str, before: PartitionImage | None, image: PartitionImage) -> None:
        def violate(rule: str, text: str) -> None:
            self._history.violate(rule, f"{key}: {text}: {before} became {image}")

        if not set(image.isr) <= set(image.replicas) or len(set(image.isr)) != len(image.isr):
            violate("C2", "an ISR of others than replicas")
        if image.leader is None:
            return
        if image.leader not in image.isr:
            violate("C2", "a leader that is not in sync")
        if self._elected.setdefault((key, image.leader_epoch), image.leader) != image.leader:
            violate("C1", "two leaders in one epoch")
        if before is None:
            return
        if image.leader_epoch < before.leader_epoch:
            violate("C2", "the epoch goes down")
        # If all replicas have crashed, the last leader may be elected. C6 checks whether it has everything.
        complete: set[BrokerId | None] = {*before.isr, *before.elr} or {before.last_leader}
        if image.leader != before.leader and image.leader not in complete:
            violate("C2", "an unclean election")

    def _violate(self, rule: str, name: TopicPartition, text: str) -> None:
        self._history.violate(rule, f"{name}: {text}")


def _place(partition: Partition) -> Place:
    return partition.topic_id, partition.name.partition


def _content(
    partition: Partition, start: Offset, end: Offset
) -> Iterator[tuple[int, StoredBatch | StoredRecord]]:
    if _is_compacted(partition.name):
        for record in records_between(partition.log, start, end):
            yield record.offset, record
        return
    for batch in batches_between(partition.log, start, end):
        yield batch.base_offset, batch


def _is_compacted(name: TopicPartition) -> bool:
    """True if each broker compacts its own log, so that bytes differ."""
    return name.topic.startswith("__")
