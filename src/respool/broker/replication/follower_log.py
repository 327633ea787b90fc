"""A follower's changes to its log: append, truncate where the logs diverge, delete what the leader deleted."""

import logging
from collections.abc import Iterable

from respool.broker.partitions.partition import Partition
from respool.broker.partitions.sync_requests import SyncRequests
from respool.broker.replication.replica_requests import FetchReply
from respool.broker.run_uncancelled import run_uncancelled
from respool.log.folder.data_folder import DataFolder
from respool.model.errors import (
    DiskFull,
    HandlesExhausted,
    NothingTruncated,
    RequestError,
    StorageError,
)
from respool.model.ids import Offset, TopicPartition
from respool.ports.clock import Clock
from respool.ports.offload import Offload
from respool.replication.effects import (
    Append,
    FollowerEffect,
    HighWatermarkMoved,
    RaiseLogStart,
    ResetLogTo,
    TruncateTo,
    WaitFor,
)
from respool.replication.follower import Follower

logger = logging.getLogger(__name__)

# The delay after a failed write, which may succeed on retry.
RETRY_DELAY_MS = 1_000


class FollowerLog:
    def __init__(
        self, *, folder: DataFolder, syncs: SyncRequests[Partition], offload: Offload, clock: Clock
    ) -> None:
        self._folder = folder
        self._syncs = syncs
        self._offload = offload
        self._clock = clock

    async def take(self, reply: FetchReply) -> list[FollowerEffect]:
        """Apply the leader's reply; return the effects that remain for the fetcher."""
        follower = reply.partition.follower
        if follower is None or not reply.partition.is_online:
            return []
        effects = follower.on_fetched(reply.asked, reply.fetched)
        if any(isinstance(one, Append) for one in effects):
            effects = self._append(reply.partition, follower, reply.records)
        return await self.carry_out(reply.partition, effects)

    async def carry_out(
        self, partition: Partition, effects: Iterable[FollowerEffect]
    ) -> list[FollowerEffect]:
        left: list[FollowerEffect] = []
        for effect in effects:
            if not partition.is_online:
                # The partition failed or was removed while another thread or the leader was at work.
                return []
            if isinstance(effect, HighWatermarkMoved):
                partition.on_high_watermark(effect.high_watermark)
            elif isinstance(effect, RaiseLogStart):
                self._raise_log_start(partition, effect)
            elif isinstance(effect, TruncateTo | ResetLogTo):
                left += await self._truncate(partition, effect)
            else:
                left.append(effect)
        return left

    def _append(
        self, partition: Partition, follower: Follower, records: memoryview
    ) -> list[FollowerEffect]:
        log_end = partition.log.log_end
        try:
            effects = partition.append_fetched(records, now_ms=self._clock.now_ms())
            if partition.log.log_end > log_end:
                return effects
            # There was not even one complete batch. An immediate retry would get the same bytes again and again.
            logger.error(
                "%s: the leader sent %d bytes without a complete batch",
                partition.name,
                len(records),
            )
            return [*effects, WaitFor(delay_ms=RETRY_DELAY_MS)]
        except (RequestError, StorageError) as error:
            is_transient = isinstance(error, DiskFull | HandlesExhausted | RequestError)
            logger.error("%s: the leader's records were not appended: %s", partition.name, error)
            if isinstance(error, StorageError) and not is_transient:
                partition.on_storage_error(error)
                return []
            # Part of it may be in the log all the same.
            self._syncs.request_sync(partition)
            log = partition.log
            effects = follower.on_appended(log.log_end, last_epoch=log.latest_epoch)
            return [*effects, WaitFor(delay_ms=RETRY_DELAY_MS)]

    def _raise_log_start(self, partition: Partition, effect: RaiseLogStart) -> None:
        partition.log.raise_log_start(effect.log_start)
        partition.on_log_start_moved()

    async def _truncate(
        self, partition: Partition, effect: TruncateTo | ResetLogTo
    ) -> list[FollowerEffect]:
        async with partition.changing:
            follower = partition.follower
            if follower is None or not partition.is_online:
                return []
            _log_truncation(partition.name, effect, log_end=partition.log.log_end)
            # The log must not be truncated while a sync of it is in flight.
            await self._syncs.drain_partition(partition)
            left = await self._truncate_drained(partition, follower, effect)
            # Request the sync of what was not truncated: nothing else does, in any role.
            if partition.is_online:
                self._syncs.request_sync(partition)
            return left

    async def _truncate_drained(
        self, partition: Partition, follower: Follower, effect: TruncateTo | ResetLogTo
    ) -> list[FollowerEffect]:
        if not _is_followed_by(partition, follower):
            return []
        log, name, offset = partition.log, partition.name, effect.offset
        folder, is_end = self._folder, isinstance(effect, TruncateTo)
        truncate = folder.truncate_partition if is_end else folder.restart_partition
        try:
            await run_uncancelled(self._offload.run(lambda: truncate(name, log, offset)))
        except NothingTruncated as error:
            return self._put_off(partition, follower, error)
        except StorageError as error:
            # The log may be half truncated: only reopening it shows its state.
            partition.abandon_log(error)
            return []
        if not _is_followed_by(partition, follower):
            # The role has changed since; the next role starts from the log as it is.
            if partition.is_online:
                high_watermark = min(partition.high_watermark, log.log_end)
                partition.on_high_watermark(max(high_watermark, log.log_start))
            return []
        effects = follower.on_truncated(
            log_start=log.log_start,
            log_end=log.log_end,
            durable_end=partition.durable_end,
            last_epoch=log.latest_epoch,
        )
        return await self.carry_out(partition, effects)

    def _put_off(
        self, partition: Partition, follower: Follower, error: NothingTruncated
    ) -> list[FollowerEffect]:
        """Retry later: the log is unchanged, and the next fetch detects the divergence again."""
        logger.warning("%s: not truncated yet: %s", partition.name, error)
        if not _is_followed_by(partition, follower):
            return []
        follower.on_not_truncated()
        return [WaitFor(delay_ms=RETRY_DELAY_MS)]


def _is_followed_by(partition: Partition, follower: Follower) -> bool:
    return partition.follower is follower and partition.is_online


def _log_truncation(
    name: TopicPartition, effect: TruncateTo | ResetLogTo, *, log_end: Offset
) -> None:
    if isinstance(effect, ResetLogTo):
        logger.warning(
            "%s: discarding the log up to %d, continuing at %d", name, log_end, effect.offset
        )
    elif effect.offset < log_end:
        logger.info(
            "%s: truncating records that the leader does not have, from %d to %d",
            name,
            effect.offset,
            log_end,
        )
    else:
        # At most, leader epochs without records are removed.
        logger.debug("%s: the log ends at %d, nothing to truncate", name, log_end)
