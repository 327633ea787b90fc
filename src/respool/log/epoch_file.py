"""A log's leader epochs and the file that keeps them: `leader-epoch-checkpoint`, beside the segments.

The file may be behind at its start, for what was deleted there is deleted again at the next opening. At its end it is
never behind: an epoch is on the disk before it has data, and is gone from it when its data was cut off.
"""

from collections.abc import Sequence

from respool.log.epoch_cache import EpochCache, EpochEntry
from respool.log.file_names import EPOCHS_NAME
from respool.model.ids import LeaderEpoch, Offset
from respool.ports.disk import Disk


class EpochFile:
    def __init__(self, disk: Disk, folder: str, epochs: EpochCache) -> None:
        self._disk = disk
        self._path = f"{folder}/{EPOCHS_NAME}"
        self._epochs = epochs

    @classmethod
    def read(cls, disk: Disk, folder: str) -> EpochCache | None:
        """What is written there; None when it is missing or damaged."""
        content = disk.read_file(f"{folder}/{EPOCHS_NAME}")
        try:
            return EpochCache.decode(content or b"")
        except ValueError:
            return None

    @property
    def latest(self) -> LeaderEpoch:
        return self._epochs.latest

    @property
    def entries(self) -> Sequence[EpochEntry]:
        return self._epochs.entries

    def end_of(self, epoch: LeaderEpoch, *, log_end: Offset) -> tuple[LeaderEpoch, Offset]:
        return self._epochs.end_of(epoch, log_end=log_end)

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        return self._epochs.epoch_at(offset)

    def begin(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """A leader begins at this offset, the log's end; on the disk when this returns.

        Raises:
            DiskFull, DiskFailed: it could not be written, and is not known here either.
        """
        assert epoch >= self.latest, f"leader epoch {epoch} after {self.latest}"
        epochs = EpochCache.decode(self._epochs.encode())
        if epochs.assign(epoch, start_offset):
            self._disk.replace_file(self._path, epochs.encode())
            self._epochs = epochs

    def truncate_start(self, offset: Offset) -> None:
        """The log starts here now."""
        self._epochs.truncate_start(offset)

    def truncate_end(self, offset: Offset) -> None:
        """The log ends here now; on the disk when this returns."""
        if self._epochs.truncate_end(offset):
            self.write()

    def write(self) -> None:
        self._disk.replace_file(self._path, self._epochs.encode())
