"""The four checkpoints of a data folder together: for each log, what may be believed of it after a crash."""

import logging
from collections.abc import Collection, Mapping

from respool.log.folder.checkpoint import (
    CLEANED_END,
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    KeptOffsets,
    OffsetCheckpoint,
)
from respool.log.partition_log import PartitionLog
from respool.model.errors import CheckpointDamaged
from respool.model.ids import Offset, TopicPartition
from respool.ports.disk import Disk

logger = logging.getLogger(__name__)


class FolderCheckpoints:
    def __init__(self, disk: Disk) -> None:
        """Read them; one that is damaged is done without."""
        self._disk = disk
        self.any_is_damaged = False
        self.recovery_points = self._read(
            RECOVERY_POINT, without="every log is read and checked from its start"
        )
        self.log_starts = self._read(
            LOG_START, without="records deleted by DeleteRecords may be seen again for a while"
        )
        self.high_watermarks = self._read(
            HIGH_WATERMARK, without="high watermarks are found anew from the logs"
        )
        self.cleaned_ends = self._read(
            CLEANED_END, without="compacted logs are compacted from their start again"
        )

    def names(self) -> set[TopicPartition]:
        """The partitions spoken of."""
        return {name for kept in self._all for name in kept}

    def may_speak_of(self, name: TopicPartition) -> bool:
        return any(kept.may_speak_of(name) for kept in self._all)

    def write(
        self,
        logs: Mapping[TopicPartition, PartitionLog],
        high_watermarks: Mapping[TopicPartition, Offset],
    ) -> None:
        """Write down what these logs say now; other partitions keep what was written before."""
        # Not `log_end`: only what is on the disk may be believed after a crash.
        self.recovery_points.update({name: log.synced_end for name, log in logs.items()})
        self.log_starts.update({name: log.log_start for name, log in logs.items()})
        self.high_watermarks.update(
            {name: offset for name, offset in high_watermarks.items() if name in logs}
        )
        # Also of a log that is no longer compacted: it may have gaps, and a recovery must know that.
        self.cleaned_ends.update(
            {
                name: log.cleaned_end
                for name, log in logs.items()
                if log.config.is_compacted or name in self.cleaned_ends
            }
        )

    def lower(self, name: TopicPartition, offset: Offset) -> None:
        """Promise nothing of this partition at `offset` and beyond, durably: what lies there is about to be cut off.

        Each of them may be lower than the truth, so a crash between them does no harm.
        """
        for kept in self._all:
            if kept.get(name) > offset:
                kept.update({name: offset})

    def recorded_end(self, name: TopicPartition) -> Offset:
        """How far the partition's log is known to have reached; 0 when nothing is known."""
        return max(self.recovery_points.get(name), self.high_watermarks.get(name))

    def cleaned_end(self, name: TopicPartition) -> Offset | None:
        """How far the partition's log was compacted; None when it never was."""
        return self.cleaned_ends.get(name) if name in self.cleaned_ends else None

    def forget(self, names: Collection[TopicPartition]) -> None:
        """Say nothing of these partitions any more, durably: their logs are about to be made anew."""
        for kept in self._all:
            kept.forget(names)

    def forget_soon(self, names: Collection[TopicPartition]) -> None:
        """Say nothing of these partitions any more, from the next writing on: their logs are gone."""
        for kept in self._all:
            kept.forget_soon(names)

    @property
    def _all(self) -> tuple[KeptOffsets, ...]:
        return self.recovery_points, self.log_starts, self.high_watermarks, self.cleaned_ends

    def _read(self, name: str, *, without: str) -> KeptOffsets:
        checkpoint = OffsetCheckpoint(self._disk, name)
        try:
            return KeptOffsets.read(checkpoint)
        except CheckpointDamaged as error:
            logger.warning("%s. Going on without it: %s.", error, without)
            self.any_is_damaged = True
            return KeptOffsets(checkpoint)
