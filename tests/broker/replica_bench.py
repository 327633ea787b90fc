"""Partitions of one broker of a cluster, without the rest of it: real logs on a simulated disk, roles as a test gives
them, and a leader's ISRs written down here instead of in the store.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import Any
from uuid import UUID

from respool.broker.partitions.flusher import Flusher
from respool.broker.partitions.partition import Partition
from respool.broker.replication.follower_log import FollowerLog
from respool.log.folder.data_folder import DataFolder
from respool.model.cluster import BrokerEndpoint, PartitionImage
from respool.model.errors import RequestError, StorageError
from respool.model.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from respool.model.topic_config import TopicConfig
from respool.records.build import NewRecord, build_batch
from respool.records.validate import check_produced
from respool.replication.effects import ProposeIsr
from respool.replication.follower import Follower
from respool.replication.leader import Leader
from respool.sim.disk.simulated_disk import SimDisk
from respool.sim.runtime.sim_loop import SimLoop
from support.inline_offload import InlineOffload
from support.sim_clock import SimClock

ME, TWO, THREE = map(BrokerId, (1, 2, 3))
LAG_MS = 10_000
DAY_MS = 86_400_000


def play(story: Callable[["Bench"], Coroutine[Any, Any, None]]) -> None:
    """Run it on simulated time: who waits for a while has waited at once."""
    loop = SimLoop()

    async def run() -> None:
        await story(Bench())

    loop.run(run)
    assert not loop.unhandled, loop.unhandled


def image_of(
    *isr: BrokerId, leader: BrokerId = ME, leader_epoch: int = 1, revision: int = 5
) -> PartitionImage:
    """Replicas are 1, 2 and 3; all of them in sync unless said otherwise."""
    return PartitionImage(
        replicas=(ME, TWO, THREE),
        isr=isr or (ME, TWO, THREE),
        leader=leader,
        leader_epoch=LeaderEpoch(leader_epoch),
        revision=revision,
    )


def brokers_of(*ids: BrokerId) -> dict[BrokerId, BrokerEndpoint]:
    return {
        one: BrokerEndpoint(id=one, host=f"host-{one}", port=9092, epoch=10 * one)
        for one in ids or (ME, TWO, THREE)
    }


class Told:
    """Somebody who waits for a commit, a deletion, or the disk."""

    def __init__(self) -> None:
        self.done = 0
        self.error: RequestError | None = None

    def on_committed(self) -> None:
        self.done += 1

    def on_failed(self, error: RequestError) -> None:
        self.error = error


class Bench:
    def __init__(self) -> None:
        self.disk = SimDisk(Random(5))
        self.clock = SimClock()
        self.offload = InlineOffload()
        self.flusher = Flusher(self.offload, workers_max=2)
        self.folder = DataFolder.open(
            disk=self.disk,
            broker_id=ME,
            new_cluster_id="bench",
            cluster_id=None,
            producer_expiration_ms=DAY_MS,
            guard=self.offload.lock(),
        )
        self.work = FollowerLog(
            folder=self.folder, syncs=self.flusher, offload=self.offload, clock=self.clock
        )
        self.proposals: list[ProposeIsr] = []
        self.offline: list[Partition] = []

    def propose(self, partition: Partition, leader: Leader, proposal: ProposeIsr) -> None:
        assert partition.leader is leader
        self.proposals.append(proposal)

    def partition(
        self, number: int = 0, *, topic: str = "rides", high_watermark: int = 0, **config: str
    ) -> Partition:
        name = TopicPartition(topic, number)
        topic_id = TopicId(UUID(int=1))
        overrides = {key.replace("_", "."): value for key, value in config.items()}
        log = self.folder.open_partition(
            name,
            topic_id=topic_id,
            config=TopicConfig.parse({"respool.flush": "os"} | overrides),
            now_ms=self.clock.now_ms(),
            is_replicated=True,
        )
        # As if it had had records: a new one enters its epoch without the disk.
        log._parts.ensure_folder()
        log._parts.ledger.make_folder_durable()
        return Partition(
            name=name,
            topic_id=topic_id,
            log=log,
            syncs=self.flusher,
            isr=self,
            on_offline=self.offline.append,
            high_watermark=Offset(high_watermark),
        )

    def lead(
        self,
        partition: Partition,
        image: PartitionImage | None = None,
        *,
        min_isr: int = 1,
        brokers: Iterable[BrokerId] = (ME, TWO, THREE),
    ) -> Leader:
        log = partition.log
        leader = Leader(
            ME,
            image or image_of(),
            log_start=log.log_start,
            log_end=log.log_end,
            durable_end=partition.durable_end,
            high_watermark=partition.high_watermark,
            min_isr=min_isr,
            lag_ms_max=LAG_MS,
            brokers=brokers_of(*brokers),
            now_ms=self.clock.monotonic_ms(),
        )
        effects = leader.begin()
        log.on_leader_epoch(leader.leader_epoch)
        partition.role.become_leader(leader, effects, durable_end=partition.durable_end)
        return leader

    def follow(self, partition: Partition, image: PartitionImage | None = None) -> Follower:
        log = partition.log
        follower = Follower(
            ME,
            image or image_of(leader=TWO),
            log_start=log.log_start,
            log_end=log.log_end,
            durable_end=partition.durable_end,
            last_epoch=log.latest_epoch,
            high_watermark=partition.high_watermark,
            history=log,
        )
        partition.role.become_follower(follower)
        return follower

    def append(self, partition: Partition, *values: bytes) -> Offset:
        """As a producer would; where the log ends then."""
        data = build_batch([NewRecord(value=one, timestamp_ms=0) for one in values or (b"v",)])
        partition.append(check_produced(data, bytes_max=1 << 20), now_ms=0)
        return partition.log.log_end

    def hear(self, partition: Partition, broker: BrokerId, offset: int, log_start: int = 0) -> None:
        """A follower fetches from there."""
        partition.role.on_follower_fetch(
            broker,
            broker_epoch=10 * broker,
            leader_epoch=partition.leader_epoch,
            durable_end=Offset(offset),
            log_start=Offset(log_start),
            now_ms=self.clock.monotonic_ms(),
        )


def batch_at(offset: int, *values: bytes, leader_epoch: int = 1) -> bytes:
    """A batch as a leader's log has it."""
    records = [NewRecord(value=one, timestamp_ms=0) for one in values or (b"v",)]
    return bytes(build_batch(records, base_offset=offset, leader_epoch=leader_epoch))


async def turns(count: int = 20) -> None:
    """Let go on whatever can."""
    for _ in range(count):
        await asyncio.sleep(0)


def raising(error: StorageError) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail
