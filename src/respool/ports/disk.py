"""The file operations of the log: append, read, map, replace, sync.

Paths are plain strings with '/', relative to the data folder, which itself is "". Bytes are durable only after `sync`,
names only after `sync_folder`. Every method may raise `DiskFailed`; those that need space may raise `DiskFull`, and
then leave the file's size unchanged; those that open a file or sync a folder may raise `HandlesExhausted`, and then
have done nothing.
"""

from collections.abc import Sequence
from typing import Protocol

from respool.model.file_range import FileRange


def names_of(path: str) -> list[str]:
    """The names along a path, outermost first; none for the data folder. A path must not leave the data folder."""
    names = path.split("/") if path else []
    for name in names:
        assert name not in {"", ".", ".."}, f"{path!r} is not a path inside the data folder"
        assert "\0" not in name, f"{path!r} has a NUL in it"
    return names


class NotCached(Exception):
    """The bytes are not in memory; reading them would block. Retry with `cached_only=False`, off the event loop."""


class LogFile(Protocol):
    """An append-only file that can be read anywhere. Reads and `sync` may come from other threads."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """The file's size, including unsynced data."""
        ...

    def append(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write all buffers at the end, or none of them.

        Raises:
            DiskFull: no space; the size is unchanged.
            DiskFailed: the write failed; the file is truncated to its previous size, or else unusable.
        """
        ...

    def read(self, position: int, size: int, *, cached_only: bool = False) -> bytes | memoryview:
        """Return up to `size` bytes; fewer only at the end of the file. The result never changes.

        Raises:
            NotCached: `cached_only`, and the bytes would have to come from the disk.
        """
        ...

    def file_range(self, position: int, size: int) -> FileRange | None:
        """Return where another process of this host finds these bytes, which exist; None if it cannot."""
        ...

    def sync(self) -> None:
        """Make everything appended before this call durable (fdatasync).

        A failed sync is final: the pages are lost, and a later successful sync proves nothing.
        """
        ...

    def forget_cached(self) -> None:
        """After a `sync`, drop the page cache of the file, so that later reads come from the disk.

        A failed sync in an earlier process leaves pages in the cache that look valid and were never written.
        """
        ...

    def truncate(self, size: int) -> None:
        """Truncate the file to `size`, at most its current size. Durable only after `sync`."""
        ...

    def close(self) -> None:
        """Close the file; active reads in other threads still complete. Later use raises DiskFailed."""
        ...


class MappedFile(Protocol):
    """A fixed-size memory-mapped file: the sparse indexes."""

    @property
    def buffer(self) -> memoryview:
        """The file's bytes, readable and writable. `resize` and `close` release the view; its slices are then stale."""
        ...

    def sync(self) -> None: ...

    def resize(self, size: int) -> None:
        """Change the file's size; new bytes are zero."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """One data folder."""

    def open_log(self, path: str, *, create: bool = True) -> LogFile:
        """Open a log file. If it is missing it is created empty; without `create`, that raises DiskFailed."""
        ...

    def map_file(self, path: str, size: int | None) -> MappedFile:
        """Map a file, after creating or resizing it to `size` bytes (zero-filled).

        With None it must exist and is not resized: for readers of a file that another thread may resize.
        """
        ...

    def make_folder(self, path: str) -> None:
        """Create the folder and its parents, unless it exists."""
        ...

    def list_folder(self, path: str) -> list[str]:
        """The names in a folder, sorted; empty if there is no such folder."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """The size of a file; DiskFailed if it is missing."""
        ...

    def read_file(self, path: str) -> bytes | None:
        """The content of a small file; None if it is missing."""
        ...

    def replace_file(self, path: str, content: bytes) -> None:
        """Replace the file's content atomically and durably: temporary file, sync, rename, folder sync."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder; durable only after `sync_folder`."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with its content; no error if it is missing."""
        ...

    def sync_folder(self, path: str) -> None:
        """Make created, renamed and deleted names in this folder durable."""
        ...

    def free_bytes(self) -> int: ...

    def total_bytes(self) -> int:
        """The size of the file system, with what others use of it."""
        ...
