"""Lists the files of a partition's folder when it is opened, and removes unfinished work of an earlier process."""

from dataclasses import dataclass

from respool.log.file_names import (
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TAG_INDEX,
    TIME_INDEX,
    TRANSACTION_INDEX,
    UNFINISHED_SUFFIXES,
    offset_name,
    parse_offset_name,
)
from respool.log.index.segment_indexes import IndexSettings, index_paths
from respool.log.producers.snapshot_files import SnapshotFiles
from respool.log.recovery.segment_swap import complete_swaps
from respool.log.segment import Segment
from respool.model.ids import Offset
from respool.ports.disk import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFolder:
    # Oldest first; none is opened yet.
    segments: list[Segment]
    snapshots: SnapshotFiles

    @classmethod
    def open(cls, disk: Disk, folder: str, settings: IndexSettings, *, now_ms: int) -> "LogFolder":
        """List names and sizes. Files are read only if a compaction was interrupted during its swap."""
        complete_swaps(disk, folder)
        found: dict[str, list[Offset]] = {
            kind: []
            for kind in (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, TAG_INDEX, SNAPSHOT)
        }
        for name in disk.list_folder(folder):
            parsed = parse_offset_name(name)
            if name.endswith(UNFINISHED_SUFFIXES):
                disk.delete(f"{folder}/{name}")
            elif parsed is not None and parsed[1] in found:
                found[parsed[1]].append(parsed[0])
        _delete_orphans(disk, folder, found)
        with_aborted = set(found[TRANSACTION_INDEX])
        segments = [
            Segment(
                disk,
                folder,
                base_offset,
                settings,
                size=disk.size(f"{folder}/{offset_name(base_offset, LOG)}"),
                now_ms=now_ms,
                aborted_bytes=disk.size(f"{folder}/{offset_name(base_offset, TRANSACTION_INDEX)}")
                if base_offset in with_aborted
                else 0,
            )
            for base_offset in found[LOG]
        ]
        return cls(segments=segments, snapshots=SnapshotFiles(disk, folder, found[SNAPSHOT]))


def delete_segment(disk: Disk, folder: str, segment: Segment) -> None:
    """Delete a segment's files now, durably."""
    segment.tags.retire()
    for path in (segment.tags.path, segment.path, *index_paths(folder, segment.base_offset)):
        disk.delete(path)
    # Sync before the next deletion: names restored by a power cut must not leave a gap.
    disk.sync_folder(folder)
    # Last: a restored segment needs its transaction index, which is harmless alone.
    disk.delete(segment.aborted.path)


def _delete_orphans(disk: Disk, folder: str, found: dict[str, list[Offset]]) -> None:
    """Delete indexes without a log file, left by an interrupted removal of their segment.

    And the tag index of the active segment, which had a later segment before a power cut: it will be written to.
    """
    logs = set(found[LOG])
    for offset in found[TAG_INDEX]:
        if offset not in logs or offset == max(logs):
            disk.delete(f"{folder}/{offset_name(offset, TAG_INDEX)}")
    for kind in (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX):
        for offset in found[kind]:
            if offset not in logs:
                disk.delete(f"{folder}/{offset:020d}{kind}")
