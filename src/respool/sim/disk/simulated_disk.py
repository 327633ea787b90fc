"""A disk in memory that forgets unsynced data: `ports.disk` for tests and for the simulator.

    disk = SimDisk(Random(seed))
    ...                              # the code under test appends, syncs, renames
    disk.crash()                     # power cut: unsynced bytes and names are lost or kept at random
    disk = disk.reopen()             # what the next process finds

`kill()` is `kill -9`: the process dies, the page cache stays, and no written data is lost. Every file that was opened
before raises ProcessGone from then on. The same seed and the same calls produce the same disk.
"""

import asyncio
from collections.abc import Callable
from random import Random

from respool.model.errors import DiskFailed
from respool.model.file_range import FileRange, LocalReadFailed
from respool.ports.disk import names_of
from respool.sim.disk.disk_faults import DiskCounters, DiskFaults, ProcessGone
from respool.sim.disk.disk_process import DiskProcess
from respool.sim.disk.platter import Place, Platter, PlatterFile, PlatterFolder
from respool.sim.disk.simulated_files import SimLogFile, SimMappedFile

_TO_THE_END = 2**63


class SimDisk:
    """One data folder, as one process uses it."""

    def __init__(
        self,
        rng: Random,
        *,
        capacity_bytes: int | None = None,
        name: str = "",
        platter: Platter | None = None,
    ) -> None:
        """`name`: the disk's name in file ranges, for local reads; empty: no local reads."""
        self._rng = rng
        self._platter = platter or Platter(name=name)
        self._process = DiskProcess(self._platter, rng, DiskFaults(capacity_bytes=capacity_bytes))

    @property
    def faults(self) -> DiskFaults:
        """The faults of this disk; schedule them here."""
        return self._process.faults

    @property
    def counters(self) -> DiskCounters:
        return self._process.counters

    @property
    def used_bytes(self) -> int:
        """Bytes of file content, synced or not."""
        return sum(len(file.seen) for file in self._platter.files())

    @property
    def unsynced_bytes(self) -> int:
        """By how much files are longer than what a power cut certainly keeps."""
        return sum(max(0, len(file.seen) - len(file.stored)) for file in self._platter.files())

    # -- for tests -------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Cut the power: unsynced data is lost or kept at random. Also allowed after a fault has ended the process."""
        self._process.end()
        self._platter.cut_power(self._rng)

    def kill(self) -> None:
        """End the process and keep all it wrote. A later power cut may still lose what it did not sync."""
        self._process.end()

    def reopen(self) -> "SimDisk":
        """Return the disk that the next process finds. Ends this process, unless `crash` or `kill` did.

        All faults are cancelled, except the capacity limit.
        """
        self._process.end()
        return SimDisk(self._rng, capacity_bytes=self.faults.capacity_bytes, platter=self._platter)

    def corrupt(self, path: str, position: int, *, mask: int = 0x01) -> None:
        """Flip bits of one stored byte, as a decaying disk would."""
        file = self._file(path)
        assert position < len(file.seen), f"{path} has {len(file.seen)} bytes, none at {position}"
        file.corrupt(position, mask)

    def local_read(self, file_range: FileRange) -> bytes:
        """Read the file range as another process does, also after the process that returned the range has died.

        Raises:
            LocalReadFailed: the file is gone, or the power failed: a reader on the same machine loses power too.
        """
        node: PlatterFile | PlatterFolder | None = self._platter.root
        for name in names_of(file_range.path.removeprefix(f"/{self._platter.name}/")):
            node = node.seen.get(name) if isinstance(node, PlatterFolder) else None
        if not isinstance(node, PlatterFile) or node.number != file_range.inode:
            raise LocalReadFailed(f"{file_range.path} is gone")
        end = file_range.position + file_range.size
        if end > len(node.seen) or self._platter.power_cuts != file_range.device:
            raise LocalReadFailed(f"{file_range.path} has {len(node.seen)} bytes")
        data = bytes(node.seen[file_range.position : end])
        if not data.startswith(file_range.head):
            raise LocalReadFailed(f"{file_range.path} has other bytes there")
        return data

    def make_cold(self, path: str, start: int = 0, end: int = _TO_THE_END) -> None:
        """Evict a part of a file from the page cache: its `cached_only` reads fail until a plain read loads it."""
        self._file(path).make_cold(start, end)

    def drop_cache(self) -> None:
        """Evict all clean pages from the page cache, including those that failed syncs did not write."""
        for file in self._platter.files():
            file.evict()

    # -- ports.disk ------------------------------------------------------------------------------------------------

    def open_log(self, path: str, *, create: bool = True) -> SimLogFile:
        self._process.begin("open", path)
        file = self._find(path)
        if file is None:
            if not create:
                raise DiskFailed(f"open {path}: no such file")
            file = PlatterFile()
            self._platter.create(self._file_range(path), file)
        if not isinstance(file, PlatterFile):
            raise DiskFailed(f"open {path}: it is a folder")
        return SimLogFile(self._process, path, file)

    def map_file(self, path: str, size: int | None) -> SimMappedFile:
        self._process.begin("map", path)
        node = self._find(path)
        if isinstance(node, PlatterFolder):
            raise DiskFailed(f"map {path}: it is a folder")
        if node is None and size is None:
            raise DiskFailed(f"map {path}: no such file")
        file = node or PlatterFile()
        size = len(file.seen) if size is None else size
        self._process.take_room(path, size - len(file.seen))
        if node is None:
            self._platter.create(self._file_range(path), file)
        if size != len(file.seen):
            file.resize(size)
        file.map()
        return SimMappedFile(self._process, path, file)

    def make_folder(self, path: str) -> None:
        self._process.begin("make_folder", path)
        folder = self._platter.root
        for name in names_of(path):
            node = folder.seen.get(name)
            if node is None:
                node = PlatterFolder()
                self._platter.create((folder, name), node)
            if not isinstance(node, PlatterFolder):
                raise DiskFailed(f"make folder {path}: {name} is a file")
            folder = node

    def list_folder(self, path: str) -> list[str]:
        node = self._find(path)
        if node is None:
            return []
        if not isinstance(node, PlatterFolder):
            raise DiskFailed(f"list {path}: not a folder")
        return sorted(node.seen)

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def size(self, path: str) -> int:
        return len(self._file(path).seen)

    def read_file(self, path: str) -> bytes | None:
        self._process.begin("read", path)
        if self._find(path) is None:
            return None
        content = bytes(self._file(path).seen)
        self.counters.small_files_read += 1
        self.counters.small_file_bytes_read += len(content)
        return content

    def replace_file(self, path: str, content: bytes) -> None:
        file_range = self._file_range(path)
        if isinstance(self._find(path), PlatterFolder):
            raise DiskFailed(f"replace {path}: it is a folder")
        try:
            self._process.begin("replace", path)
        except ProcessGone:
            # Interrupted: the temporary file is left behind, partly written.
            part = PlatterFile(self._process.torn(content))
            self._platter.create((file_range[0], file_range[1] + ".tmp"), part)
            raise
        # The old and the new content both take space for a moment.
        self._process.take_room(path, len(content))
        self._platter.create(file_range, PlatterFile(content, synced=True))
        self._platter.sync_folder(file_range[0])
        self.counters.replaced_files += 1

    def rename(self, source: str, target: str) -> None:
        self._process.begin("rename", source)
        node, old = self._find(source), self._find(target)
        if node is None:
            raise DiskFailed(f"rename {source} to {target}: no such file")
        if old is node:
            return
        if isinstance(old, PlatterFolder) and (old.seen or isinstance(node, PlatterFile)):
            raise DiskFailed(f"rename {source} to {target}: there is a folder of that name")
        if isinstance(old, PlatterFile) and isinstance(node, PlatterFolder):
            raise DiskFailed(f"rename {source} to {target}: there is a file of that name")
        self._platter.rename(self._file_range(source), self._file_range(target))

    def delete(self, path: str) -> None:
        self._process.begin("delete", path)
        if self._find(path) is not None:
            self._platter.delete(self._file_range(path))

    def sync_folder(self, path: str) -> None:
        self._process.begin("sync_folder", path)
        folder = self._find(path)
        if not isinstance(folder, PlatterFolder):
            raise DiskFailed(f"sync folder {path}: no such folder")
        self._platter.sync_folder(folder)
        self.counters.folder_syncs += 1

    def free_bytes(self) -> int:
        return self._process.free_bytes()

    def total_bytes(self) -> int:
        return self._process.total_bytes()

    def _find(self, path: str) -> PlatterFile | PlatterFolder | None:
        self._process.check_alive()
        node: PlatterFile | PlatterFolder = self._platter.root
        for name in names_of(path):
            if not isinstance(node, PlatterFolder) or name not in node.seen:
                return None
            node = node.seen[name]
        return node

    def _file(self, path: str) -> PlatterFile:
        node = self._find(path)
        if not isinstance(node, PlatterFile):
            raise DiskFailed(f"{path}: no such file")
        return node

    def _file_range(self, path: str) -> Place:
        assert names_of(path), "the data folder itself is not made, renamed or deleted"
        folder, _, name = path.rpartition("/")
        node = self._find(folder)
        if not isinstance(node, PlatterFolder):
            raise DiskFailed(f"{path}: no such folder")
        return node, name


class SimLocalReader:
    """`ports.local_reader` for simulated brokers that read each other's disks, as if all ran on one host."""

    host = "the one machine"
    # Logs are small here, so every size is read locally.
    local_read_bytes_min = 1

    def __init__(self, rng: Random | None = None) -> None:
        """With `rng`, a read takes a random time, during which the file may change; without it, no time."""
        self._rng = rng
        self._disks: dict[str, Callable[[], SimDisk]] = {}
        self.reads = 0
        self.failed_reads = 0

    def add(self, name: str, disk: Callable[[], SimDisk]) -> None:
        """`disk` returns the disk that the machine's current process has open."""
        self._disks[name] = disk

    async def read(self, file_range: FileRange) -> memoryview:
        name, _, _ = file_range.path.removeprefix("/").partition("/")
        if self._rng is not None:
            await asyncio.sleep(self._rng.choice((0.0, 0.001, 0.05)))
        try:
            data = self._disks[name]().local_read(file_range)
        except LocalReadFailed:
            self.failed_reads += 1
            raise
        self.reads += 1
        return memoryview(data)
