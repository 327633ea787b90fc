"""Gives each partition of this broker the role that the cluster image assigns: leader or follower.

A role that the image ends is ended immediately (`end_stale_role`). Taking a new role may take a while (`take_role`): a
new leader first writes its epoch to the log, durably, and a follower must have finished its current work on the log.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from respool.broker.metadata.catalog import Catalog
from respool.broker.partitions.partition import Partition
from respool.broker.run_uncancelled import run_uncancelled
from respool.log.partition_log import PartitionLog
from respool.model.cluster import BrokerEndpoint, PartitionImage
from respool.model.errors import DiskFull, HandlesExhausted, StorageError
from respool.model.ids import BrokerId, LeaderEpoch
from respool.ports.clock import Clock
from respool.ports.offload import Offload
from respool.replication.effects import BeginEpoch, LeaderEffect
from respool.replication.follower import Follower
from respool.replication.leader import Leader, may_lead

logger = logging.getLogger(__name__)

# The delay before an epoch is entered again after the disk was full or too many files were open.
RETRY_DELAY_S = 1.0


class Following(Protocol):
    """Fetches for followers; implemented by `ReplicaFetchers`."""

    def add(self, partition: Partition) -> None: ...

    def remove(self, partition: Partition) -> None: ...


class Roles:
    def __init__(
        self,
        *,
        me: BrokerId,
        catalog: Catalog,
        offload: Offload,
        clock: Clock,
        lag_ms_max: int,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        following: Following | None = None,
        on_sound: Callable[[Partition], None] = lambda _: None,
    ) -> None:
        """`following` is None for a single broker, which leads all its partitions.

        `on_sound` is called with an online partition that the image marks as offline on this broker.
        """
        self._me = me
        self._catalog = catalog
        self._offload = offload
        self._clock = clock
        self._lag_ms_max = lag_ms_max
        self._spawn = spawn
        self._following = following
        # Until the broker is registered, the image shows an earlier run's roles: it leads and follows nothing.
        self.are_taken = following is None
        # Partitions whose role could not be taken because of a transient error, until the retry.
        self._awaiting_retry: set[Partition] = set()
        # Called with a partition that has become led here, or has ceased to be.
        self.on_changed: Callable[[Partition], None] = lambda _: None
        self._on_sound = on_sound

    def end_stale_role(self, partition: Partition, stored: PartitionImage | None = None) -> bool:
        """End a role that the image, or a newer state read from the store, no longer assigns to this broker.

        Returns True if there is a role to take, by `take_role`.
        """
        image = stored or self._image_of(partition)
        if image is None:
            if partition.is_leading and self._is_recreated(partition):
                partition.role.resign("its topic was deleted and recreated")
                self.on_changed(partition)
            return False
        was_leading, followed = partition.is_leading, _leader_of(partition)
        partition.role.on_image(self._me, image)
        if was_leading and not partition.is_leading:
            logger.info("%s: no longer led here, epoch %d", partition.name, image.leader_epoch)
            self.on_changed(partition)
        if partition.is_leading or not partition.is_online:
            return False
        return partition.follower is None or _leader_of(partition) != followed

    def on_brokers(self, partitions: list[Partition]) -> None:
        brokers = self._brokers
        for partition in partitions:
            partition.role.on_brokers(brokers)

    def tick(self, partitions: list[Partition]) -> None:
        """Check for lagging followers. Called a few times within the maximum replica lag."""
        now_ms = self._clock.monotonic_ms()
        for partition in partitions:
            partition.role.on_tick(now_ms)

    async def take_role(self, partition: Partition) -> None:
        """Take the role that the image assigns."""
        if not self.are_taken:
            return
        role = partition.role
        async with partition.changing:
            while True:
                epoch = role.leader_epoch
                await self._take_role(partition)
                if role.epoch_transition is None:
                    return
                if self._knows_more_than_the_image(partition):
                    # The state was read from the store; this is called again when the image has it.
                    return
                if role.leader_epoch == epoch:
                    role.resign("it cannot lead in the next epoch")
                    return
                # While this epoch was being entered, the image has moved on to the next one, led by this broker too.

    async def _take_role(self, partition: Partition) -> None:
        self.end_stale_role(partition)
        image = self._image_of(partition)
        if image is None or not partition.is_online or self._me not in image.replicas:
            return
        if self._me in image.offline:
            self._on_sound(partition)
        if partition.role.epoch_transition is not None and self._knows_more_than_the_image(
            partition
        ):
            return
        self._apply_settings(partition)
        if image.leader == self._me:
            if partition.leader is None:
                await self._become_leader(partition, image)
        else:
            self._become_follower(partition, image)

    def forget(self, partition: Partition) -> None:
        """End the partition's role, since it is about to be closed."""
        if self._following is not None:
            self._following.remove(partition)
        if partition.is_leading:
            partition.role.resign("it is not here any more")
            self.on_changed(partition)

    async def _become_leader(self, partition: Partition, image: PartitionImage) -> None:
        log = partition.log
        if self._following is not None:
            self._following.remove(partition)
        if not may_lead(self._me, image, last_epoch=log.latest_epoch):
            logger.warning(
                "%s: epoch %d is not led: the log knows epoch %d already",
                partition.name,
                image.leader_epoch,
                log.latest_epoch,
            )
            return
        leader = Leader(
            self._me,
            image,
            log_start=log.log_start,
            log_end=log.log_end,
            durable_end=partition.durable_end,
            high_watermark=max(partition.high_watermark, log.log_start),
            min_isr=log.config.min_insync_replicas,
            lag_ms_max=self._lag_ms_max,
            brokers=self._brokers,
            now_ms=self._clock.monotonic_ms(),
        )
        effects: list[LeaderEffect] = []
        for effect in leader.begin():
            if isinstance(effect, BeginEpoch):
                try:
                    await self._enter_epoch(partition, log, leader.leader_epoch)
                except (DiskFull, HandlesExhausted) as error:
                    logger.error("%s: it cannot be led yet: %s", partition.name, error)
                    self._retry_soon(partition)
                    return
                except StorageError as error:
                    partition.on_storage_error(error)
                    return
            else:
                effects.append(effect)
        if not partition.is_online:
            return
        if (
            partition.role.epoch_transition is not None
            and partition.leader_epoch > leader.leader_epoch
        ):
            # The image has moved on to a later epoch, perhaps by several: the ones before it are skipped.
            return
        partition.role.become_leader(leader, effects, durable_end=partition.durable_end)
        # Apply changes of the image that came while the epoch was being written.
        self.end_stale_role(partition)
        if partition.is_leading:
            partition.role.on_brokers(self._brokers)
            self._apply_settings(partition)
            if self._following is not None:
                logger.info("%s: led here, epoch %d", partition.name, image.leader_epoch)
            self.on_changed(partition)

    async def _enter_epoch(
        self, partition: Partition, log: PartitionLog, epoch: LeaderEpoch
    ) -> None:
        if not log.has_folder:
            # A new and empty log enters its epoch without the disk.
            log.on_leader_epoch(epoch)
            return
        is_durable = log.is_folder_durable
        if not is_durable:
            # Both would make the folder durable. No sync begins while the partition is changing.
            await partition.syncs.drain_partition(partition)
        await run_uncancelled(self._offload.run(lambda: log.on_leader_epoch(epoch)))
        if not is_durable:
            partition.syncs.request_sync(partition)

    def _apply_settings(self, partition: Partition) -> None:
        min_isr = partition.config.min_insync_replicas
        partition.role.on_settings(min_isr=min_isr, lag_ms_max=self._lag_ms_max)

    def _retry_soon(self, partition: Partition) -> None:
        # Only one retry at a time, however often the image changes.
        if partition not in self._awaiting_retry:
            self._awaiting_retry.add(partition)
            self._spawn(self._retry_later(partition))

    async def _retry_later(self, partition: Partition) -> None:
        await asyncio.sleep(RETRY_DELAY_S)
        self._awaiting_retry.discard(partition)
        await self.take_role(partition)

    def _become_follower(self, partition: Partition, image: PartitionImage) -> None:
        if self._following is None:
            return
        if partition.follower is None:
            log = partition.log
            partition.role.become_follower(
                Follower(
                    self._me,
                    image,
                    log_start=log.log_start,
                    log_end=log.log_end,
                    durable_end=partition.durable_end,
                    last_epoch=log.latest_epoch,
                    high_watermark=partition.high_watermark,
                    history=log,
                )
            )
        self._following.add(partition)

    def _image_of(self, partition: Partition) -> PartitionImage | None:
        topic = self._catalog.image.topics.get(partition.name.topic)
        number = partition.name.partition
        if topic is None or topic.id != partition.topic_id or number >= len(topic.partitions):
            return None
        return topic.partitions[number]

    def _knows_more_than_the_image(self, partition: Partition) -> bool:
        image = self._image_of(partition)
        return image is not None and image.leader_epoch < partition.role.leader_epoch

    def _is_recreated(self, partition: Partition) -> bool:
        topic = self._catalog.image.topics.get(partition.name.topic)
        return topic is not None and topic.id != partition.topic_id

    @property
    def _brokers(self) -> Mapping[BrokerId, BrokerEndpoint]:
        return self._catalog.image.brokers


def _leader_of(partition: Partition) -> BrokerId | None:
    """Return the leader that the partition follows."""
    follower = partition.follower
    return None if follower is None else follower.image.leader
