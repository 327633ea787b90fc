"""The process that has a simulated disk open: every call passes here, and here the faults strike."""

from random import Random

from respool.model.errors import DiskFull
from respool.model.file_range import FileRange
from respool.sim.disk.disk_faults import DiskCall, DiskCounters, DiskFaults, ProcessGone
from respool.sim.disk.platter import Platter, PlatterFile

_FREE_WITHOUT_LIMIT = 10**12


class DiskProcess:
    """One opening of a platter: ordered faults, counters, and whether the process still lives."""

    def __init__(self, platter: Platter, rng: Random, faults: DiskFaults) -> None:
        self.faults = faults
        self.counters = DiskCounters()
        self._platter = platter
        self._rng = rng
        self._gone = False

    def begin(self, call: DiskCall, path: str) -> None:
        """The door of every call: raise what was ordered for it."""
        self.check_alive()
        if self.faults.is_cut(call):
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
        """Raise DiskFull when the disk has no room for so many bytes more."""
        if extra > 0 and extra > (free := self.free_bytes()):
            raise DiskFull(f"{path}: {extra} bytes wanted, {free} free")

    def free_bytes(self) -> int:
        self.check_alive()
        limit = self.faults.capacity_bytes
        if limit is None:
            return _FREE_WITHOUT_LIMIT
        return max(0, limit - sum(len(file.seen) for file in self._platter.files()))

    def file_range(
        self, path: str, file: PlatterFile, position: int, size: int
    ) -> FileRange | None:
        """Where neighbours find these bytes; None where there are none."""
        self.check_alive()
        platter = self._platter
        if not platter.name:
            return None
        return FileRange(f"/{platter.name}/{path}", platter.power_cuts, file.number, position, size)

    def torn(self, data: bytes) -> bytes:
        """As much of an interrupted write as got through."""
        return data[: self._rng.randint(0, len(data))]
