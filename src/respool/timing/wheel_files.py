"""The files of a wheel, in one folder: lists of entries, and a checkpoint with the valid length of each.

```
pending/checkpoint           a JSON document: lengths of the files, and what the wheel and its owner remember
pending/near-12              entries that were in memory at the checkpoint
pending/h-481234             a bucket: an hour, in the order in which the entries came
pending/run-7                sorted entries
```
Files only grow, so truncating them to the checkpoint's lengths undoes a crash. A consumed file is deleted only after a
checkpoint that does not refer to it. Everything here derives from the log: files that do not match are deleted and
rebuilt.
"""

import json
from collections.abc import Sequence
from typing import Any

from respool.ports.disk import Disk
from respool.timing.entries import ENTRY_BYTES, entries_in

_CHECKPOINT = "checkpoint"
# Maximum number of entries waiting to be written, over all files.
_BUFFERED_MAX = 16_384


class WheelFiles:
    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        # Entries in each file, buffered ones included.
        self._counts: dict[str, int] = {}
        self._buffers: dict[str, list[bytes]] = {}
        self._buffered = 0
        # Written since the last checkpoint.
        self._unsynced: dict[str, None] = {}
        # Consumed files to which the checkpoint on disk still refers.
        self._removed: list[str] = []
        self._has_folder = False

    def count(self, name: str) -> int:
        return self._counts.get(name, 0)

    def names(self, prefix: str) -> list[str]:
        return [name for name in self._counts if name.startswith(prefix)]

    def append(self, name: str, entries: Sequence[bytes]) -> None:
        """Add entries at the end of a file; they may stay in memory for now."""
        self._buffers.setdefault(name, []).extend(entries)
        self._counts[name] = self._counts.get(name, 0) + len(entries)
        self._buffered += len(entries)
        if self._buffered >= _BUFFERED_MAX:
            self.flush()

    def read(self, name: str, begin: int, count: int) -> list[bytes]:
        """Return up to `count` entries from the entry `begin` on."""
        if name in self._buffers:
            self._write(name)
        file = self._disk.open_log(self._path(name), create=False)
        try:
            return entries_in(file.read(begin * ENTRY_BYTES, count * ENTRY_BYTES))
        finally:
            file.close()

    def remove(self, name: str) -> None:
        """The file is no longer needed."""
        self._buffered -= len(self._buffers.pop(name, ()))
        if self._counts.pop(name, None) is not None:
            self._unsynced.pop(name, None)
            self._removed.append(name)

    def flush(self) -> None:
        for name in tuple(self._buffers):
            self._write(name)

    def write_checkpoint(self, document: dict[str, Any]) -> None:
        """Make the files and a document durable; files that the document refers to survive a crash."""
        self.flush()
        self._make_folder()
        for name in self._unsynced:
            file = self._disk.open_log(self._path(name), create=False)
            try:
                file.sync()
            finally:
                file.close()
        self._disk.sync_folder(self._folder)
        self._unsynced.clear()
        content = json.dumps({"files": self._counts, **document}, separators=(",", ":"))
        self._disk.replace_file(self._path(_CHECKPOINT), content.encode())
        removed, self._removed = self._removed, []
        for name in removed:
            self._disk.delete(self._path(name))

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Truncate the files to the last checkpoint's lengths, and return its document; None if it is not usable."""
        content = self._disk.read_file(self._path(_CHECKPOINT))
        if content is None:
            return None
        try:
            document = json.loads(content)
            counts = {str(name): int(count) for name, count in document["files"].items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        present = set(self._disk.list_folder(self._folder))
        for name in sorted(present - {_CHECKPOINT} - set(counts)):
            self._disk.delete(self._path(name))
        for name, count in counts.items():
            if name not in present or not self._truncate(name, count):
                return None
        self._counts = counts
        self._has_folder = True
        return dict(document)

    def delete_all(self) -> None:
        """Begin without entries."""
        self._counts.clear()
        self._buffers.clear()
        self._unsynced.clear()
        self._removed.clear()
        self._buffered = 0
        self._has_folder = False
        self._disk.delete(self._folder)

    def _truncate(self, name: str, count: int) -> bool:
        """Truncate a file to its length at the checkpoint. Return False if it is shorter."""
        file = self._disk.open_log(self._path(name), create=False)
        try:
            if file.size < count * ENTRY_BYTES:
                return False
            if file.size > count * ENTRY_BYTES:
                file.truncate(count * ENTRY_BYTES)
        finally:
            file.close()
        return True

    def _write(self, name: str) -> None:
        entries = self._buffers.pop(name)
        self._buffered -= len(entries)
        self._make_folder()
        file = self._disk.open_log(self._path(name))
        try:
            file.append([b"".join(entries)])
        finally:
            file.close()
        self._unsynced[name] = None

    def _make_folder(self) -> None:
        if not self._has_folder:
            self._disk.make_folder(self._folder)
            self._disk.sync_folder(self._folder.rpartition("/")[0])
            self._has_folder = True

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"
