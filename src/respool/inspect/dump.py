"""Reads the batches, records and entries in a log's files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from respool.inspect.log_files import (
    RECORDS_BYTES_MAX,
    Broken,
    FileKind,
    FoundBatch,
    SegmentFile,
    kind_of,
    read_checkpoint,
    read_offset_index,
    read_time_index,
    read_transaction_index,
)
from respool.log.checkpoint_text import parse_number
from respool.log.index.transaction_index import AbortedTransaction
from respool.log.producers.producer_snapshot import decode_entries
from respool.model.errors import RequestError
from respool.model.operator_errors import NotFound, OperatorError, UsageError
from respool.records.markers import read_marker
from respool.records.record import Record, iterate_records

# The field names of an entry, and the entries.
Entries = tuple[tuple[str, ...], Iterator[tuple[object, ...]]]


class RecordsUnreadable(OperatorError):
    """The records of a batch cannot be decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedBatch:
    batch: FoundBatch
    # 'commit' or 'abort' for a control batch that ends a transaction.
    transaction_end: str | None
    # Empty if not requested. Iterating may raise RecordsUnreadable.
    records: Iterator[Record]


def check_are_log_files(files: Sequence[Path]) -> None:
    """
    Raises:
        NotFound, UsageError: a path is not a file, or not a file of a log.
    """
    for path in files:
        if not path.is_file():
            hint = "give the files in it, such as its .log" if path.is_dir() else ""
            raise NotFound(f"{str(path)!r} is not a file", hint=hint)
        if kind_of(path) is None:
            raise UsageError(
                f"{path.name!r} is not a log file",
                hint="known are .log, .index, .timeindex, .txnindex, .snapshot (named by an offset) and *-checkpoint",
            )


def read_segment(path: Path, *, records: bool, from_offset: int) -> Iterator[DumpedBatch | Broken]:
    """Yield every batch that ends at `from_offset` or later; then one `Broken` if the rest cannot be read."""
    segment = SegmentFile(path)
    try:
        for found in segment.batches(check=True, skip_below=from_offset):
            if isinstance(found, Broken):
                yield found
                return
            inside: Iterator[Record] = iter(())
            # If the checksum is wrong, the records cannot be trusted.
            if records and found.crc_ok:
                inside = (r for r in _records(segment, found) if r.offset >= from_offset)
            yield DumpedBatch(
                batch=found, transaction_end=_transaction_end(segment, found), records=inside
            )
    finally:
        segment.close()


def _transaction_end(segment: SegmentFile, found: FoundBatch) -> str | None:
    if not found.header.is_control or not found.crc_ok or found.header.size > RECORDS_BYTES_MAX:
        return None
    marker = read_marker(segment.read_batch(found))
    if marker is None:
        return None
    return "commit" if marker.is_commit else "abort"


def _records(segment: SegmentFile, found: FoundBatch) -> Iterator[Record]:
    where = f"{segment.path} at byte {found.position}"
    if found.header.size > RECORDS_BYTES_MAX:
        raise RecordsUnreadable(f"{where}: a batch of {found.header.size} bytes is not opened here")
    try:
        yield from iterate_records(segment.read_batch(found), limit=RECORDS_BYTES_MAX)
    except RequestError as error:
        raise RecordsUnreadable(f"{where}: the records cannot be read: {error.message}") from error


def read_entries(path: Path, *, from_offset: int) -> Entries:
    """The entries of an index, a snapshot or a checkpoint.

    Raises:
        OperatorError: a snapshot, a checkpoint or a transaction index cannot be read.
    """
    match kind_of(path):
        case FileKind.OFFSET_INDEX:
            entries = (
                entry for entry in read_offset_index(path) if entry.last_offset >= from_offset
            )
            return ("offset", "position"), entries
        case FileKind.TIME_INDEX:
            times = (entry for entry in read_time_index(path) if entry.last_offset >= from_offset)
            return ("timestamp", "offset"), times
        case FileKind.TRANSACTION_INDEX:
            return _transaction_entries(path, from_offset)
        case FileKind.SNAPSHOT:
            return _snapshot_entries(path)
        case _:
            return _checkpoint_entries(path)


def _snapshot_entries(path: Path) -> Entries:
    try:
        entries = decode_entries(path.read_bytes())
    except ValueError as error:
        raise OperatorError(f"{path}: {error}") from error
    names = (
        "producer_id", "epoch", "last_sequence", "last_offset", "offset_delta", "timestamp",
        "coordinator_epoch", "current_txn_first_offset",
    )  # fmt: skip
    return names, iter(entries)


def _transaction_entries(path: Path, from_offset: int) -> Entries:
    try:
        entries = read_transaction_index(path)
    except ValueError as error:
        raise OperatorError(f"{path}: {error}") from error
    return AbortedTransaction._fields, (
        entry for entry in entries if entry.last_offset >= from_offset
    )


def _checkpoint_entries(path: Path) -> Entries:
    try:
        names, entries = read_checkpoint(path)
        # A topic name may be a number; it stays text.
        rows: list[tuple[object, ...]] = [
            tuple(
                word if name == "topic" else parse_number(word)
                for name, word in zip(names, entry, strict=True)
            )
            for entry in entries
        ]
    except ValueError as error:
        raise OperatorError(f"{path}: {error}") from error
    return names, iter(rows)
