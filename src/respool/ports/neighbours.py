"""Other processes on the same machine: they may read each other's files, instead of having bytes sent."""

from typing import Protocol

from respool.model.file_place import FilePlace


class Neighbours(Protocol):
    @property
    def host(self) -> str:
        """What this machine is called, by all processes on it and no others."""
        ...

    @property
    def lent_bytes_min(self) -> int:
        """Less is sent: that costs no more than to open a file."""
        ...

    async def read(self, place: FilePlace) -> memoryview:
        """What a neighbour lends, read beside the loop.

        Raises:
            NotLent: it is not to be had from there.
        """
        ...
