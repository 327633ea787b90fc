"""A log's leader epochs and the file that keeps them: `leader-epoch-checkpoint`, beside the segments.

The file may be behind at its start, for what was deleted there is deleted again at the next opening. At its end it is
never behind: an epoch is on the disk before it has data, and is gone from it when its data was cut off.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple, Self

from respool.log.checkpoint_text import decode_lines, encode_lines, parse_number
from respool.log.file_names import EPOCHS_NAME
from respool.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset
from respool.ports.disk import Disk

NO_OFFSET = Offset(-1)


class EpochEntry(NamedTuple):
    epoch: LeaderEpoch
    start_offset: Offset


class EpochCache:
    def __init__(self) -> None:
        # Two lists of one length. Invariant: both strictly increase.
        self._epochs: list[LeaderEpoch] = []
        self._starts: list[Offset] = []

    @property
    def latest(self) -> LeaderEpoch:
        """The last leader known to have written here; -1 when there is none."""
        return self._epochs[-1] if self._epochs else NO_LEADER_EPOCH

    @property
    def entries(self) -> list[EpochEntry]:
        return list(map(EpochEntry, self._epochs, self._starts))

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """This epoch's data begins here; say whether that is news.

        What contradicts it is removed: entries with the same or a later epoch, or at the same or a later offset.
        """
        assert epoch >= 0, f"epoch {epoch}"
        assert start_offset >= 0, f"start offset {start_offset}"
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return False
        self._cut(
            min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset)),
            len(self._epochs),
        )
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def end_of(self, epoch: LeaderEpoch, *, log_end: Offset) -> tuple[LeaderEpoch, Offset]:
        """The largest epoch here that is not after `epoch`, and where it ends: (-1, -1) when that is not known.

        An epoch older than all that is left has its own number answered, with the first offset still known: the
        asker can at least go on from there.
        """
        if epoch < 0 or epoch > self.latest:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end
        following = bisect_right(self._epochs, epoch)
        found = self._epochs[following - 1] if following else epoch
        return found, self._starts[following]

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch the offset was, or would be, written in; -1 before the first known."""
        position = bisect_right(self._starts, offset)
        return self._epochs[position - 1] if position else NO_LEADER_EPOCH

    def truncate_end(self, offset: Offset) -> bool:
        """The log ends at `offset` now: forget epochs that would begin there or later; say whether there were any.

        An epoch that begins exactly there has no data left, and may have been another leader's all along.
        """
        return self._cut(bisect_left(self._starts, offset), len(self._starts))

    def truncate_start(self, offset: Offset) -> bool:
        """The log starts at `offset` now: forget epochs that ended before it; say whether anything changed.

        The epoch `offset` lies in stays and begins there.
        """
        position = bisect_right(self._starts, offset) - 1
        if position < 0 or (position == 0 and self._starts[0] == offset):
            return False
        self._cut(0, position)
        self._starts[0] = offset
        return True

    def encode(self) -> bytes:
        """The text of a `leader-epoch-checkpoint` file: a line "epoch start-offset" for each."""
        return encode_lines([f"{epoch} {start}" for epoch, start in self.entries])

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what `encode` or Kafka wrote.

        Raises:
            ValueError: it is damaged. The batches' headers hold the same knowledge.
        """
        cache = cls()
        for epoch, start in decode_lines(data, words=2):
            entry = EpochEntry(LeaderEpoch(parse_number(epoch)), Offset(parse_number(start)))
            if cache._epochs and (
                entry.epoch <= cache._epochs[-1] or entry.start_offset <= cache._starts[-1]
            ):
                raise ValueError(f"entry {tuple(entry)} does not follow {tuple(cache.entries[-1])}")
            cache._epochs.append(entry.epoch)
            cache._starts.append(entry.start_offset)
        return cache

    def __len__(self) -> int:
        return len(self._epochs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EpochCache) and self.entries == other.entries

    # It changes, so it cannot be a key.
    __hash__ = None  # type: ignore[assignment]

    def _cut(self, first: int, end: int) -> bool:
        del self._epochs[first:end]
        del self._starts[first:end]
        return first < end


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
