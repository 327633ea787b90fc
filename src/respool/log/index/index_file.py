"""An append-only array of fixed-size entries in a memory-mapped file: the base of both indexes.

The file is longer than its entries while it is filled, and trimmed when its segment is finished. It grows by doubling
up to `bytes_max`: reserving the whole index would cost every idle partition 20 MB, and a sparse file would kill the
process when the disk is full, because a write to mapped memory cannot fail otherwise.

One thread writes; others may read at the same time. A reader takes `buffer` once and reads only entries below `count`.
A resize creates a new mapping and leaves the old one to its readers, and the file never becomes shorter than its
entries: reading a truncated part of a mapping kills the process too. Readers neither write nor resize.
"""

from respool.model.errors import DiskFailed
from respool.ports.disk import Disk, MappedFile

FIRST_BYTES = 4096


class IndexFile:
    __slots__ = ("_bytes_max", "_disk", "_mapped", "_path", "buffer", "count", "entry_bytes")

    def __init__(
        self, disk: Disk, path: str, *, entry_bytes: int, bytes_max: int, count: int = 0
    ) -> None:
        """Use `create`, `open` or `in_memory`."""
        self._disk = disk
        self._path = path
        self._bytes_max = bytes_max
        # None: in memory only, or opened for reading.
        self._mapped: MappedFile | None = None
        self.buffer = memoryview(b"")
        self.entry_bytes = entry_bytes
        # Entries in use. Invariant: count * entry_bytes <= len(buffer).
        self.count = count

    @classmethod
    def create(cls, disk: Disk, path: str, *, entry_bytes: int, bytes_max: int) -> "IndexFile":
        """Create an index without entries; an existing file is replaced.

        Raises:
            DiskFull: there is no space for its first entries.
        """
        file = cls(disk, path, entry_bytes=entry_bytes, bytes_max=bytes_max)
        # A new file instead of a truncated one: the old one may still have readers.
        disk.delete(path)
        file._map(file._rounded(0))
        return file

    @classmethod
    def open(cls, disk: Disk, path: str, *, entry_bytes: int, bytes_max: int) -> "IndexFile | None":
        """Open a trimmed index for reading; None if it is missing or its size is not a multiple of the entry size."""
        try:
            buffer = disk.map_file(path, None).buffer
        except DiskFailed:
            if disk.exists(path):
                raise
            return None
        count, rest = divmod(len(buffer), entry_bytes)
        if rest:
            return None
        file = cls(disk, path, entry_bytes=entry_bytes, bytes_max=bytes_max, count=count)
        # The view keeps the memory mapped; the file itself is no longer needed.
        file.buffer = buffer
        return file

    @classmethod
    def in_memory(cls, disk: Disk, path: str, *, entry_bytes: int, bytes_max: int) -> "IndexFile":
        """Create an index that exists in memory only until `save`."""
        return cls(disk, path, entry_bytes=entry_bytes, bytes_max=bytes_max)

    @property
    def entries_max(self) -> int:
        return self._bytes_max // self.entry_bytes

    def make_writable(self) -> None:
        """Continue to fill a file that was opened for reading."""
        self._map(len(self.buffer))

    def make_room(self, entries: int) -> None:
        """Make space for this number of entries.

        Raises:
            DiskFull: the file cannot grow; it is unchanged.
        """
        size = len(self.buffer)
        needed = (self.count + entries) * self.entry_bytes
        if needed > size:
            # Beyond the limit only if the setting was lowered meanwhile.
            self._resize(max(needed, self._rounded(2 * size)))

    def truncate(self, count: int) -> None:
        """Remove the entries from `count` on."""
        assert count <= self.count
        unused = slice(count * self.entry_bytes, self.count * self.entry_bytes)
        self.count = count
        self.buffer[unused] = bytes(unused.stop - unused.start)

    def trim(self) -> None:
        """Shorten the file to its entries."""
        if len(self.buffer) != self.count * self.entry_bytes:
            self._resize(self.count * self.entry_bytes)

    def save(self) -> None:
        """Write an in-memory index to its file."""
        self._disk.replace_file(self._path, bytes(self.buffer[: self.count * self.entry_bytes]))

    def sync(self) -> None:
        if self._mapped is not None:
            self._mapped.sync()

    def _rounded(self, size: int) -> int:
        size = min(max(size, FIRST_BYTES), self._bytes_max)
        return size - size % self.entry_bytes

    def _resize(self, size: int) -> None:
        if self._mapped is not None:
            self._map(size)
        else:
            memory = bytearray(self.buffer[:size])
            self.buffer = memoryview(memory + bytes(size - len(memory)))

    def _map(self, size: int) -> None:
        mapped = self._disk.map_file(self._path, size)
        self._mapped, self.buffer = mapped, mapped.buffer
