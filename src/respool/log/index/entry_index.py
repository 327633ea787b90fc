"""One segment's sparse index of either kind: how it is created and opened."""

from typing import ClassVar, Self

from respool.log.index.index_file import IndexFile
from respool.model.ids import Offset
from respool.ports.disk import Disk


class EntryIndex:
    """The base of `OffsetIndex` and `TimeIndex`."""

    __slots__ = ("_base_offset", "_file")

    entry_bytes: ClassVar[int]

    def __init__(self, file: IndexFile, base_offset: Offset) -> None:
        self._file = file
        self._base_offset = base_offset

    @classmethod
    def create(cls, disk: Disk, path: str, *, base_offset: Offset, bytes_max: int) -> Self:
        """Create an index without entries in a new file."""
        file = IndexFile.create(disk, path, entry_bytes=cls.entry_bytes, bytes_max=bytes_max)
        return cls(file, base_offset)

    @classmethod
    def in_memory(cls, disk: Disk, path: str, *, base_offset: Offset, bytes_max: int) -> Self:
        """Create an index without entries and, until saved, without a file."""
        file = IndexFile.in_memory(disk, path, entry_bytes=cls.entry_bytes, bytes_max=bytes_max)
        return cls(file, base_offset)

    @classmethod
    def open(cls, disk: Disk, path: str, *, base_offset: Offset, bytes_max: int) -> Self | None:
        """Open the index for reading; None if it is missing or malformed."""
        file = IndexFile.open(disk, path, entry_bytes=cls.entry_bytes, bytes_max=bytes_max)
        return cls(file, base_offset) if file is not None else None

    @property
    def file(self) -> IndexFile:
        return self._file
