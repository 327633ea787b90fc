"""The broker's periodic work: retention, compaction, tag indexes, checkpoints, and expiry of producer state."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NoReturn, Protocol

from respool.broker.partitions.compactor import Compactor
from respool.broker.partitions.deferred_deletion import DeferredDeletion
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.broker.partitions.tag_indexer import TagIndexer
from respool.log.folder.data_folder import DataFolder
from respool.model.delays.kept_records import KEPT_NONE, OFFSET_MAX, KeptRecords
from respool.model.errors import DiskFull, StorageError
from respool.model.ids import Offset
from respool.model.settings import Settings
from respool.ports.clock import Clock
from respool.ports.offload import Offload


class DelayedRecords(Protocol):
    """What delayed records keep: `Deliveries`."""

    def deletable_to(self, partition: Partition) -> Offset: ...

    def carried_bytes(self, partition: Partition) -> int: ...

    async def carry(self, partition: Partition, new_start: Offset) -> None: ...


logger = logging.getLogger(__name__)


class Housekeeping:
    def __init__(
        self,
        *,
        partitions: Partitions,
        folder: DataFolder,
        deferred_deletion: DeferredDeletion,
        offload: Offload,
        clock: Clock,
        settings: Settings,
        compactor: Compactor,
        tag_indexer: TagIndexer,
        deliveries: DelayedRecords,
        archived_end: Callable[[Partition], Offset],
        delete_finished: Callable[[], Awaitable[None]],
    ) -> None:
        """`archived_end`: the offset below which a partition is certainly archived.

        `delete_finished` raises log starts to where all share groups are, in topics that are configured so.
        """
        self._partitions = partitions
        self._folder = folder
        self._deferred_deletion = deferred_deletion
        self._offload = offload
        self._clock = clock
        self._settings = settings
        self._compactor = compactor
        self._tag_indexer = tag_indexer
        self._deliveries = deliveries
        self._archived_end = archived_end
        self._delete_finished = delete_finished

    def loops(self) -> tuple[Coroutine[Any, Any, NoReturn], ...]:
        return (
            self.run_retention(),
            self.run_checkpoints(),
            self.run_compaction(),
            self.run_tag_indexing(),
        )

    async def run_retention(self) -> NoReturn:
        while True:
            await asyncio.sleep(self._settings.storage.retention_check_ms / 1000)
            for partition in self._partitions:
                await self.carry_delayed(partition)
                self.clean(partition)
                # Rolling and renaming take a little time per partition; requests are served in between.
                await asyncio.sleep(0)
            await self._delete_finished()

    async def run_compaction(self) -> NoReturn:
        while True:
            await asyncio.sleep(self._settings.storage.compaction_check_ms / 1000)
            await self._compactor.prepare()
            while await self._compactor.compact_dirtiest():
                # Continue with the next log, which may have become due in the meantime.
                pass

    async def run_tag_indexing(self) -> NoReturn:
        while True:
            await asyncio.sleep(self._settings.storage.tag_index_check_ms / 1000)
            await self._tag_indexer.index_all()

    async def run_checkpoints(self) -> NoReturn:
        while True:
            await asyncio.sleep(self._settings.storage.checkpoint_ms / 1000)
            await self.checkpoint()

    async def carry_delayed(self, partition: Partition) -> None:
        """Move delayed records that retention would delete to the log's end."""
        if not partition.is_online or not partition.config.respool_delay:
            return
        new_start = partition.log.expired_end(
            now_ms=self._clock.now_ms(),
            high_watermark=partition.high_watermark,
            kept=self._kept(partition)._replace(from_offset=OFFSET_MAX),
        )
        if new_start is not None and partition.is_leading:
            await self._deliveries.carry(partition, new_start)

    def kept_from(self, partition: Partition) -> Offset:
        """Delayed records that wait from here on are not to be deleted."""
        return self._kept(partition).from_offset

    def _kept(self, partition: Partition) -> KeptRecords:
        config, kept = partition.config, KEPT_NONE
        if config.respool_delay:
            kept = KeptRecords(
                self._deliveries.deletable_to(partition), self._deliveries.carried_bytes(partition)
            )
        if config.remote_storage_enable:
            kept = kept._replace(archived_end=self._archived_end(partition))
        return kept

    def clean(self, partition: Partition) -> None:
        """Apply retention to one partition: roll and delete segments, expire producer state."""
        # Another thread may be truncating the log.
        if not partition.is_online or partition.changing.locked():
            return
        now_ms = self._clock.now_ms()
        log = partition.log
        log_start = log.log_start
        try:
            log.roll_if_due(now_ms)
            removed = log.apply_retention(
                now_ms=now_ms,
                high_watermark=partition.high_watermark,
                kept=self._kept(partition),
            )
            log.producers.expire(now_ms)
        except DiskFull as error:
            # Nothing was changed. The work is still due, and is retried.
            logger.error("%s: no room to roll or remove segments: %s", partition.name, error)
            return
        except StorageError as error:
            partition.on_storage_error(error)
            return
        partition.on_log_start_moved()
        ends = [*(one.base_offset for one in removed[1:]), log.local_start]
        for segment, end in zip(removed, ends, strict=False):
            # The log start was there first: DeleteRecords moved it, or the leader's moved.
            why = "out of retention" if end > log_start else f"before the log start {log_start}"
            if end > log.log_start:
                why = "archived, and out of local retention"
            logger.info("%s: removed %s, %s", partition.name, segment, why)
            self._deferred_deletion.run_later(
                segment.delete, delay_ms=log.config.file_delete_delay_ms
            )

    async def checkpoint(self) -> None:
        """Write checkpoints of recovery points and high watermarks, so that recovery after a crash is fast."""
        logs = self._partitions.online_logs()
        high_watermarks = self._partitions.high_watermarks()
        try:
            await self._offload.run(lambda: self._folder.write_checkpoints(logs, high_watermarks))
        except StorageError as error:
            # Without checkpoints the next start after a crash scans more; nothing is lost.
            logger.warning("could not write the checkpoints: %s", error)
