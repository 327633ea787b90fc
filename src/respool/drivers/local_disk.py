"""`ports.disk` on a POSIX file system, below one folder, and `ports.local_reader` of other brokers' files.

Syncing a folder makes its names durable, syncing a file its content; only `replace_file` syncs by itself, as
documented. Open files are in `local_files.py`.
"""

import os
import shutil
import stat
from contextlib import suppress

from respool.drivers.allocator import uncleared
from respool.drivers.local_files import (
    FILE_MODE,
    CachedReads,
    LocalLogFile,
    LocalMappedFile,
    failure,
    sync_folder,
    write_all,
)
from respool.drivers.read_ahead import Descriptor, ReadAhead
from respool.drivers.system_calls import sync_file
from respool.drivers.thread_offload import ThreadOffload
from respool.local_reads.local_file_read import read_file_range
from respool.model.errors import DiskFailed
from respool.model.file_range import FileRange, LocalReadFailed
from respool.ports.disk import names_of

FOLDER_MODE = 0o750
TEMPORARY_SUFFIX = ".tmp"
LOCAL_READ_BYTES_MIN = 64 * 1024
THREADS = 2


class LocalDisk:
    """The files below `root`, which is created if missing."""

    def __init__(self, root: str) -> None:
        # Absolute, so that a change of the working directory has no effect.
        self._root = os.path.abspath(root)
        self._cached_reads = CachedReads()
        self._ahead = ReadAhead()
        try:
            os.makedirs(self._root, mode=FOLDER_MODE, exist_ok=True)
        except OSError as error:
            raise failure("make folder", self._root, error) from error

    def open_log(self, path: str, *, create: bool = True) -> LocalLogFile:
        try:
            descriptor = self._open(path, create=create)
            size = os.fstat(descriptor.fd).st_size
        except OSError as error:
            raise failure("open", path, error, is_opening=True) from error
        return LocalLogFile(
            path,
            descriptor,
            size,
            root=self._root,
            cached_reads=self._cached_reads,
            ahead=self._ahead,
        )

    def map_file(self, path: str, size: int | None) -> LocalMappedFile:
        existed = self.exists(path)
        try:
            return LocalMappedFile(path, self._open(path, create=size is not None), size)
        except OSError as error:
            if not existed:
                with suppress(OSError):
                    os.unlink(self._full(path))
            raise failure("map", path, error, is_opening=True) from error

    def make_folder(self, path: str) -> None:
        try:
            os.makedirs(self._full(path), mode=FOLDER_MODE, exist_ok=True)
        except OSError as error:
            raise failure("make folder", path, error) from error

    def list_folder(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._full(path)))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise failure("list", path, error, is_opening=True) from error

    def exists(self, path: str) -> bool:
        return os.path.exists(self._full(path))

    def size(self, path: str) -> int:
        try:
            status = os.stat(self._full(path))
        except OSError as error:
            raise failure("size of", path, error) from error
        if not stat.S_ISREG(status.st_mode):
            raise DiskFailed(f"size of {path}: not a file")
        return status.st_size

    def read_file(self, path: str) -> bytes | None:
        try:
            with open(self._full(path), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise failure("read", path, error, is_opening=True) from error

    def replace_file(self, path: str, content: bytes) -> None:
        target = self._full(path)
        # A temporary file left by a crash is overwritten; its suffix is ignored when a folder is listed.
        temporary = target + TEMPORARY_SUFFIX
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            descriptor = Descriptor(os.open(temporary, flags, FILE_MODE))
            write_all(descriptor.fd, [content], position=0)
            sync_file(descriptor.fd)
            os.rename(temporary, target)
            sync_folder(os.path.dirname(target))
        except OSError as error:
            with suppress(OSError):
                os.unlink(temporary)
            raise failure("replace", path, error) from error

    def rename(self, source: str, target: str) -> None:
        try:
            os.rename(self._full(source), self._full(target))
        except OSError as error:
            raise failure("rename", f"{source} to {target}", error) from error

    def delete(self, path: str) -> None:
        full = self._full(path)
        assert full != self._root, "the data folder itself must not be deleted"
        try:
            if stat.S_ISDIR(os.lstat(full).st_mode):
                shutil.rmtree(full)
            else:
                os.unlink(full)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise failure("delete", path, error) from error

    def sync_folder(self, path: str) -> None:
        try:
            sync_folder(self._full(path))
        except OSError as error:
            raise failure("sync folder", path, error) from error

    def free_bytes(self) -> int:
        try:
            status = os.statvfs(self._root)
        except OSError as error:
            raise failure("free room of", self._root, error) from error
        return status.f_bavail * status.f_frsize

    def total_bytes(self) -> int:
        try:
            status = os.statvfs(self._root)
        except OSError as error:
            raise failure("size of", self._root, error) from error
        return status.f_blocks * status.f_frsize

    def _full(self, path: str) -> str:
        return os.path.join(self._root, *names_of(path))

    def _open(self, path: str, *, create: bool) -> Descriptor:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return Descriptor(os.open(self._full(path), flags, FILE_MODE))


class ThreadedLocalReader:
    """`ports.local_reader`, by reads in threads."""

    local_read_bytes_min = LOCAL_READ_BYTES_MIN

    def __init__(self, host: str) -> None:
        self.host = host
        # Not the threads that sync: a read of one millisecond would queue behind syncs that take many.
        self._threads = ThreadOffload(THREADS)

    async def read(self, file_range: FileRange) -> memoryview:
        # Allocated in the loop's thread: the allocator does not reuse memory that other threads allocate.
        try:
            target = memoryview(uncleared(file_range.size))
        except MemoryError as error:
            raise LocalReadFailed(f"no memory for {file_range.size} bytes") from error
        await self._threads.run(lambda: read_file_range(file_range, target))
        return target.toreadonly()

    def close(self) -> None:
        """Return when no read is in flight."""
        self._threads.close()
