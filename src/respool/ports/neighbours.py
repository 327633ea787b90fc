"""Other processes on the same machine: they may read each other's files, instead of having bytes sent."""

from collections.abc import Callable
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

    def borrow(self, place: FilePlace) -> Callable[[], memoryview]:
        """Make room for what a neighbour lends. The call that is returned reads it, from any thread: it blocks.

        Raises:
            NotLent: by that call; it is not to be had from there.
        """
        ...
