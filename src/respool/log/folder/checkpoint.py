"""One offset per partition in a file of the data folder, in Kafka's text: a line "topic partition offset" for each.

Four of them are kept:

- `recovery-point-offset-checkpoint`: everything below is synced, a start after a crash reads the log from there only;
- `log-start-offset-checkpoint`: where the log begins, which may be inside a segment after DeleteRecords;
- `replication-offset-checkpoint`: the high watermark. It may be lower than the truth, never higher;
- `cleaner-offset-checkpoint`: how far a log was compacted; of one that never was it says nothing.

A damaged file is not the end: each can be done without, at a price its reader must know.
"""

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Self

from respool.log.checkpoint_text import decode_lines, encode_lines, parse_number
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
        """What was written last; nothing when there is no file.

        Raises:
            CheckpointDamaged: the file is there and makes no sense.
        """
        data = self._disk.read_file(self.name)
        if data is None:
            return {}
        try:
            return _decode(data)
        except (ValueError, InvalidTopic) as error:
            raise CheckpointDamaged(f"{self.name} is damaged: {error}") from error

    def write(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Replace the file, atomically and durably. What the offsets promise must be on the disk before."""
        lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
        self._disk.replace_file(self.name, encode_lines(lines))


class KeptOffsets:
    """A checkpoint and its offsets in memory. It writes when the file would say something else, and only then."""

    def __init__(
        self,
        checkpoint: OffsetCheckpoint,
        offsets: Mapping[TopicPartition, Offset] = MappingProxyType({}),
    ) -> None:
        self._checkpoint = checkpoint
        self._offsets = dict(offsets)
        self._is_written = True
        # Partitions the file may speak of: more than one thinks, when a failed write came through all the same.
        self._may_be_in_file = set(offsets)

    def may_speak_of(self, name: TopicPartition) -> bool:
        """Whether the file may hold an offset of this partition."""
        return name in self._may_be_in_file or name in self._offsets

    @classmethod
    def read(cls, checkpoint: OffsetCheckpoint) -> Self:
        """Start with what the file says.

        Raises:
            CheckpointDamaged: as `OffsetCheckpoint.read`.
        """
        return cls(checkpoint, checkpoint.read())

    def get(self, partition: TopicPartition) -> Offset:
        """The partition's offset; 0, where every log begins, when none was written."""
        return self._offsets.get(partition, Offset(0))

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._offsets

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._offsets)

    def update(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Take these over and leave the other partitions' as they are."""
        updated = {**self._offsets, **offsets}
        if updated != self._offsets or not self._is_written:
            self._write(updated)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Say nothing of these any more, in the file either when this returns."""
        self.forget_soon(partitions)
        if not self._may_be_in_file.isdisjoint(partitions):
            self._write(self._offsets)

    def forget_soon(self, partitions: Collection[TopicPartition]) -> None:
        """Say nothing of these any more; the file follows with the next change."""
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
            raise ValueError(f"{partition} is there twice")
        offsets[partition] = Offset(parse_number(offset))
    return offsets
