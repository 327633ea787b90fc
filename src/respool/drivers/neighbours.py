"""The processes under this machine's kernel: `ports.neighbours`."""

from collections.abc import Callable

from respool.drivers.allocator import uncleared
from respool.model.file_place import FilePlace
from respool.neighbours.lent_file import read_lent

LENT_BYTES_MIN = 64 * 1024


class LocalNeighbours:
    lent_bytes_min = LENT_BYTES_MIN

    def __init__(self, host: str) -> None:
        self.host = host

    def borrow(self, place: FilePlace) -> Callable[[], memoryview]:
        # In the loop's thread: what is freed in another's memory is not kept for the next.
        target = memoryview(uncleared(place.size))

        def read() -> memoryview:
            read_lent(place, target)
            return target.toreadonly()

        return read
