"""The processes under this machine's kernel: `ports.neighbours`."""

from respool.drivers.allocator import uncleared
from respool.drivers.thread_offload import ThreadOffload
from respool.model.file_place import FilePlace, NotLent
from respool.neighbours.lent_file import read_lent

LENT_BYTES_MIN = 64 * 1024
THREADS = 2


class LocalNeighbours:
    lent_bytes_min = LENT_BYTES_MIN

    def __init__(self, host: str) -> None:
        self.host = host
        # Of their own: behind those that sync, a read of a millisecond would wait for what takes many.
        self._threads = ThreadOffload(THREADS)

    async def read(self, place: FilePlace) -> memoryview:
        # Taken in the loop's thread: memory that another one takes is not kept for the next.
        try:
            target = memoryview(uncleared(place.size))
        except MemoryError as error:
            raise NotLent(f"no memory for {place.size} bytes") from error
        await self._threads.run(lambda: read_lent(place, target))
        return target.toreadonly()

    def close(self) -> None:
        """Return when no read is under way."""
        self._threads.close()
