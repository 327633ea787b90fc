"""`ports.local_reader` for simulated brokers that read each other's disks, as if all ran on one host."""

import asyncio
from collections.abc import Callable
from random import Random

from respool.model.file_range import FileRange, LocalReadFailed
from respool.sim.disk.simulated_disk import SimDisk


class SimLocalReader:
    host = "the one machine"
    # Logs are small here, so every size is read locally.
    local_read_bytes_min = 1

    def __init__(self, rng: Random | None = None) -> None:
        """With `rng`, a read takes a random time, during which the file may change; without it, no time."""
        self._rng = rng
        self._disks: dict[str, Callable[[], SimDisk]] = {}
        self.reads = 0
        self.failed_reads = 0

    def add(self, name: str, disk: Callable[[], SimDisk]) -> None:
        """`disk` returns the disk that the machine's current process has open."""
        self._disks[name] = disk

    async def read(self, file_range: FileRange) -> memoryview:
        name, _, _ = file_range.path.removeprefix("/").partition("/")
        if self._rng is not None:
            await asyncio.sleep(self._rng.choice((0.0, 0.001, 0.05)))
        try:
            data = self._disks[name]().local_read(file_range)
        except LocalReadFailed:
            self.failed_reads += 1
            raise
        self.reads += 1
        return memoryview(data)
