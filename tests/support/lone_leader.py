"""A partition that its broker leads alone, without the rest of the broker."""

from respool.broker.partitions.partition import Partition
from respool.model.cluster import PartitionImage
from respool.model.ids import BrokerId, LeaderEpoch
from respool.replication.leader import Leader

ME = BrokerId(1)


def lead_alone(partition: Partition, *, leader_epoch: int = 0) -> Partition:
    """Let it lead, as the only replica."""
    log = partition.log
    leader = Leader(
        ME,
        PartitionImage(
            replicas=(ME,), isr=(ME,), leader=ME, leader_epoch=LeaderEpoch(leader_epoch)
        ),
        log_start=log.log_start,
        log_end=log.log_end,
        durable_end=partition.durable_end,
        high_watermark=partition.high_watermark,
        min_isr=1,
        lag_ms_max=10_000,
        brokers={},
        now_ms=0,
    )
    effects = leader.begin()
    log.on_leader_epoch(leader.leader_epoch)
    partition.role.become_leader(leader, effects, durable_end=partition.durable_end)
    return partition
