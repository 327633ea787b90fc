"""Log compaction: of the logs that are due, the dirtiest is compacted first, in slices off the event loop."""

import logging
from collections.abc import Sequence

from respool.broker.partitions.deferred_deletion import DeferredDeletion
from respool.broker.partitions.partition import Partition
from respool.broker.partitions.registry import Partitions
from respool.log.partition_log import Compaction, CompactionTools, PartitionLog, RemovedSegment
from respool.model.errors import DiskFull, HandlesExhausted, StorageError
from respool.ports.clock import Clock
from respool.ports.offload import Offload
from respool.ports.random_source import RandomSource
from respool.ports.record_scan import RecordScanner

logger = logging.getLogger(__name__)


class Compactor:
    def __init__(
        self,
        *,
        partitions: Partitions,
        deferred_deletion: DeferredDeletion,
        offload: Offload,
        clock: Clock,
        rng: RandomSource,
        scanner: RecordScanner,
        memory_bytes_max: int,
    ) -> None:
        self._partitions = partitions
        self._deferred_deletion = deferred_deletion
        self._offload = offload
        self._clock = clock
        self._rng = rng
        self._scanner = scanner
        self._memory_bytes_max = memory_bytes_max
        # Partitions whose compaction failed. No retry before a restart, since it would read the same damage.
        self._failed: set[Partition] = set()

    async def prepare(self) -> None:
        await self._offload.run(self._scanner.prepare)

    async def compact_dirtiest(self) -> bool:
        """Compact the log that needs it most. Return False if none is due, or the disk has no room for it now."""
        partition = self._dirtiest()
        if partition is None:
            return False
        log = partition.log
        compaction = log.begin_compaction(
            now_ms=self._clock.now_ms(),
            bound=partition.last_stable_offset,
            tools=CompactionTools(
                scanner=self._scanner,
                memory_bytes_max=self._memory_bytes_max,
                secret=self._rng.uuid().bytes,
            ),
        )
        assert compaction is not None, f"{partition.name} was due for compaction a moment ago"
        try:
            return await self._run(partition, log, compaction)
        finally:
            # If this was cancelled, a slice may still be running.
            compaction.is_abandoned = True

    def _dirtiest(self) -> Partition | None:
        self._failed = {one for one in self._failed if one.is_online}
        now_ms = self._clock.now_ms()
        found: tuple[float, Partition] | None = None
        for partition in self._partitions:
            if not partition.is_online or partition in self._failed:
                continue
            if partition.changing.locked():
                continue
            log = partition.log
            try:
                span = log.compaction_span(now_ms=now_ms, bound=partition.last_stable_offset)
            except HandlesExhausted:
                continue
            except StorageError as error:
                self._exclude(partition, error)
                continue
            if span is None or not span.is_due(log.config):
                continue
            if found is None or span.dirty_ratio > found[0]:
                found = (span.dirty_ratio, partition)
        return found[1] if found is not None else None

    async def _run(self, partition: Partition, log: PartitionLog, compaction: Compaction) -> bool:
        began_ms = self._clock.monotonic_ms()
        while not compaction.is_complete:
            try:
                await self._offload.run(compaction.run)
            except StorageError as error:
                return self._on_failure(partition, log, compaction, error)
            try:
                # Not while another thread truncates the log.
                async with partition.changing:
                    if not partition.is_online:
                        # Deleted or offline: this log must not be used any more.
                        return True
                    removed = log.finish_compaction(compaction)
            except HandlesExhausted as error:
                return self._on_failure(partition, log, compaction, error)
            except StorageError as error:
                partition.go_offline(error)
                return True
            self._delete_later(removed, log)
        counts = compaction.counts
        logger.info(
            "%s: compacted %d bytes in %d segments to %d in %d, up to offset %d, in %d ms",
            partition.name,
            counts.bytes_before,
            counts.segments_before,
            counts.bytes_after,
            counts.segments_after,
            compaction.end,
            self._clock.monotonic_ms() - began_ms,
        )
        return True

    def _on_failure(
        self,
        partition: Partition,
        log: PartitionLog,
        compaction: Compaction,
        error: StorageError,
    ) -> bool:
        """Handle a failure; the old segments are untouched. Return True to continue with another log now."""
        if not partition.is_online or compaction.is_abandoned:
            return True
        try:
            log.fail_compaction(compaction)
        except StorageError as second:
            partition.go_offline(second)
            return True
        if isinstance(error, DiskFull | HandlesExhausted):
            logger.warning("%s: no room to compact it now: %s", partition.name, error)
            return False
        self._exclude(partition, error)
        return True

    def _exclude(self, partition: Partition, error: StorageError) -> None:
        self._failed.add(partition)
        logger.error(
            "%s cannot be compacted and grows until the broker is restarted: %s. It is served on.",
            partition.name,
            error,
        )

    def _delete_later(self, removed: Sequence[RemovedSegment], log: PartitionLog) -> None:
        for segment in removed:
            self._deferred_deletion.run_later(
                segment.delete, delay_ms=log.config.file_delete_delay_ms
            )
