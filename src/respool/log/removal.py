"""Removal of segments and logs: renamed at once, deleted later off the event loop. Open files stay readable."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from respool.log.file_names import DELETED, deleted_folder_name
from respool.log.index.segment_indexes import index_paths
from respool.log.producers.snapshot_files import SnapshotFiles
from respool.log.segment import Segment
from respool.model.errors import StorageError
from respool.model.ids import Offset
from respool.ports.disk import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedSegment:
    disk: Disk
    folder: str
    paths: Sequence[str]
    base_offset: Offset
    size: int
    # The transaction index and the log file it belongs to. It keeps its name until the log's rename is durable: a power
    # cut may restore the log, and without the index aborted records would be visible. None if another segment takes
    # over the names.
    aborted_of: tuple[str, str] | None = None

    def delete(self) -> None:
        """Delete the files. From any thread."""
        try:
            # Sync the renames first: otherwise a power cut could restore one file without the others.
            self.disk.sync_folder(self.folder)
        except StorageError:
            if self.disk.exists(self.folder):
                raise
            # The whole log was removed meanwhile.
            return
        for path in self.paths:
            self.disk.delete(path)
        if self.aborted_of is not None:
            path, log_path = self.aborted_of
            # A restarted log may have reached the same name.
            if not self.disk.exists(log_path):
                self.disk.delete(path)

    def __str__(self) -> str:
        return f"the segment from offset {self.base_offset} on ({self.size} bytes)"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedLog:
    disk: Disk
    path: str

    def delete(self) -> None:
        """Delete the folder. From any thread."""
        self.disk.sync_folder(parent_folder(self.path))
        self.disk.delete(self.path)


def remove_segment(
    disk: Disk,
    folder: str,
    segment: Segment,
    snapshots: SnapshotFiles | None,
    *,
    is_replaced: bool = False,
) -> RemovedSegment:
    """Rename a segment's files, and its snapshot unless that is still needed, so that they can be deleted later.

    If the segment is replaced, another one takes over the names.
    """
    # For readers that arrive late.
    segment.keep_open()
    segment.tags.retire()
    names = [segment.path, *index_paths(folder, segment.base_offset), segment.tags.path]
    if snapshots is not None and snapshots.forget(segment.base_offset):
        names.append(snapshots.path(segment.base_offset))
    renamed = []
    for path in names:
        if disk.exists(path):
            disk.rename(path, path + DELETED)
            renamed.append(path + DELETED)
    return RemovedSegment(
        disk=disk,
        folder=folder,
        paths=renamed,
        base_offset=segment.base_offset,
        size=segment.size,
        aborted_of=None if is_replaced else (segment.aborted.path, segment.path),
    )


def remove_log(disk: Disk, folder: str) -> RemovedLog:
    """Rename a log's folder so that it can be deleted later."""
    parent, slash, name = folder.rpartition("/")
    for attempt in count():
        target = f"{parent}{slash}{deleted_folder_name(name, attempt=attempt)}"
        if not disk.exists(target):
            break
    disk.rename(folder, target)
    return RemovedLog(disk=disk, path=target)


def parent_folder(path: str) -> str:
    return path.rpartition("/")[0]
