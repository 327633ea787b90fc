"""Brokers that read each other's disks, as if all ran on one machine: `ports.neighbours`."""

import asyncio
from collections.abc import Callable
from random import Random

from respool.model.file_place import FilePlace, NotLent
from respool.sim.simulated_disk import SimDisk


class SimNeighbours:
    host = "the one machine"
    # Logs are small here.
    lent_bytes_min = 1

    def __init__(self, rng: Random | None = None) -> None:
        """A read takes a random while, in which much may happen to the file; at once without."""
        self._rng = rng
        self._disks: dict[str, Callable[[], SimDisk]] = {}
        self.reads = 0
        self.failed_reads = 0

    def add(self, name: str, disk: Callable[[], SimDisk]) -> None:
        """`disk` tells which one it has now: each process has its own view."""
        self._disks[name] = disk

    async def read(self, place: FilePlace) -> memoryview:
        name, _, _ = place.path.removeprefix("/").partition("/")
        if self._rng is not None:
            await asyncio.sleep(self._rng.choice((0.0, 0.001, 0.05)))
        try:
            data = self._disks[name]().lent(place)
        except NotLent:
            self.failed_reads += 1
            raise
        self.reads += 1
        return memoryview(data)
