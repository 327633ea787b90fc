"""The leader epochs of a log: the first offset of each epoch that has data here, kept in `leader-epoch-checkpoint`.

Followers and consumers compare epochs, not high watermarks, to find where two logs diverge (KIP-101, KIP-279, KIP-320).
So no entry may outlive its data: truncating the log truncates the epochs, also when no byte of the log is removed
(KAFKA-10706), and a new leader enters its epoch before it has any data (KAFKA-7415).

The file, in Kafka's text, may be behind at its start, because opening truncates there again. At its end it is never
behind: an epoch is durable before its first batch, and removed before its data is.

A new log has no file until its first sync (folder_durability.py). Until then it is empty or nothing in it is durable,
so it has at most one epoch that a power cut could make it forget: the one that starts where the log does. The next
leader's epoch, which starts there too, replaces it anyway.
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
    """The entries, one per leadership change. Pure: the owner writes `encode()` durably whenever a call reports a
    change.
    """

    def __init__(self) -> None:
        # Two lists of equal length. Invariant: both strictly increase.
        self._epochs: list[LeaderEpoch] = []
        self._starts: list[Offset] = []

    @property
    def latest(self) -> LeaderEpoch:
        """The last epoch that wrote here; -1 if there is none."""
        return self._epochs[-1] if self._epochs else NO_LEADER_EPOCH

    @property
    def entries(self) -> list[EpochEntry]:
        return list(map(EpochEntry, self._epochs, self._starts))

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Enter an epoch whose data starts at this offset; return whether anything changed.

        Contradicting entries are removed: those with the same or a later epoch, or at the same or a later offset.
        """
        assert epoch >= 0, f"epoch {epoch}"
        assert start_offset >= 0, f"start offset {start_offset}"
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return False
        self._remove(
            min(bisect_left(self._epochs, epoch), bisect_left(self._starts, start_offset)),
            len(self._epochs),
        )
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def end_of(self, epoch: LeaderEpoch, *, log_end: Offset) -> tuple[LeaderEpoch, Offset]:
        """Return the largest epoch here not after `epoch`, and its end offset: (-1, -1) if unknown.

        For an epoch older than all entries, return that epoch and the first known offset: the requester can continue
        there.
        """
        if epoch < 0 or epoch > self.latest:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self.latest:
            return epoch, log_end
        following = bisect_right(self._epochs, epoch)
        found = self._epochs[following - 1] if following else epoch
        return found, self._starts[following]

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The leader epoch in which the offset was or would be written; -1 before the first known one."""
        position = bisect_right(self._starts, offset)
        return self._epochs[position - 1] if position else NO_LEADER_EPOCH

    def truncate_end(self, offset: Offset) -> bool:
        """Remove epochs that start at `offset`, the new log end, or later; return whether there were any.

        An epoch that starts exactly there has no data left, and may have belonged to another leader.
        """
        return self._remove(bisect_left(self._starts, offset), len(self._starts))

    def truncate_start(self, offset: Offset) -> bool:
        """Remove epochs that end before `offset`, the new log start; return whether anything changed.

        The epoch that contains `offset` stays and starts there.
        """
        position = bisect_right(self._starts, offset) - 1
        if position < 0 or (position == 0 and self._starts[0] == offset):
            return False
        self._remove(0, position)
        self._starts[0] = offset
        return True

    def encode(self) -> bytes:
        """The text of a `leader-epoch-checkpoint` file: one line "epoch start-offset" per entry."""
        return encode_lines([f"{epoch} {start}" for epoch, start in self.entries])

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a file written by `encode` or by Kafka.

        Raises:
            ValueError: it is damaged. The batch headers contain the same information.
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

    # Mutable, so not hashable.
    __hash__ = None  # type: ignore[assignment]

    def _remove(self, first: int, end: int) -> bool:
        del self._epochs[first:end]
        del self._starts[first:end]
        return first < end


class EpochFile:
    def __init__(
        self, disk: Disk, folder: str, epochs: EpochCache, *, is_on_disk: bool = True
    ) -> None:
        self._disk = disk
        self._path = f"{folder}/{EPOCHS_NAME}"
        self._epochs = epochs
        # False for a new log, until its first sync.
        self.is_on_disk = is_on_disk

    @classmethod
    def read(cls, disk: Disk, folder: str) -> EpochCache | None:
        """The stored epochs; None if the file is missing or damaged."""
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
        """Enter the epoch of a leader that starts at this offset, the log end.

        Durable when this returns; in a new log, with its first sync.

        Raises:
            DiskFull, DiskFailed: the epoch was not written, and is not entered in memory either.
        """
        assert epoch >= self.latest, f"leader epoch {epoch} after {self.latest}"
        epochs = EpochCache.decode(self._epochs.encode())
        if epochs.assign(epoch, start_offset):
            if self.is_on_disk:
                self._disk.replace_file(self._path, epochs.encode())
            self._epochs = epochs

    def truncate_start(self, offset: Offset) -> None:
        """Remove epochs before the new log start."""
        self._epochs.truncate_start(offset)

    def truncate_end(self, offset: Offset) -> None:
        """Remove epochs after the new log end. Durable when this returns, unless the log is new."""
        if self._epochs.truncate_end(offset) and self.is_on_disk:
            self.write()

    def write(self) -> None:
        self._disk.replace_file(self._path, self._epochs.encode())

    # -- the first sync of a new log -----------------------------------------------------------------------------------

    def encode(self) -> bytes:
        return self._epochs.encode()

    def write_first(self, content: bytes) -> None:
        """Write the result of an earlier `encode`. From any thread; then call `on_written`."""
        self._disk.replace_file(self._path, content)

    def on_written(self, content: bytes) -> None:
        """The file has this content. An epoch that began meanwhile is written with the next sync."""
        self.is_on_disk = self.is_on_disk or content == self._epochs.encode()
