"""The process that has a simulated disk open: every call passes through it and may fail here."""

from random import Random

from respool.model.errors import DiskFull
from respool.model.file_range import FileRange
from respool.sim.disk.disk_faults import DiskCall, DiskCounters, DiskFaults, ProcessGone
from respool.sim.disk.platter import Platter, PlatterFile

_FREE_WITHOUT_LIMIT = 10**12


class DiskProcess:
    """One opening of a platter: scheduled faults, counters, and whether the process is alive."""

    def __init__(self, platter: Platter, rng: Random, faults: DiskFaults) -> None:
        self.faults = faults
        self.counters = DiskCounters()
        self._platter = platter
        self._rng = rng
        self._gone = False

    def begin(self, call: DiskCall, path: str) -> None:
        """Start a call: raise the error that is scheduled for it."""
        self.check_alive()
        if self.faults.power_fails_at(call):
            self.end()
            self.faults.on_cut()
            raise ProcessGone(f"the power went during {call} {path}")
        self.faults.strike(call, path)

    def check_alive(self) -> None:
        if self._gone:
            raise ProcessGone("this process has ended; reopen the disk")

    def end(self) -> None:
        self._gone = True

    def take_room(self, path: str, extra: int) -> None:
        """Raise DiskFull if the disk has no space for `extra` more bytes."""
        if extra > 0 and extra > (free := self.free_bytes()):
            raise DiskFull(f"{path}: {extra} bytes wanted, {free} free")

    def free_bytes(self) -> int:
        self.check_alive()
        limit = self.faults.capacity_bytes
        if limit is None:
            return _FREE_WITHOUT_LIMIT
        return max(0, limit - sum(len(file.seen) for file in self._platter.files()))

    def total_bytes(self) -> int:
        self.check_alive()
        limit = self.faults.capacity_bytes
        return _FREE_WITHOUT_LIMIT if limit is None else limit

    def file_range(
        self, path: str, file: PlatterFile, position: int, size: int
    ) -> FileRange | None:
        """The file range at which other processes on this machine read these bytes; None if local reads are off."""
        self.check_alive()
        platter = self._platter
        if not platter.name:
            return None
        return FileRange(f"/{platter.name}/{path}", platter.power_cuts, file.number, position, size)

    def torn(self, data: bytes) -> bytes:
        """A random prefix of the data of an interrupted write."""
        return data[: self._rng.randint(0, len(data))]
