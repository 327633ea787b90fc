"""Checks one segment in one pass: its batches, and both indexes along with them.

```
 .log        | batch 0-9 | batch 10-19 | batch 20-29 | …
 .index            (19, position of batch 10-19)          points at a batch's start, and into its offsets
 .timeindex        (largest timestamp so far, 19)         that batch is the first that has it
```
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from respool.inspect.log_files import (
    Broken,
    FileKind,
    FoundBatch,
    SegmentFile,
    base_offset_of,
    odd_bytes,
    read_offset_index,
    read_time_index,
)
from respool.inspect.transaction_check import TransactionCheck

REMEDY_DATA = (
    "stop the broker and restore this partition's folder from a backup; or, to keep only what stands before the "
    "damage: respool log accept-loss DATA_FOLDER TOPIC-PARTITION"
)
REMEDY_INDEX = (
    "stop the broker and delete this file: it is built again from the .log at the next start"
)
REMEDY_ABORTED = (
    "stop the broker and restore this file from a backup: it tells read_committed readers "
    "what was aborted"
)
REMEDY_TAIL = "nothing: a broker is writing there now, or truncates it when it starts after a crash"


class FindingKind(StrEnum):
    """The subject of a finding, for programs."""

    BATCH = "batch"
    # The torn end of a log that is being written, or was when the broker crashed.
    TORN_TAIL = "torn_tail"
    # Records that were durable according to the checkpoints, but are not in the log.
    MISSING_RECORDS = "missing_records"
    OFFSET_INDEX = "offset_index"
    TIME_INDEX = "time_index"
    TRANSACTION_INDEX = "transaction_index"
    PRODUCER_SNAPSHOT = "producer_snapshot"
    CHECKPOINT = "checkpoint"


# Finding kinds for the files beside a `.log` file.
KIND_OF_FILE = {
    FileKind.OFFSET_INDEX: FindingKind.OFFSET_INDEX,
    FileKind.TIME_INDEX: FindingKind.TIME_INDEX,
    FileKind.TRANSACTION_INDEX: FindingKind.TRANSACTION_INDEX,
    FileKind.SNAPSHOT: FindingKind.PRODUCER_SNAPSHOT,
    FileKind.CHECKPOINT: FindingKind.CHECKPOINT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem, where it is, and what to do about it."""

    path: Path
    # The position in the file in bytes; None if the finding concerns the whole file.
    position: int | None
    kind: FindingKind
    what: str
    remedy: str
    # False: unusual, but no records are lost and no action is needed.
    is_damage: bool = True


@dataclass(slots=True, kw_only=True)
class OffsetOrder:
    """What the batches so far imply for the next one; carried from segment to segment."""

    next_offset: int = 0
    leader_epoch: int = -1


class SegmentCheck:
    def __init__(self, path: Path, order: OffsetOrder, transactions: TransactionCheck) -> None:
        self.findings: list[Finding] = []
        self._path = path
        self._order = order
        self._transactions = transactions
        self._largest_timestamp = -1

    def run(self) -> Iterator[FoundBatch]:
        """Yield every batch as it is checked; `findings` is complete when the iterator ends."""
        indexes: list[IndexWalk] = [OffsetIndexWalk(self._path), TimeIndexWalk(self._path)]
        segment = SegmentFile(self._path)
        self._transactions.begin(self._path)
        broken = False
        try:
            for found in segment.batches(check=True):
                if isinstance(found, Broken):
                    broken = True
                    self._on_broken(found)
                    continue
                self._check_batch(found)
                self._aborted_wrong(self._transactions.on_batch(found, segment))
                for index in indexes:
                    index.on_batch(found, largest_before=self._largest_timestamp)
                self._largest_timestamp = max(
                    self._largest_timestamp, found.header.latest_timestamp
                )
                yield found
            # A running broker may have appended to log and index since we began.
            is_growing = self._path.stat().st_size != segment.size
        finally:
            segment.close()
        for index in indexes:
            # Index entries for offsets behind the damage cannot be checked.
            if not broken and not is_growing:
                index.on_end()
            self.findings += index.findings
        if not broken and not is_growing:
            self._aborted_wrong(self._transactions.on_end())

    def _check_batch(self, found: FoundBatch) -> None:
        header, order = found.header, self._order
        lowest = max(order.next_offset, base_offset_of(self._path))
        if not found.crc_ok:
            self._damage(
                found.position, f"the batch at offset {header.base_offset} fails its checksum"
            )
        if header.base_offset < lowest:
            self._damage(
                found.position, f"a batch begins at offset {header.base_offset}, after {lowest - 1}"
            )
        if header.record_count > header.last_offset_delta + 1:
            self._damage(
                found.position,
                f"a batch has {header.record_count} records and room for {header.last_offset_delta + 1}",
            )
        if header.leader_epoch < order.leader_epoch:
            self._damage(
                found.position,
                f"leader epoch {header.leader_epoch} comes after {order.leader_epoch}",
            )
        order.next_offset = max(order.next_offset, header.next_offset)
        order.leader_epoch = max(order.leader_epoch, header.leader_epoch)

    def _aborted_wrong(self, what: str) -> None:
        if what:
            path = self._path.with_suffix(".txnindex")
            self.findings.append(
                Finding(
                    path=path,
                    position=None,
                    kind=FindingKind.TRANSACTION_INDEX,
                    what=what,
                    remedy=REMEDY_ABORTED,
                )
            )

    def _on_broken(self, broken: Broken) -> None:
        if broken.is_truncated and self._is_last_segment():
            self.findings.append(
                Finding(
                    path=self._path,
                    position=broken.position,
                    kind=FindingKind.TORN_TAIL,
                    what=f"the end is not a whole batch: {broken.what}",
                    remedy=REMEDY_TAIL,
                    is_damage=False,
                )
            )
        else:
            self._damage(broken.position, f"{broken.what}; what follows it was not read")

    def _is_last_segment(self) -> bool:
        own = base_offset_of(self._path)
        others = (each for each in self._path.parent.glob("*.log") if each.stem.isdecimal())
        return all(base_offset_of(each) <= own for each in others)

    def _damage(self, position: int, what: str) -> None:
        self.findings.append(
            Finding(
                path=self._path,
                position=position,
                kind=FindingKind.BATCH,
                what=what,
                remedy=REMEDY_DATA,
            )
        )


class IndexWalk:
    """An index checked in step with the batches. Checking ends at the first wrong entry: the index must be rebuilt."""

    suffix: ClassVar[str]
    kind: ClassVar[FileKind]
    entry_bytes: ClassVar[int]
    field_names: ClassVar[tuple[str, str]]

    def __init__(self, log_path: Path) -> None:
        self.path = log_path.with_suffix(self.suffix)
        self.findings: list[Finding] = []
        self._entries: Iterator[tuple[int, int]] = iter(())
        # The next entry, and the number of entries before it.
        self._entry: tuple[int, int] | None = None
        self._number = -1
        if self.path.is_file():
            self._check_size()
            self._entries = self._read()
            self._next()

    def on_batch(self, found: FoundBatch, *, largest_before: int) -> None:
        """Check the entries that concern this batch; `largest_before` is the largest timestamp before it."""
        raise NotImplementedError

    def on_end(self) -> None:
        if self._entry is not None:
            self._wrong("points beyond the last batch")

    def _read(self) -> Iterator[tuple[int, int]]:
        raise NotImplementedError

    def _next(self) -> None:
        last, self._entry = self._entry, next(self._entries, None)
        self._number += 1
        if last is not None and self._entry is not None:
            before = zip(self._entry, last, strict=True)
            if any(now <= then for now, then in before):
                self._wrong(f"does not come after {self._words(last)}")

    def _wrong(self, what: str) -> None:
        assert self._entry is not None
        self.findings.append(
            Finding(
                path=self.path,
                position=self._number * self.entry_bytes,
                kind=KIND_OF_FILE[self.kind],
                what=f"entry {self._number}, {self._words(self._entry)}, {what}",
                remedy=REMEDY_INDEX,
            )
        )
        self._entry = None

    def _words(self, entry: tuple[int, int]) -> str:
        first, second = self.field_names
        return f"({first} {entry[0]}, {second} {entry[1]})"

    def _check_size(self) -> None:
        left = odd_bytes(self.path, self.kind)
        if left:
            what = f"{left} bytes at the end make no whole entry"
            self.findings.append(
                Finding(
                    path=self.path,
                    position=None,
                    kind=KIND_OF_FILE[self.kind],
                    what=what,
                    remedy=REMEDY_INDEX,
                )
            )


class OffsetIndexWalk(IndexWalk):
    suffix = ".index"
    kind = FileKind.OFFSET_INDEX
    entry_bytes = 8
    field_names = ("offset", "byte")

    def on_batch(self, found: FoundBatch, *, largest_before: int) -> None:
        del largest_before
        if self._entry is not None and self._entry[1] < found.position:
            self._wrong("points at a byte where no batch begins")
        if self._entry is not None and self._entry[1] == found.position:
            first, last = found.header.base_offset, found.header.last_offset
            if first <= self._entry[0] <= last:
                self._next()
            else:
                self._wrong(f"points at the batch of offsets {first} to {last}")

    def _read(self) -> Iterator[tuple[int, int]]:
        return read_offset_index(self.path)


class TimeIndexWalk(IndexWalk):
    suffix = ".timeindex"
    kind = FileKind.TIME_INDEX
    entry_bytes = 12
    field_names = ("time", "offset")

    def on_batch(self, found: FoundBatch, *, largest_before: int) -> None:
        header = found.header
        if self._entry is not None and self._entry[1] < header.base_offset:
            self._wrong("names an offset that no batch has")
        if self._entry is not None and self._entry[1] <= header.last_offset:
            if largest_before < self._entry[0] == header.latest_timestamp:
                self._next()
            else:
                self._wrong(
                    "should name a batch later than all before it; the largest time there is "
                    f"{header.latest_timestamp}, and before it {largest_before}"
                )

    def _read(self) -> Iterator[tuple[int, int]]:
        return read_time_index(self.path)
