"""The durable end of each log according to the data folder's checkpoints: only these reveal missing records.

A file truncated at a batch boundary, or a missing folder, contains no damaged byte. The broker does not open such a
partition, so `respool log verify` must not call it intact.
"""

from pathlib import Path

from respool.inspect.log_files import FileKind, base_offset_of, kind_of, read_checkpoint
from respool.inspect.segment_check import Finding, FindingKind
from respool.log.checkpoint_text import parse_number
from respool.log.folder.folder_checkpoints import HIGH_WATERMARK, LOG_START, RECOVERY_POINT
from respool.log.partition_folder import is_aside


class CheckpointedEnds:
    def __init__(self, data: Path) -> None:
        """Read the checkpoints before the logs: while a broker runs, logs only grow."""
        self._data = data
        self._recovery_points = _read(data / RECOVERY_POINT)
        self._high_watermarks = _read(data / HIGH_WATERMARK)
        self._log_starts = _read(data / LOG_START)

    def check_end(self, folder: Path, end: int) -> list[Finding]:
        """Records missing from a partition whose log ends at `end`."""
        snapshots = [
            base_offset_of(path) for path in _files(folder) if kind_of(path) is FileKind.SNAPSHOT
        ]
        recorded = max(self._recovery_points.get(folder.name, 0), *snapshots, 0)
        if end >= recorded or recorded <= self._log_starts.get(folder.name, 0):
            return []
        return [self._lost(folder, f"it ends at offset {end}, but {recorded} was on the disk")]

    def check_without_log(self, folder: Path) -> list[Finding]:
        """Records missing from a partition that has no log."""
        name = folder.name
        recorded = max(self._recovery_points.get(name, 0), self._high_watermarks.get(name, 0))
        if recorded <= self._log_starts.get(name, 0):
            return []
        what = "it has no .log" if folder.is_dir() else "the folder is missing"
        return [self._lost(folder, f"{what}, but offset {recorded} was on the disk")]

    def check_all(self) -> list[Finding]:
        """Records missing from all partitions that have no log."""
        names = {path.name for path in self._data.iterdir()}
        # The checkpoints may still name a partition that was deleted a moment ago.
        removed = [name for name in names if name.endswith("-delete")]
        return [
            finding
            for name in sorted({*self._recovery_points, *self._high_watermarks})
            if not any(is_aside(one, name) for one in removed)
            and not any(kind_of(path) is FileKind.LOG for path in _files(self._data / name))
            for finding in self.check_without_log(self._data / name)
        ]

    def _lost(self, folder: Path, what: str) -> Finding:
        remedy = (
            "stop the broker and restore this folder from a backup; or accept the loss of the missing records: "
            f"respool log accept-loss {self._data} {folder.name}"
        )
        return Finding(
            path=folder,
            position=None,
            kind=FindingKind.MISSING_RECORDS,
            what=what,
            remedy=remedy,
        )


def _files(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _read(path: Path) -> dict[str, int]:
    """Offsets by folder name. A damaged checkpoint yields none here and is a finding of its own."""
    if not path.is_file():
        return {}
    try:
        _, entries = read_checkpoint(path)
        return {f"{topic}-{number}": parse_number(offset) for topic, number, offset in entries}
    except ValueError:
        return {}
