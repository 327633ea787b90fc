"""A log file that its owner writes while others read: opened on first use, readable after a rename.

Readers share a handle of their own, never the owner's second one: only the owner's handle tracks the file's size. The
owner opens its handle before it renames or deletes the file.
"""

from respool.model.errors import DiskFailed
from respool.ports.disk import Disk, LogFile


class SharedFile:
    __slots__ = ("_disk", "_read", "owned", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        # The owner's handle, once opened; readers use it too.
        self.owned: LogFile | None = None
        # Opened by readers before the owner opened its own.
        self._read: LogFile | None = None

    @property
    def is_open(self) -> bool:
        return self.owned is not None or self._read is not None

    def own(self, *, create: bool = False) -> LogFile:
        """The owner's handle."""
        if self.owned is None:
            self.owned = self._disk.open_log(self.path, create=create)
        return self.owned

    def to_read(self) -> LogFile:
        """Return an open handle. From any thread; the owner may be renaming the file at this moment.

        1. A reader finds no open handle.   2. The owner opens one, and renames the file.
        3. The reader finds nothing under the old name, or another file.
        """
        file = self.owned or self._read
        if file is not None:
            return file
        try:
            file = self._disk.open_log(self.path, create=False)
        except DiskFailed:
            if self.owned is None:
                raise
            return self.owned
        if self.owned is not None:
            file.close()
            return self.owned
        self._read = file
        return file

    def release_reader(self) -> None:
        """The readers' handle is outdated."""
        self._read = None

    def release(self) -> None:
        """Close it; active readers continue."""
        self.owned = self._read = None
