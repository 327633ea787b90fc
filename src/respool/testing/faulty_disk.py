"""A real folder with a simulated loss of power or of disk space: a `ports.disk` between the broker and `LocalDisk`.

It knows the synced length of every log file. After a power cut, all files opened before fail, and unsynced data is
truncated. That is one of the possible results of a crash on a file system with a metadata journal (ext4, xfs). Names
and small files are kept. So are the sparse indexes, which the broker does not trust after a crash. The simulator
(`respool.sim`) draws all of that at random; here a test gets the same result each time.

A sync need not wait for the real disk if only `cut_power` can lose data (`waits_for_disk`).
"""

import os
import threading
from collections.abc import Sequence

from respool.drivers.local_disk import TEMPORARY_SUFFIX, LocalDisk
from respool.model.errors import DiskFailed, DiskFull
from respool.model.file_range import FileRange
from respool.ports.disk import LogFile, MappedFile, names_of

Buffers = Sequence[bytes | bytearray | memoryview]


class PowerCut(DiskFailed):
    """The call came from a broker that has crashed."""


class _Known:
    """One log file: its present name, and how much of it survives a power cut."""

    __slots__ = ("path", "synced")

    def __init__(self, path: str, synced: int) -> None:
        self.path = path
        self.synced = synced


class FaultyDisk:
    """A `ports.disk.Disk`. Calls from several threads may be in progress at any time."""

    def __init__(self, root: str, *, waits_for_disk: bool) -> None:
        self._root = root
        self._inner = LocalDisk(root)
        self._waits_for_disk = waits_for_disk
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}
        self._has_lost_power = False
        self.is_full = False

    # For tests.

    def cut_power(self) -> None:
        """Cut the power: later syncs fail, so they make nothing durable."""
        with self._lock:
            self._has_lost_power = True

    def lose_unsynced(self) -> int:
        """Truncate log files to their synced length; return how many bytes were lost. No call may be in progress."""
        assert self._has_lost_power
        lost = 0
        for known in self._known.values():
            full = os.path.join(self._root, *names_of(known.path))
            if os.path.exists(full) and (size := os.path.getsize(full)) > known.synced:
                os.truncate(full, known.synced)
                lost += size - known.synced
        return lost

    # For open files.

    def check(self, call: str, path: str, *, takes_room: bool = False) -> None:
        if self._has_lost_power:
            raise PowerCut(f"{call} {path}: power cut")
        if takes_room and self.is_full:
            raise DiskFull(f"{call} {path}: the disk is full, as the test wants it")

    def on_synced(self, known: _Known, size: int) -> None:
        with self._lock:
            self.check("sync", known.path)
            known.synced = max(known.synced, size)

    # ports.disk

    def open_log(self, path: str, *, create: bool = True) -> LogFile:
        is_new = create and not self._inner.exists(path)
        self.check("open", path, takes_room=is_new)
        file = self._inner.open_log(path, create=create)
        with self._lock:
            # Bytes that this run has not written existed at its start, and count as synced.
            known = self._known.setdefault(path, _Known(path, file.size))
        return _TroubledLogFile(self, file, known, waits_for_disk=self._waits_for_disk)

    def map_file(self, path: str, size: int | None) -> MappedFile:
        takes_room = size is not None and not self._inner.exists(path)
        self.check("map", path, takes_room=takes_room)
        file = self._inner.map_file(path, size)
        return _TroubledMap(self, path, file, waits_for_disk=self._waits_for_disk)

    def make_folder(self, path: str) -> None:
        self.check("make folder", path, takes_room=not self._inner.exists(path))
        self._inner.make_folder(path)

    def list_folder(self, path: str) -> list[str]:
        self.check("list", path)
        return self._inner.list_folder(path)

    def exists(self, path: str) -> bool:
        return self._inner.exists(path)

    def size(self, path: str) -> int:
        return self._inner.size(path)

    def read_file(self, path: str) -> bytes | None:
        self.check("read", path)
        return self._inner.read_file(path)

    def replace_file(self, path: str, content: bytes) -> None:
        self.check("replace", path, takes_room=True)
        with self._lock:
            # It is another file from now on, and durable.
            self._known.pop(path, None)
        if self._waits_for_disk:
            self._inner.replace_file(path, content)
            return
        target = os.path.join(self._root, *names_of(path))
        try:
            with open(target + TEMPORARY_SUFFIX, "wb") as file:
                file.write(content)
            os.replace(target + TEMPORARY_SUFFIX, target)
        except OSError as error:
            raise DiskFailed(f"replace {path}: {error.strerror}") from error

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        with self._lock:
            self._inner.rename(source, target)
            self._forget(target)
            for path in self._below(source):
                known = self._known.pop(path)
                known.path = target + path.removeprefix(source)
                self._known[known.path] = known

    def delete(self, path: str) -> None:
        self.check("delete", path)
        with self._lock:
            self._inner.delete(path)
            self._forget(path)

    def sync_folder(self, path: str) -> None:
        self.check("sync folder", path)
        if self._waits_for_disk:
            self._inner.sync_folder(path)

    def free_bytes(self) -> int:
        return 0 if self.is_full else self._inner.free_bytes()

    def total_bytes(self) -> int:
        return self._inner.total_bytes()

    def _forget(self, path: str) -> None:
        for one in self._below(path):
            del self._known[one]

    def _below(self, path: str) -> list[str]:
        return [one for one in self._known if one == path or one.startswith(path + "/")]


class _TroubledLogFile:
    """A `ports.disk.LogFile`."""

    def __init__(
        self, disk: FaultyDisk, inner: LogFile, known: _Known, *, waits_for_disk: bool
    ) -> None:
        self._disk = disk
        self._inner = inner
        self._known = known
        self._waits_for_disk = waits_for_disk

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def size(self) -> int:
        return self._inner.size

    def append(self, buffers: Buffers) -> None:
        self._disk.check("append", self.path, takes_room=True)
        self._inner.append(buffers)

    def read(self, position: int, size: int, *, cached_only: bool = False) -> bytes | memoryview:
        self._disk.check("read", self.path)
        return self._inner.read(position, size, cached_only=cached_only)

    def file_range(self, position: int, size: int) -> FileRange | None:
        """Return None: a client that read the file itself would bypass the faults."""
        del position, size
        return None

    def sync(self) -> None:
        self._disk.check("sync", self.path)
        size = self._inner.size
        if self._waits_for_disk:
            self._inner.sync()
        self._disk.on_synced(self._known, size)

    def forget_cached(self) -> None:
        self._disk.check("forget", self.path)
        self._inner.forget_cached()

    def truncate(self, size: int) -> None:
        self._disk.check("truncate", self.path)
        self._inner.truncate(size)
        self._known.synced = min(self._known.synced, size)

    def close(self) -> None:
        self._inner.close()


class _TroubledMap:
    """A `ports.disk.MappedFile`."""

    def __init__(
        self, disk: FaultyDisk, path: str, inner: MappedFile, *, waits_for_disk: bool
    ) -> None:
        self._disk = disk
        self._path = path
        self._inner = inner
        self._waits_for_disk = waits_for_disk

    @property
    def buffer(self) -> memoryview:
        return self._inner.buffer

    def sync(self) -> None:
        self._disk.check("sync", self._path)
        if self._waits_for_disk:
            self._inner.sync()

    def resize(self, size: int) -> None:
        takes_room = size > self._inner.buffer.nbytes
        self._disk.check("resize", self._path, takes_room=takes_room)
        self._inner.resize(size)

    def close(self) -> None:
        self._inner.close()
