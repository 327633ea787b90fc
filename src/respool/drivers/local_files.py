"""Open files on a POSIX system: an append-only log file, and a mapping for an index."""

import errno
import mmap
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from respool.drivers.allocator import uncleared
from respool.drivers.read_ahead import READ_AHEAD_BYTES, Descriptor, ReadAhead, read_ahead
from respool.drivers.system_calls import (
    NOT_SUPPORTED,
    allocate,
    sync_data,
    sync_file,
    syncs_mapped_pages,
)
from respool.model.errors import DiskFailed, DiskFull, HandlesExhausted, StorageError
from respool.model.file_range import FileRange
from respool.ports.disk import NotCached

FILE_MODE = 0o640
# The mode of files with secrets.
PRIVATE_FILE_MODE = 0o600
DATA_FOLDER_MODE = 0o700
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
# Errors that only opening a file can have.
_NO_HANDLE = frozenset({errno.EMFILE, errno.ENFILE})
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
# After this many bytes from the disk, the following ones are read ahead.
READ_AHEAD_FROM_BYTES = 256 * 1024
# Maximum number of buffers per system call.
_BUFFERS_MAX: int = os.sysconf("SC_IOV_MAX")

Buffers = Sequence[bytes | bytearray | memoryview]


class CachedReads:
    """Whether this file system supports reads from the page cache only; determined by the first one. (tmpfs does
    not.)
    """

    __slots__ = ("supported",)

    def __init__(self) -> None:
        self.supported = _NOWAIT != 0


class LocalLogFile:
    """A `ports.disk.LogFile`. One thread appends and truncates; any may read and sync."""

    def __init__(
        self,
        path: str,
        descriptor: Descriptor,
        size: int,
        *,
        root: str,
        cached_reads: CachedReads,
        ahead: ReadAhead,
    ) -> None:
        """`path` is relative to `root`."""
        self._path = path
        self._root = root
        self._descriptor: Descriptor | None = descriptor
        # Readers see nothing beyond it, so never an incomplete batch.
        self._size = size
        self._cached_reads = cached_reads
        self._ahead = ahead
        # Set after a failure: the content on the disk is no longer known, so nothing more is written.
        self._failed = ""
        # End of the read-ahead for a sequential reader; 0: there is none.
        self._ahead_to = 0
        # Its first bytes, once requested.
        self._file_range: FileRange | None = None

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self._size

    def append(self, buffers: Buffers) -> None:
        descriptor = self._writable("append")
        size = self._size
        try:
            written = write_all(descriptor.fd, buffers, position=size)
        except OSError as error:
            self._truncate_back(descriptor, size)
            raise failure("append", self._path, error) from error
        self._size = size + written

    def read(self, position: int, size: int, *, cached_only: bool = False) -> bytes | memoryview:
        assert position >= 0
        assert size >= 0
        descriptor = self._descriptor
        if descriptor is None:
            raise DiskFailed(f"read {self._path}: the file is closed")
        wanted = min(size, self._size - position)
        if wanted <= 0:
            return b""
        end = position + wanted
        try:
            if cached_only and self._cached_reads.supported:
                data = self._read_cached(descriptor, position, wanted)
                if position < self._ahead_to < end + READ_AHEAD_BYTES // 2:
                    # This may be the event loop, which must not wait.
                    self._ahead.request(descriptor, end)
                    self._ahead_to = end + READ_AHEAD_BYTES
                return data
            if wanted >= READ_AHEAD_FROM_BYTES:
                read_ahead(descriptor.fd, end)
                self._ahead_to = end + READ_AHEAD_BYTES
            return _read_all(descriptor.fd, position, wanted)
        except OSError as error:
            raise failure("read", self._path, error) from error

    def file_range(self, position: int, size: int) -> FileRange:
        if self._file_range is None:
            descriptor = self._descriptor
            if descriptor is None:
                raise DiskFailed(f"find {self._path}: the file is closed")
            try:
                found = os.fstat(descriptor.fd)
            except OSError as error:
                raise failure("find", self._path, error) from error
            full_path = os.path.join(self._root, self._path)
            self._file_range = FileRange(full_path, found.st_dev, found.st_ino, 0, 0)
        return self._file_range._replace(position=position, size=size)

    def sync(self) -> None:
        descriptor = self._writable("sync")
        try:
            sync_data(descriptor.fd)
        except OSError as error:
            # The kernel reports a lost page once: a second sync would succeed.
            self._failed = f"an earlier sync failed: {error.strerror}"
            raise _unsynced(self._path, error) from error

    def forget_cached(self) -> None:
        descriptor = self._writable("forget")
        # A hint, which Linux follows for clean unmapped pages.
        with suppress(OSError, AttributeError):
            os.posix_fadvise(descriptor.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def truncate(self, size: int) -> None:
        assert 0 <= size <= self._size, f"truncate to {size}, the file has {self._size} bytes"
        descriptor = self._writable("truncate")
        try:
            os.ftruncate(descriptor.fd, size)
        except OSError as error:
            raise failure("truncate", self._path, error) from error
        self._size = size

    def close(self) -> None:
        self._descriptor = None

    def _writable(self, call: str) -> Descriptor:
        descriptor = self._descriptor
        if descriptor is None:
            raise DiskFailed(f"{call} {self._path}: the file is closed")
        if self._failed:
            raise DiskFailed(f"{call} {self._path}: {self._failed}")
        return descriptor

    def _truncate_back(self, descriptor: Descriptor, size: int) -> None:
        try:
            os.ftruncate(descriptor.fd, size)
        except OSError as error:
            self._failed = f"an incomplete append could not be truncated: {error.strerror}"

    def _read_cached(
        self, descriptor: Descriptor, position: int, wanted: int
    ) -> bytes | memoryview:
        buffer = uncleared(wanted)
        try:
            got = os.preadv(descriptor.fd, [buffer], position, _NOWAIT)
        except BlockingIOError:
            raise NotCached(f"{self._path}: {wanted} bytes at {position}") from None
        except OSError as error:
            if error.errno not in NOT_SUPPORTED:
                raise
            self._cached_reads.supported = False
            return _read_all(descriptor.fd, position, wanted)
        if got < wanted:
            raise NotCached(f"{self._path}: {got} of {wanted} bytes at {position}")
        # Only a bytearray can be read into with flags; it is not shared. A copy would cost 25 us per MB.
        return memoryview(buffer).toreadonly()


class LocalMappedFile:
    """A `ports.disk.MappedFile`. Its blocks are allocated on the disk.

    When the disk is full, a write to a hole in a mapped file kills the process (SIGBUS). So growing allocates the
    blocks, and raises DiskFull.
    """

    def __init__(self, path: str, descriptor: Descriptor, size: int | None) -> None:
        self._path = path
        self._descriptor: Descriptor | None = descriptor
        if size is None:
            size = os.fstat(descriptor.fd).st_size
        else:
            _set_size(descriptor.fd, size)
        self._map = _map_of(descriptor.fd, size)
        self._view = _view_of(self._map)
        self._failed = ""

    @property
    def buffer(self) -> memoryview:
        self._opened("use")
        return self._view

    def sync(self) -> None:
        descriptor = self._opened("sync")
        if self._failed:
            raise DiskFailed(f"sync {self._path}: {self._failed}")
        mapped = self._map
        try:
            # Skipped if syncing the file suffices: Python's mmap.flush blocks all other threads.
            if mapped is not None and not syncs_mapped_pages():
                mapped.flush()
            sync_data(descriptor.fd)
        except OSError as error:
            self._failed = f"an earlier sync failed: {error.strerror}"
            raise _unsynced(self._path, error) from error

    def resize(self, size: int) -> None:
        descriptor = self._opened("resize")
        try:
            _set_size(descriptor.fd, size)
            new = _map_of(descriptor.fd, size)
        except OSError as error:
            raise failure("resize", self._path, error) from error
        # The old mapping is freed with its last slice.
        self._view.release()
        self._map = new
        self._view = _view_of(new)

    def close(self) -> None:
        self._view.release()
        self._map = None
        self._descriptor = None

    def _opened(self, call: str) -> Descriptor:
        descriptor = self._descriptor
        if descriptor is None:
            raise DiskFailed(f"{call} {self._path}: the file is closed")
        return descriptor


def write_all(fd: int, buffers: Buffers, *, position: int) -> int:
    """Write all buffers and return their total size. After an OSError, any part of them may be written."""
    wanted = sum([memoryview(buffer).nbytes for buffer in buffers])
    written = 0
    while written < wanted:
        got = os.pwritev(fd, buffers[:_BUFFERS_MAX], position + written)
        if got == 0:
            raise OSError(errno.EIO, "the system took no bytes and gave no reason")
        written += got
        if written < wanted:
            buffers = _after(buffers, got)
    return written


def sync_folder(full_path: str) -> None:
    """Make the names in a folder durable."""
    descriptor = Descriptor(os.open(full_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    sync_file(descriptor.fd)


def failure(call: str, path: str, error: OSError, *, is_opening: bool = False) -> StorageError:
    """Translate an operating system error: disk full, disk failed, or too many open files.

    Lack of memory counts as the last only for opening a file: a write or sync that fails for it may have lost data.
    """
    kind: type[StorageError] = DiskFailed
    if error.errno in _NO_ROOM:
        kind = DiskFull
    elif error.errno in _NO_HANDLE or (is_opening and error.errno == errno.ENOMEM):
        kind = HandlesExhausted
    return kind(f"{call} {path}: {error.strerror} (errno {error.errno})")


def _unsynced(path: str, error: OSError) -> DiskFailed:
    """Never DiskFull: pages that could not be written may be gone, and a second sync would succeed."""
    return DiskFailed(f"sync {path}: {error.strerror} (errno {error.errno})")


def _after(buffers: Buffers, size: int) -> Buffers:
    """The buffers without their first `size` bytes."""
    for index, buffer in enumerate(buffers):
        view = memoryview(buffer).cast("B")
        if size < view.nbytes:
            return [view[size:], *buffers[index + 1 :]]
        size -= view.nbytes
    return []


def _read_all(fd: int, position: int, wanted: int) -> bytes:
    data = os.pread(fd, wanted, position)
    if len(data) == wanted:
        return data
    # One call returns at most 2 GiB; zero bytes mean that the file was truncated meanwhile.
    parts = [data]
    while parts[-1] and (got := sum(map(len, parts))) < wanted:
        parts.append(os.pread(fd, wanted - got, position + got))
    return b"".join(parts)


def _set_size(fd: int, size: int) -> None:
    """Shorten the file, or extend it with allocated blocks; after a failure the size is unchanged."""
    old = os.fstat(fd).st_size
    if size < old:
        os.ftruncate(fd, size)
    elif size > old:
        try:
            allocate(fd, old, size - old)
        except OSError:
            os.ftruncate(fd, old)
            raise


def _map_of(fd: int, size: int) -> mmap.mmap | None:
    """None for an empty file, which cannot be mapped."""
    if size == 0:
        return None
    if sys.version_info >= (3, 13):
        # Keep our own descriptor: another one per mapping would only count against the limit.
        return mmap.mmap(fd, size, trackfd=False)
    return mmap.mmap(fd, size)


def _view_of(mapped: mmap.mmap | None) -> memoryview:
    return memoryview(bytearray() if mapped is None else mapped)
