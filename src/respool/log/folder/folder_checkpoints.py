"""The four checkpoints of a data folder: one offset per partition, in Kafka's text, a line "topic partition offset"
each.

- `recovery-point-offset-checkpoint`: everything below is synced; recovery after a crash starts there;
- `log-start-offset-checkpoint`: the log start, which may be inside a segment after DeleteRecords;
- `replication-offset-checkpoint`: the high watermark; it may be too low, never too high;
- `cleaner-offset-checkpoint`: the end of the last compaction; no entry if there was none.

A damaged file is not fatal: the broker can run without any of them, at a cost that is logged.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Self

from respool.log.checkpoint_text import decode_lines, encode_lines, parse_number
from respool.log.partition_log import PartitionLog
from respool.model.errors import CheckpointDamaged, InvalidTopic
from respool.model.ids import Offset, TopicPartition, check_topic_name
from respool.ports.disk import Disk

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANED_END = "cleaner-offset-checkpoint"


class OffsetCheckpoint:
    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self.name = name

    def read(self) -> dict[TopicPartition, Offset]:
        """Return the stored offsets; empty if there is no file.

        Raises:
            CheckpointDamaged: the file is malformed.
        """
        data = self._disk.read_file(self.name)
        if data is None:
            return {}
        try:
            return _decode(data)
        except (ValueError, InvalidTopic) as error:
            raise CheckpointDamaged(f"{self.name} is damaged: {error}") from error

    def write(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Replace the file, atomically and durably. The data must be durable up to these offsets before."""
        lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
        self._disk.replace_file(self.name, encode_lines(lines))


class StoredOffsets:
    """A checkpoint and its offsets in memory. Writes the file only when its content would change."""

    def __init__(
        self,
        checkpoint: OffsetCheckpoint,
        offsets: Mapping[TopicPartition, Offset] = MappingProxyType({}),
    ) -> None:
        self._checkpoint = checkpoint
        self._offsets = dict(offsets)
        self._is_written = True
        # Partitions that may be in the file: a failed write may have succeeded all the same.
        self._may_be_in_file = set(offsets)

    def may_contain(self, name: TopicPartition) -> bool:
        """True if the file may contain this partition."""
        return name in self._may_be_in_file or name in self._offsets

    @classmethod
    def read(cls, checkpoint: OffsetCheckpoint) -> Self:
        """Start with the stored offsets.

        Raises:
            CheckpointDamaged: as `OffsetCheckpoint.read`.
        """
        return cls(checkpoint, checkpoint.read())

    def get(self, partition: TopicPartition) -> Offset:
        """The partition's offset; 0, where every log starts, if none is stored."""
        return self._offsets.get(partition, Offset(0))

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._offsets

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._offsets)

    def update(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Store these offsets and keep those of other partitions."""
        updated = {**self._offsets, **offsets}
        if updated != self._offsets or not self._is_written:
            self._write(updated)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Remove these partitions; from the file too when this returns."""
        self.forget_soon(partitions)
        if not self._may_be_in_file.isdisjoint(partitions):
            self._write(self._offsets)

    def forget_soon(self, partitions: Collection[TopicPartition]) -> None:
        """Remove these partitions; from the file with its next change."""
        gone = self._offsets.keys() & set(partitions)
        if gone:
            self._offsets = {one: at for one, at in self._offsets.items() if one not in gone}
            self._is_written = False

    def _write(self, offsets: dict[TopicPartition, Offset]) -> None:
        self._is_written = False
        self._may_be_in_file.update(offsets)
        self._checkpoint.write(offsets)
        self._is_written = True
        self._may_be_in_file = set(offsets)
        self._offsets = offsets


def _decode(data: bytes) -> dict[TopicPartition, Offset]:
    offsets: dict[TopicPartition, Offset] = {}
    for topic, number, offset in decode_lines(data, words=3):
        check_topic_name(topic)
        partition = TopicPartition(topic, parse_number(number))
        if partition in offsets:
            raise ValueError(f"{partition} appears twice")
        offsets[partition] = Offset(parse_number(offset))
    return offsets


logger = logging.getLogger(__name__)


class FolderCheckpoints:
    """All four checkpoints together: what is known about each log after a crash."""

    def __init__(self, disk: Disk) -> None:
        """Read them; damaged ones count as empty."""
        self._disk = disk
        self.any_is_damaged = False
        self.recovery_points = self._read(
            RECOVERY_POINT, without="every log is read and checked from its start"
        )
        self.log_starts = self._read(
            LOG_START, without="records deleted by DeleteRecords may reappear for a while"
        )
        self.high_watermarks = self._read(
            HIGH_WATERMARK, without="high watermarks are derived from the logs"
        )
        self.cleaned_ends = self._read(
            CLEANED_END, without="compacted logs are compacted from their start again"
        )

    def names(self) -> set[TopicPartition]:
        """All partitions with an entry."""
        return {name for kept in self._all for name in kept}

    def may_contain(self, name: TopicPartition) -> bool:
        return any(kept.may_contain(name) for kept in self._all)

    def write(
        self,
        logs: Mapping[TopicPartition, PartitionLog],
        high_watermarks: Mapping[TopicPartition, Offset],
    ) -> None:
        """Store the offsets of these logs; other partitions keep theirs."""
        # Not `log_end`: after a crash only synced data can be trusted.
        self.recovery_points.update({name: log.synced_end for name, log in logs.items()})
        self.log_starts.update({name: log.log_start for name, log in logs.items()})
        self.high_watermarks.update(
            {name: offset for name, offset in high_watermarks.items() if name in logs}
        )
        # Also for a log that is no longer compacted: it may have gaps, which recovery must know.
        self.cleaned_ends.update(
            {
                name: log.cleaned_end
                for name, log in logs.items()
                if log.config.is_compacted or name in self.cleaned_ends
            }
        )

    def lower(self, name: TopicPartition, offset: Offset) -> None:
        """Lower all offsets of this partition to `offset`, durably, before the log is truncated there.

        Each may be lower than necessary, so a crash in between does no harm.
        """
        for kept in self._all:
            if kept.get(name) > offset:
                kept.update({name: offset})

    def recorded_end(self, name: TopicPartition) -> Offset:
        """The log is known to have reached this offset; 0 if nothing is known."""
        return max(self.recovery_points.get(name), self.high_watermarks.get(name))

    def cleaned_end(self, name: TopicPartition) -> Offset | None:
        """The end of the last compaction; None if there was none."""
        return self.cleaned_ends.get(name) if name in self.cleaned_ends else None

    def forget(self, names: Collection[TopicPartition]) -> None:
        """Remove these partitions durably: their logs are about to be created again."""
        for kept in self._all:
            kept.forget(names)

    def forget_soon(self, names: Collection[TopicPartition]) -> None:
        """Remove these partitions with the next write: their logs are gone."""
        for kept in self._all:
            kept.forget_soon(names)

    @property
    def _all(self) -> tuple[StoredOffsets, ...]:
        return self.recovery_points, self.log_starts, self.high_watermarks, self.cleaned_ends

    def _read(self, name: str, *, without: str) -> StoredOffsets:
        checkpoint = OffsetCheckpoint(self._disk, name)
        try:
            return StoredOffsets.read(checkpoint)
        except CheckpointDamaged as error:
            logger.warning("%s. Continuing without it: %s.", error, without)
            self.any_is_damaged = True
            return StoredOffsets(checkpoint)
