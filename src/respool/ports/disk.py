"""Files, as the log needs them: append, read, map, replace, sync.

Paths are plain strings with '/', relative to the data folder, which itself is "". What is
promised: bytes are on the disk only after `sync`, names only after `sync_folder`. Every method may raise
`DiskFailed`; those that take room may raise `DiskFull`, and then leave the file as long as it was; those that open a
file, or sync a folder, may raise `HandlesExhausted`, and then have not done what they were asked for.
"""

from collections.abc import Sequence
from typing import Protocol

from respool.model.file_range import FileRange


def names_of(path: str) -> list[str]:
    """The names on the way to a path, outermost first; none for the data folder. Nothing may lead outside of it."""
    names = path.split("/") if path else []
    for name in names:
        assert name not in {"", ".", ".."}, f"{path!r} is not a path inside the data folder"
        assert "\0" not in name, f"{path!r} has a NUL in it"
    return names


class NotCached(Exception):
    """The bytes are not in memory; reading them would block. Ask again with `cached_only=False`, off the loop."""


class LogFile(Protocol):
    """A file that grows at its end and is read anywhere. Reads and `sync` may come from other threads."""

    @property
    def path(self) -> str: ...

    @property
    def size(self) -> int:
        """How long the file is, counting what is not synced yet."""
        ...

    def append(self, buffers: Sequence[bytes | bytearray | memoryview]) -> None:
        """Write all buffers at the end, or none of them.

        Raises:
            DiskFull: no room; the file has the size it had.
            DiskFailed: the write failed; the file is cut back to the size it had, or else the file is lost.
        """
        ...

    def read(self, position: int, size: int, *, cached_only: bool = False) -> bytes | memoryview:
        """Return up to `size` bytes; fewer only at the end of the file. Nobody changes them while they are looked at.

        Raises:
            NotCached: `cached_only`, and the bytes would have to come from the disk.
        """
        ...

    def file_range(self, position: int, size: int) -> FileRange | None:
        """Return where another process of this host finds these bytes, which exist; None if it cannot."""
        ...

    def sync(self) -> None:
        """Return when everything appended before this call is on the disk (fdatasync).

        A failed sync is final: the pages are lost, and a later sync that succeeds proves nothing.
        """
        ...

    def forget_cached(self) -> None:
        """Let later reads show what is on the disk, after a `sync`, and not what memory holds of the file.

        A sync that failed in an earlier process leaves pages in memory that look well and were never written.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file; `size` is at most what it is now. On the disk only after `sync`."""
        ...

    def close(self) -> None:
        """Give the file back; a read under way in another thread still ends well. Later use raises DiskFailed."""
        ...


class MappedFile(Protocol):
    """A fixed-size file seen as memory: the sparse indexes."""

    @property
    def buffer(self) -> memoryview:
        """Read and write the bytes here; the view is released by `resize` and `close`, and slices of it are stale."""
        ...

    def sync(self) -> None: ...

    def resize(self, size: int) -> None:
        """Change the file's size; new bytes are zero."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """One data folder."""

    def open_log(self, path: str, *, create: bool = True) -> LogFile:
        """Open a log file. When it is not there it is created empty; without `create`, that is DiskFailed."""
        ...

    def map_file(self, path: str, size: int | None) -> MappedFile:
        """Map a file, creating or resizing it to `size` bytes (zero-filled).

        With None it must be there and stays as it is: for a reader beside whoever resizes it.
        """
        ...

    def make_folder(self, path: str) -> None:
        """Create the folder and those above it; it may exist already."""
        ...

    def list_folder(self, path: str) -> list[str]:
        """The names in a folder, sorted; empty when there is no such folder."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int:
        """How long a file is; DiskFailed when there is none."""
        ...

    def read_file(self, path: str) -> bytes | None:
        """A small file's whole content, or None when it is not there."""
        ...

    def replace_file(self, path: str, content: bytes) -> None:
        """Put the whole content there, atomically and durably: temp file, sync, rename, sync folder."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder; durable only after `sync_folder`."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all in it; nothing happens when it is not there."""
        ...

    def sync_folder(self, path: str) -> None:
        """Make creations, renames and deletions in this folder durable."""
        ...

    def free_bytes(self) -> int: ...
