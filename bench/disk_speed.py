"""What the disk takes from one process that has nothing else to do: nobody who has to sync writes faster."""

import os
import time

from bench.broker_process import BENCH_FOLDER
from bench.scale import MB
from bench.warm_memory import WarmMemory


def disk_bytes_per_s(size: int, memory: WarmMemory) -> float:
    """Written and synced, in memory that is there as it is for a broker."""
    path = BENCH_FOLDER / "disk-speed"
    chunk = os.urandom(MB)
    try:
        memory.refill()
        with path.open("wb", buffering=0) as file, memory.released_during(file.tell):
            began = time.perf_counter()
            for _ in range(size // MB):
                file.write(chunk)
            os.fsync(file.fileno())
            taken = time.perf_counter() - began
        return size // MB * MB / taken
    finally:
        path.unlink(missing_ok=True)
