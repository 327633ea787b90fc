"""A log in memory, with a part that a power cut takes."""

from respool.log.leader_epochs import EpochCache
from respool.model.ids import LeaderEpoch, Offset

# The leader epoch it was written in, and what was written.
Entry = tuple[int, int]


class MemoryLog:
    def __init__(self) -> None:
        self.log_start = Offset(0)
        self.entries: list[Entry] = []
        self.durable_end = Offset(0)
        self.epochs = EpochCache()
        # Grows when something is cut off: syncs begun before come to nothing.
        self.truncations = 0

    @property
    def log_end(self) -> Offset:
        return Offset(self.log_start + len(self.entries))

    @property
    def last_epoch(self) -> LeaderEpoch:
        return self.epochs.latest

    def entry(self, offset: int) -> Entry | None:
        at = offset - self.log_start
        return self.entries[at] if 0 <= at < len(self.entries) else None

    def read(self, offset: int, entries_max: int) -> list[Entry]:
        at = offset - self.log_start
        return self.entries[at : at + entries_max]

    def append(self, entries: list[Entry]) -> None:
        for epoch, value in entries:
            self.epochs.assign(LeaderEpoch(epoch), self.log_end)
            self.entries.append((epoch, value))

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        self.epochs.assign(epoch, self.log_end)

    def end_of_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        return self.epochs.end_of(epoch, log_end=self.log_end)

    def truncate_to(self, offset: Offset) -> None:
        assert offset >= self.log_start
        self.epochs.truncate_end(offset)
        if offset >= self.log_end:
            # Nothing goes, and nothing is synced.
            return
        del self.entries[offset - self.log_start :]
        self.durable_end = self.log_end
        self.truncations += 1

    def restart_at(self, offset: Offset) -> None:
        self.entries.clear()
        self.epochs.truncate_end(Offset(0))
        self.log_start = self.durable_end = offset
        self.truncations += 1

    def raise_log_start(self, offset: Offset) -> None:
        assert self.log_start <= offset <= self.log_end
        del self.entries[: offset - self.log_start]
        self.log_start = offset
        self.durable_end = max(self.durable_end, offset)
        self.epochs.truncate_start(offset)

    def lose_tail(self, kept_end: Offset) -> None:
        """A power cut: everything from there on is gone. An epoch entered durably stays, if it can begin here."""
        assert self.durable_end <= kept_end <= self.log_end
        del self.entries[kept_end - self.log_start :]
        self.epochs.truncate_end(Offset(kept_end + 1))
        self.durable_end = kept_end
        self.truncations += 1
