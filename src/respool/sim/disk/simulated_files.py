"""The open files of a simulated disk: `ports.disk.LogFile` and `MappedFile`."""

from collections.abc import Sequence

from respool.model.errors import DiskFailed
from respool.model.file_range import FileRange
from respool.ports.disk import NotCached
from respool.sim.disk.disk_faults import ProcessGone
from respool.sim.disk.disk_process import DiskProcess
from respool.sim.disk.platter import PlatterFile


class SimLogFile:
    """A `LogFile` on a `SimDisk`. It can still read its file after the file was deleted, as on a real disk."""

    def __init__(self, process: DiskProcess, path: str, file: PlatterFile) -> None:
        self._process = process
        self._path = path
        self._file = file
        self._closed = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return len(self._file.seen)

    def append(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        self._check_open("append")
        data = b"".join(buffers)
        try:
            self._process.begin("append", self._path)
        except ProcessGone:
            self._file.append(self._process.torn(data))
            raise
        self._process.take_room(self._path, len(data))
        self._file.append(data)
        self._process.counters.appends += 1
        self._process.counters.appended_bytes += len(data)

    def read(self, position: int, size: int, *, cached_only: bool = False) -> bytes:
        assert position >= 0
        assert size >= 0
        self._check_open("read")
        self._process.begin("read", self._path)
        end = min(position + size, len(self._file.seen))
        if cached_only and self._file.is_cold(position, end):
            raise NotCached(f"{self._path}: {size} bytes at {position}")
        self._file.warm(position, end)
        data = bytes(self._file.seen[position:end])
        self._process.counters.reads += 1
        self._process.counters.bytes_read += len(data)
        return data

    def file_range(self, position: int, size: int) -> FileRange | None:
        """None if local reads are off."""
        return self._process.file_range(self._path, self._file, position, size)

    def sync(self) -> None:
        self._check_open("sync")
        self._process.counters.syncs += 1
        _sync(self._process, self._path, self._file)

    def forget_cached(self) -> None:
        self._check_open("forget")
        self._file.evict()

    def truncate(self, size: int) -> None:
        assert 0 <= size <= self.size, f"truncate to {size}, the file has {self.size} bytes"
        self._check_open("truncate")
        self._process.begin("truncate", self._path)
        self._file.resize(size)

    def close(self) -> None:
        self._closed = True

    def _check_open(self, call: str) -> None:
        if self._closed:
            raise DiskFailed(f"{call} {self._path}: the file is closed")


class SimMappedFile:
    """A `MappedFile` on a `SimDisk`."""

    def __init__(self, process: DiskProcess, path: str, file: PlatterFile) -> None:
        self._process = process
        self._path = path
        self._file = file
        self._view: memoryview | None = memoryview(file.seen)

    @property
    def buffer(self) -> memoryview:
        self._process.check_alive()
        return self._open_view()

    def sync(self) -> None:
        self._open_view()
        self._process.counters.map_syncs += 1
        _sync(self._process, self._path, self._file)

    def resize(self, size: int) -> None:
        view = self._open_view()
        self._process.begin("resize", self._path)
        self._process.take_room(self._path, size - len(self._file.seen))
        view.release()
        self._file.resize(size)
        self._view = memoryview(self._file.seen)

    def close(self) -> None:
        if self._view is not None:
            self._view.release()
            self._view = None

    def _open_view(self) -> memoryview:
        if self._view is None:
            raise DiskFailed(f"{self._path}: the file is closed")
        return self._view


def _sync(process: DiskProcess, path: str, file: PlatterFile) -> None:
    try:
        process.begin("sync", path)
    except DiskFailed:
        # The file stays usable, and its next sync succeeds: code that takes this for durability loses data here.
        file.fail_sync()
        raise
    file.sync()
