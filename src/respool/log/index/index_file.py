"""Fixed-size entries in a memory-mapped file, filled from the front: what both indexes stand on.

The file is longer than its entries while it is being filled, and trimmed when its segment is done. It grows by doubling
up to `bytes_max`: a whole index reserved at once would cost every idle partition 20 MB, and left as a hole in the file
it would end the process the moment the disk is full, for a write to mapped memory cannot fail any other way.

One thread writes; others may read meanwhile. A reader takes `buffer` once and looks at entries below `count` only.
Resizing puts a new mapping in place and leaves the old one to its last reader, and the file never becomes shorter than
its entries: touching what was cut off a mapped file ends the process too. Readers never write, and never resize.
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
        # None: only in memory, or opened for reading.
        self._mapped: MappedFile | None = None
        self.buffer = memoryview(b"")
        self.entry_bytes = entry_bytes
        # Entries in use. Invariant: count * entry_bytes <= len(buffer).
        self.count = count

    @classmethod
    def create(cls, disk: Disk, path: str, *, entry_bytes: int, bytes_max: int) -> "IndexFile":
        """Begin an index without entries; what the file held before is gone.

        Raises:
            DiskFull: there is no room for its first entries.
        """
        file = cls(disk, path, entry_bytes=entry_bytes, bytes_max=bytes_max)
        # Not cut, but another file: somebody may still look at the old one.
        disk.delete(path)
        file._map(file._rounded(0))
        return file

    @classmethod
    def open(cls, disk: Disk, path: str, *, entry_bytes: int, bytes_max: int) -> "IndexFile | None":
        """Open a trimmed index for reading; None when it is missing or has half an entry."""
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
        # The view keeps the memory mapped; nothing else of the file is needed.
        file.buffer = buffer
        return file

    @classmethod
    def in_memory(cls, disk: Disk, path: str, *, entry_bytes: int, bytes_max: int) -> "IndexFile":
        """Begin an index that is not written to its file until `save`."""
        return cls(disk, path, entry_bytes=entry_bytes, bytes_max=bytes_max)

    @property
    def entries_max(self) -> int:
        return self._bytes_max // self.entry_bytes

    def make_writable(self) -> None:
        """Go on filling a file that was opened for reading."""
        self._map(len(self.buffer))

    def make_room(self, entries: int) -> None:
        """Let so many entries more fit.

        Raises:
            DiskFull: the file cannot grow; it is as it was.
        """
        size = len(self.buffer)
        needed = (self.count + entries) * self.entry_bytes
        if needed > size:
            # Beyond the limit only where the settings were made smaller meanwhile.
            self._resize(max(needed, self._rounded(2 * size)))

    def truncate(self, count: int) -> None:
        """Forget the entries from `count` on."""
        assert count <= self.count
        unused = slice(count * self.entry_bytes, self.count * self.entry_bytes)
        self.count = count
        self.buffer[unused] = bytes(unused.stop - unused.start)

    def trim(self) -> None:
        """Make the file as long as its entries."""
        if len(self.buffer) != self.count * self.entry_bytes:
            self._resize(self.count * self.entry_bytes)

    def save(self) -> None:
        """Write an index that was made in memory to its file."""
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
