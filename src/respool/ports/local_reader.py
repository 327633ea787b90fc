"""Local reads: reading file ranges that another broker on this host names, instead of receiving the bytes."""

from typing import Protocol

from respool.model.file_range import FileRange


class LocalReader(Protocol):
    @property
    def host(self) -> str:
        """An id that all processes of this host share, and no others."""
        ...

    @property
    def local_read_bytes_min(self) -> int:
        """Smaller ranges are sent over the connection: that costs no more than opening a file."""
        ...

    async def read(self, file_range: FileRange) -> memoryview:
        """Read the range, off the event loop.

        Raises:
            LocalReadFailed: the range cannot be read; fetch the bytes instead.
        """
        ...
