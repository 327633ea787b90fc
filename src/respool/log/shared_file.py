"""A log file that its owner writes while others read, opened at the first need, and read on when it has lost its name.

What a reader opens it shares with other readers, never with the owner: the owner's file knows how long it is, and a
second one beside it would not. The owner opens its own before it renames or deletes the file.
"""

from respool.model.errors import DiskFailed
from respool.ports.disk import Disk, LogFile


class SharedFile:
    __slots__ = ("_disk", "_read", "owned", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        # The owner's, once it needed it; readers use it too.
        self.owned: LogFile | None = None
        # What readers opened, while the owner had not.
        self._read: LogFile | None = None

    @property
    def is_open(self) -> bool:
        return self.owned is not None or self._read is not None

    def own(self, *, create: bool = False) -> LogFile:
        """The owner's file."""
        if self.owned is None:
            self.owned = self._disk.open_log(self.path, create=create)
        return self.owned

    def to_read(self) -> LogFile:
        """Some open file. From any thread; the owner may be taking its name away this moment.

        1. A reader finds no file open here.   2. The owner opens it, and renames it out of use.
        3. The reader finds nothing under the old name, or the file that has it now.
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
        """What readers opened is not up to date any more."""
        self._read = None

    def release(self) -> None:
        """Let go of it; whoever reads from it right now goes on doing so."""
        self.owned = self._read = None
