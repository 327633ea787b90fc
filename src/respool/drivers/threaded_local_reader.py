"""`ports.local_reader`, by reads in threads."""

from respool.drivers.allocator import uncleared
from respool.drivers.thread_offload import ThreadOffload
from respool.local_reads.local_file_read import read_file_range
from respool.model.file_range import FileRange, LocalReadFailed

LOCAL_READ_BYTES_MIN = 64 * 1024
THREADS = 2


class ThreadedLocalReader:
    local_read_bytes_min = LOCAL_READ_BYTES_MIN

    def __init__(self, host: str) -> None:
        self.host = host
        # Not the threads that sync: a read of one millisecond would queue behind syncs that take many.
        self._threads = ThreadOffload(THREADS)

    async def read(self, file_range: FileRange) -> memoryview:
        # Allocated in the loop's thread: the allocator does not reuse memory that other threads allocate.
        try:
            target = memoryview(uncleared(file_range.size))
        except MemoryError as error:
            raise LocalReadFailed(f"no memory for {file_range.size} bytes") from error
        await self._threads.run(lambda: read_file_range(file_range, target))
        return target.toreadonly()

    def close(self) -> None:
        """Return when no read is in flight."""
        self._threads.close()
