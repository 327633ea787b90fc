"""Shows what a partition has lost, and lets an operator accept the loss. The broker is stopped.

A log that ends before its recorded end stays offline, so that no loss goes unnoticed. The end is recorded in three
places, and accepting the loss changes all of them:

```
recovery-point-offset-checkpoint     everything below was synced
replication-offset-checkpoint        the high watermark, the only record if the folder is missing
<topic>-<partition>/*.snapshot       one is written only after everything before its offset is durable
```
Nothing is truncated here: with these lowered, the damage counts as a torn write, and the next start truncates it. If a
log has nothing left, its start is moved to its old end, so that no offset is reused.
"""

from dataclasses import dataclass

from respool.log.file_names import LOG, SNAPSHOT, offset_name, parse_offset_name
from respool.log.folder.clean_marker import CleanMarker
from respool.log.folder.folder_checkpoints import FolderCheckpoints
from respool.log.partition_folder import folder_name
from respool.log.producers.snapshot_files import SnapshotFiles
from respool.log.recovery.segment_scan import SegmentScan
from respool.log.recovery.segment_swap import complete_swaps
from respool.model.errors import CheckpointDamaged
from respool.model.ids import Offset, TopicPartition
from respool.ports.disk import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLoss:
    """The recorded state of a log, and what is left of it."""

    name: TopicPartition
    has_folder: bool
    log_start: Offset
    # It was durable up to here.
    recorded_end: Offset
    # It is intact up to here; None if there is no segment.
    intact_end: Offset | None
    # What is wrong there; empty if the files end there.
    damage: str

    @property
    def opens_at(self) -> Offset:
        """The log end once the loss is accepted."""
        if self.intact_end is None:
            return max(self.log_start, self.recorded_end)
        return max(self.log_start, self.intact_end)

    @property
    def offsets_lost(self) -> int:
        """The number of offsets lost; equal to messages, except for compacted ones and markers."""
        left = self.log_start if self.intact_end is None else self.opens_at
        return max(self.recorded_end - left, 0)


class AcceptedLoss:
    def __init__(self, disk: Disk, name: TopicPartition) -> None:
        """Read the checkpoints.

        Raises:
            CheckpointDamaged: one is unreadable. Rewriting it would drop the other partitions.
        """
        self._disk = disk
        self._name = name
        self._folder = folder_name(name)
        self._checkpoints = FolderCheckpoints(disk)
        if self._checkpoints.any_is_damaged:
            raise CheckpointDamaged("a checkpoint of the data folder is damaged")

    @property
    def is_known(self) -> bool:
        return self._disk.exists(self._folder) or self._name in self._checkpoints.names()

    def find(self) -> LogLoss:
        """Read the whole log and return what is missing."""
        complete_swaps(self._disk, self._folder)
        found = [parse_offset_name(name) for name in self._disk.list_folder(self._folder)]
        bases = sorted(one[0] for one in found if one is not None and one[1] == LOG)
        snapshots = [one[0] for one in found if one is not None and one[1] == SNAPSHOT]
        recorded = max(self._checkpoints.recovery_points.get(self._name), *snapshots, Offset(0))
        log_start = self._checkpoints.log_starts.get(self._name)
        intact_end, damage = None, ""
        if bases:
            intact_end, damage = self._scan(bases, recorded)
            log_start = max(log_start, bases[0])
        else:
            recorded = max(recorded, self._checkpoints.recorded_end(self._name))
        return LogLoss(
            name=self._name,
            has_folder=self._disk.exists(self._folder),
            log_start=log_start,
            recorded_end=recorded,
            intact_end=intact_end,
            damage=damage,
        )

    def accept(self, loss: LogLoss) -> None:
        """Lower the recorded offsets, so that the next start accepts the log. If interrupted, repeat it."""
        # The log is not as it was when it was closed.
        CleanMarker(self._disk).remove()
        name, end = self._name, loss.opens_at
        kept = self._checkpoints
        if loss.intact_end is None:
            # First: this alone means that nothing below is missing.
            kept.log_starts.update({name: end})
            kept.recovery_points.update({name: end})
            kept.high_watermarks.update({name: end})
            return
        SnapshotFiles(self._disk, self._folder, ()).delete_beyond(loss.intact_end)
        kept.high_watermarks.update({name: min(kept.high_watermarks.get(name), end)})
        if name in kept.cleaned_ends:
            kept.cleaned_ends.update({name: min(kept.cleaned_ends.get(name), end)})
        # Last: until then the log stays offline.
        kept.recovery_points.update({name: loss.intact_end})

    def _scan(self, bases: list[Offset], recorded: Offset) -> tuple[Offset, str]:
        """Return the end of the intact part, and what is wrong there."""
        is_compacted = self._checkpoints.cleaned_end(self._name) is not None
        gaps_end = max(recorded, bases[-1]) if is_compacted else None
        end = bases[0]
        for base in bases:
            if base != end and not (is_compacted and base > end):
                return end, f"offset {end} is missing before segment {base}"
            path = f"{self._folder}/{offset_name(base, LOG)}"
            file = self._disk.open_log(path, create=False)
            try:
                scan = SegmentScan(file, base, gaps_end=gaps_end)
                for batch in scan:
                    end = batch.header.next_offset
            finally:
                file.close()
            if scan.damage:
                return end, f"{path} at byte {scan.position}: {scan.damage}"
        return end, ""
