"""Files on their way out: renamed at once, deleted later and off the event loop. Who has them open reads on."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from respool.log.file_names import DELETED, deleted_folder_name
from respool.log.index.segment_indexes import index_paths
from respool.log.producers.snapshot_files import SnapshotFiles
from respool.log.segment import Segment
from respool.model.ids import Offset
from respool.ports.disk import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedSegment:
    disk: Disk
    folder: str
    paths: Sequence[str]
    base_offset: Offset
    size: int
    # The index of aborted transactions and the log that it belongs to. It keeps its name until that has lost its own
    # for sure: a power cut may bring the log back, and without the index it would show what was aborted. None where
    # another segment gets the names.
    aborted_of: tuple[str, str] | None = None

    def delete(self) -> None:
        """Delete the files for good. From any thread."""
        # The renames first: otherwise a power cut could bring a file back whose neighbours are gone.
        self.disk.sync_folder(self.folder)
        for path in self.paths:
            self.disk.delete(path)
        if self.aborted_of is not None:
            path, log_path = self.aborted_of
            # A log that was started anew may have come to the same name.
            if not self.disk.exists(log_path):
                self.disk.delete(path)

    def __str__(self) -> str:
        return f"the segment from offset {self.base_offset} on ({self.size} bytes)"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedLog:
    disk: Disk
    path: str

    def delete(self) -> None:
        """Delete the folder for good. From any thread."""
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
    """Rename a segment's files out of use, and the snapshot that belongs to it, unless that is to stay.

    Where it is replaced, another one gets the names.
    """
    # For readers that come a moment too late.
    segment.keep_open()
    names = [segment.path, *index_paths(folder, segment.base_offset)]
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
    """Rename a log's folder out of use."""
    parent, slash, name = folder.rpartition("/")
    for attempt in count():
        target = f"{parent}{slash}{deleted_folder_name(name, attempt=attempt)}"
        if not disk.exists(target):
            break
    disk.rename(folder, target)
    return RemovedLog(disk=disk, path=target)


def parent_folder(path: str) -> str:
    return path.rpartition("/")[0]
