"""Check a log's files: every checksum, every offset, every index entry; each finding says what to do about it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from respool.inspect.checkpointed_ends import CheckpointedEnds
from respool.inspect.log_files import (
    FileKind,
    base_offset_of,
    kind_of,
    read_checkpoint,
    read_transaction_index,
)
from respool.inspect.segment_check import (
    KIND_OF_FILE,
    REMEDY_ABORTED,
    REMEDY_INDEX,
    Finding,
    OffsetOrder,
    SegmentCheck,
)
from respool.inspect.transaction_check import TransactionCheck
from respool.log.checkpoint_text import parse_number
from respool.log.producers.producer_snapshot import decode_entries
from respool.model.operator_errors import UsageError

REMEDY_SNAPSHOT = (
    "stop the broker and delete this file: producers' state is read from the .log instead"
)
REMEDY_CHECKPOINT = (
    "stop the broker and restore this file from a backup, or delete it: the broker rebuilds it"
)


class VerifyDisplay(Protocol):
    def advance(self, amount: int) -> None: ...

    def describe(self, text: str) -> None: ...


# Opens the display for this number of bytes.
OpenDisplay = Callable[[int], AbstractContextManager[VerifyDisplay]]


class _NoDisplay:
    def advance(self, amount: int) -> None:
        pass

    def describe(self, text: str) -> None:
        pass


def _no_display(total: int) -> AbstractContextManager[VerifyDisplay]:
    del total
    return nullcontext(_NoDisplay())


@dataclass(slots=True, kw_only=True)
class VerifyReport:
    findings: list[Finding] = field(default_factory=list)
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    bytes: int = 0

    @property
    def damage(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.is_damage]


def verify_paths(paths: Sequence[Path], open_display: OpenDisplay = _no_display) -> VerifyReport:
    """Check files, partition folders and data folders. An index is checked together with its `.log`.

    Raises:
        UsageError: a folder contains no partition, or a file does not belong to a log.
    """
    report = VerifyReport()
    recorded = {data: CheckpointedEnds(data) for path in paths for data in (path, path.parent)}
    gathered = {path: _gather(path) for path in paths}
    files = [each for groups in gathered.values() for group in groups for each in group]
    total = sum(each.stat().st_size for each in files if _is_log(each))
    with open_display(total) as display:
        for path, groups in gathered.items():
            seen = report.partitions, len(report.findings)
            for group in groups:
                folder = group[0].parent
                display.describe(f"checking {folder.name}")
                # A single file does not show where the log ends.
                ends = recorded.get(folder.parent) if path.is_dir() else None
                _LogFiles(group, report, display, ends).verify()
            if path.is_dir():
                report.findings += recorded[path].check_all()
                if not any(_is_log(each) for group in groups for each in group):
                    report.findings += recorded[path.parent].check_without_log(path)
                if seen == (report.partitions, len(report.findings)):
                    raise UsageError(
                        f"there is no partition in {str(path)!r}",
                        hint="give a data folder or a partition's folder in it",
                    )
    return report


def _gather(path: Path) -> list[list[Path]]:
    """The log files at this path, grouped by partition."""
    if path.is_file():
        if kind_of(path) is None:
            raise UsageError(
                f"{path.name!r} is not a log file",
                hint="give a data folder, a partition's folder or a .log",
            )
        suffixes = (".log", ".index", ".timeindex", ".txnindex")
        beside = [path.with_suffix(suffix) for suffix in suffixes]
        if path in beside:
            return [[each for each in beside if each.is_file()]]
        return [[path]]
    folders = [path, *sorted(each for each in path.iterdir() if each.is_dir())]
    # A folder renamed for deletion, or as stray, is not a log any more.
    groups = [
        _log_files_in(each) for each in folders if not each.name.endswith(("-delete", "-stray"))
    ]
    return [group for group in groups if group]


def _log_files_in(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_file() and kind_of(each) is not None)


def _is_log(path: Path) -> bool:
    return kind_of(path) is FileKind.LOG


class _LogFiles:
    """The files of one partition, or the checkpoints of a data folder."""

    def __init__(
        self,
        files: Sequence[Path],
        report: VerifyReport,
        display: VerifyDisplay,
        recorded: CheckpointedEnds | None,
    ) -> None:
        self._files = files
        self._report = report
        self._display = display
        self._recorded = recorded

    def verify(self) -> None:
        segments = [path for path in self._files if _is_log(path)]
        self._report.partitions += bool(segments)
        order, transactions = OffsetOrder(), TransactionCheck()
        for path in segments:
            self._verify_segment(path, order, transactions)
        if segments and self._recorded is not None and not self._is_any_damaged(segments):
            # The last segment may be empty, and the last batches of earlier ones may be compacted away.
            end = max(order.next_offset, base_offset_of(segments[-1]))
            self._report.findings += self._recorded.check_end(segments[0].parent, end)
        stems = {path.stem for path in segments}
        for path in self._files:
            self._verify_small_file(path, stems)

    def _is_any_damaged(self, segments: Sequence[Path]) -> bool:
        return any(finding.path in segments for finding in self._report.damage)

    def _verify_segment(
        self, path: Path, order: OffsetOrder, transactions: TransactionCheck
    ) -> None:
        check = SegmentCheck(path, order, transactions)
        self._report.segments += 1
        for found in check.run():
            self._report.batches += 1
            self._report.records += found.header.record_count
            self._report.bytes += found.header.size
            self._display.advance(found.header.size)
        self._report.findings += check.findings

    def _verify_small_file(self, path: Path, segment_stems: set[str]) -> None:
        problem, remedy, is_damage = "", REMEDY_INDEX, True
        kind = kind_of(path)
        match kind:
            case FileKind.SNAPSHOT:
                problem, remedy = _snapshot_problem(path), REMEDY_SNAPSHOT
            case FileKind.CHECKPOINT:
                problem, remedy = _checkpoint_problem(path), REMEDY_CHECKPOINT
            case FileKind.OFFSET_INDEX | FileKind.TIME_INDEX | FileKind.TRANSACTION_INDEX if (
                path.stem not in segment_stems
            ):
                problem, is_damage = "an index without its .log", False
            case FileKind.TRANSACTION_INDEX:
                problem, remedy = _transaction_index_problem(path), REMEDY_ABORTED
            case _:
                pass
        if problem and kind is not None:
            self._report.findings.append(
                Finding(
                    path=path,
                    position=None,
                    kind=KIND_OF_FILE[kind],
                    what=problem,
                    remedy=remedy,
                    is_damage=is_damage,
                )
            )


def _snapshot_problem(path: Path) -> str:
    try:
        decode_entries(path.read_bytes())
    except ValueError as error:
        return str(error)
    return ""


def _transaction_index_problem(path: Path) -> str:
    try:
        entries = read_transaction_index(path)
    except ValueError as error:
        return str(error)
    before = base_offset_of(path) - 1
    for number, entry in enumerate(entries):
        if not 0 <= entry.first_offset < entry.last_offset:
            return (
                f"entry {number} has a transaction from offset {entry.first_offset} to its end at "
                f"{entry.last_offset}"
            )
        # Entries are sorted by end offset, and the end offsets lie in this segment.
        if entry.last_offset <= before:
            return f"entry {number} ends at offset {entry.last_offset}, after {before}"
        before = entry.last_offset
    return ""


def _checkpoint_problem(path: Path) -> str:
    try:
        names, entries = read_checkpoint(path)
        # Every field except a topic name is a number.
        numbers = [
            [parse_number(word) for word in entry[names[0] == "topic" :]] for entry in entries
        ]
    except ValueError as error:
        return str(error)
    if names[0] == "epoch":
        for (epoch, start), (later_epoch, later_start) in pairwise(numbers):
            if later_epoch <= epoch or later_start <= start:
                return f"epoch {later_epoch} at {later_start} comes after epoch {epoch} at {start}"
    return ""
