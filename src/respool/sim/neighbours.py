"""Brokers that read each other's disks, as if all ran on one machine: `ports.neighbours`."""

from collections.abc import Callable

from respool.model.file_place import FilePlace, NotLent
from respool.sim.disk import SimDisk


class SimNeighbours:
    host = "the one machine"
    # Logs are small here.
    lent_bytes_min = 1

    def __init__(self) -> None:
        self._disks: dict[str, Callable[[], SimDisk]] = {}
        self.reads = 0
        self.failed_reads = 0

    def add(self, name: str, disk: Callable[[], SimDisk]) -> None:
        """`disk` tells which one it has now: each process has its own view."""
        self._disks[name] = disk

    def borrow(self, place: FilePlace) -> Callable[[], memoryview]:
        name, _, _ = place.path.removeprefix("/").partition("/")

        def read() -> memoryview:
            try:
                data = self._disks[name]().lent(place)
            except NotLent:
                self.failed_reads += 1
                raise
            self.reads += 1
            return memoryview(data)

        return read
