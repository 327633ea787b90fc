"""The work of `respool log dump`: what a log's files hold, in words or as JSON lines."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from respool.cli import output
from respool.cli.log_files import (
    RECORDS_BYTES_MAX,
    AbortedEntry,
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
from respool.cli.message_format import bytes_to_json, for_terminal
from respool.log.checkpoint_text import parse_number
from respool.log.producers.producer_snapshot import decode_entries
from respool.model.errors import RequestError
from respool.model.operator_errors import NotFound, OperatorError, UsageError
from respool.model.times import format_ms
from respool.records.batch import Codec
from respool.records.markers import read_marker
from respool.records.record import Record, iterate_records

BATCH_COLUMNS = (
    "offsets", "position", "size", "records", "codec", "from", "to", "epoch", "producer", "flags", "crc",
)  # fmt: skip
BATCH_WIDTHS = (21, 10, 9, 7, 6, 29, 29, 5, 22, 13, 3)
RECORD_COLUMNS = ("offset", "timestamp", "key", "value", "headers")
RECORD_WIDTHS = (10, 29, 12, 40, 10)


def dump_files(
    files: Sequence[Path], *, records: bool, from_offset: int, limit: int | None, as_json: bool
) -> bool:
    """Print them all, and say whether every batch looked at was sound.

    Raises:
        NotFound, UsageError: a path is no file, or none of a log; nothing was printed then.
        OperatorError: a snapshot or checkpoint cannot be read.
    """
    for path in files:
        _check_is_log_file(path)
    sound = True
    for path in files:
        if len(files) > 1 and not as_json:
            output.print_heading(str(path))
        if kind_of(path) is FileKind.LOG:
            sound &= _dump_segment(
                path, records=records, from_offset=from_offset, limit=limit, as_json=as_json
            )
        else:
            _dump_entries(path, from_offset=from_offset, limit=limit, as_json=as_json)
    return sound


def _check_is_log_file(path: Path) -> None:
    if not path.is_file():
        hint = "give the files in it, such as its .log" if path.is_dir() else ""
        raise NotFound(f"{str(path)!r} is not a file", hint=hint)
    if kind_of(path) is None:
        raise UsageError(
            f"{path.name!r} is no log file",
            hint="known are .log, .index, .timeindex, .txnindex, .snapshot (named by an offset) and *-checkpoint",
        )


def _dump_segment(
    path: Path, *, records: bool, from_offset: int, limit: int | None, as_json: bool
) -> bool:
    segment = SegmentFile(path)
    printer = _SegmentPrinter(path, records=records, as_json=as_json)
    sound = True
    try:
        for found in islice(segment.batches(check=True, skip_below=from_offset), limit):
            if isinstance(found, Broken):
                output.print_error(
                    f"{path} at byte {found.position}: {found.what}",
                    f"see what to do with: respool log verify {path}",
                )
                return False
            inside: Iterator[Record] = iter(())
            # Records of a batch whose checksum is wrong would be anything.
            if records and found.crc_ok:
                inside = (r for r in _records(segment, found) if r.offset >= from_offset)
            printer.print_batch(found, inside, _transaction_end(segment, found))
            sound &= bool(found.crc_ok)
    finally:
        segment.close()
    return sound


def _transaction_end(segment: SegmentFile, found: FoundBatch) -> str | None:
    """'commit' or 'abort' of a control batch that ends a transaction."""
    if not found.header.is_control or not found.crc_ok or found.header.size > RECORDS_BYTES_MAX:
        return None
    marker = read_marker(segment.read_batch(found))
    if marker is None:
        return None
    return "commit" if marker.is_commit else "abort"


def _records(segment: SegmentFile, found: FoundBatch) -> Iterator[Record]:
    where = f"{segment.path} at byte {found.position}"
    if found.header.size > RECORDS_BYTES_MAX:
        output.print_error(f"{where}: a batch of {found.header.size} bytes is not opened here")
        return
    try:
        yield from iterate_records(segment.read_batch(found), limit=RECORDS_BYTES_MAX)
    except RequestError as error:
        output.print_error(f"{where}: the records cannot be read: {error.message}")


class _SegmentPrinter:
    def __init__(self, path: Path, *, records: bool, as_json: bool) -> None:
        self._path = path
        self._with_records = records
        self._as_json = as_json
        self._batches = output.RowStream(BATCH_COLUMNS, BATCH_WIDTHS)
        self._records = output.RowStream(RECORD_COLUMNS, RECORD_WIDTHS, indent="    ")

    def print_batch(
        self, found: FoundBatch, records: Iterator[Record], transaction_end: str | None
    ) -> None:
        if self._as_json:
            document = {"file": str(self._path), **batch_document(found, transaction_end)}
            if self._with_records:
                document["records"] = [_record_document(record) for record in records]
            output.print_line(output.json_line(document))
            return
        # With both kinds on one pipe, the first field tells them apart.
        marked = self._with_records and not output.is_terminal()
        row = batch_row(found, transaction_end)
        self._batches.print_row(("batch", *row) if marked else row)
        for record in records:
            row = _record_row(record)
            self._records.print_row(("record", *row) if marked else row)


def batch_row(found: FoundBatch, transaction_end: str | None) -> tuple[object, ...]:
    header = found.header
    producer = None
    if header.has_producer_id:
        producer = f"{header.producer_id}/{header.producer_epoch}"
        # A transaction's end has none.
        if header.base_sequence >= 0:
            producer += f" {header.base_sequence}-{header.last_sequence}"
    flags = [
        word
        for word, is_set in (
            ("append-time", header.is_log_append_time),
            ("transactional", header.is_transactional),
            (transaction_end or "control", header.is_control),
            # The base timestamp is then not a record's.
            ("delete-horizon", header.has_delete_horizon),
        )
        if is_set
    ]
    return (
        f"{header.base_offset}-{header.last_offset}",
        found.position,
        header.size,
        header.record_count,
        _codec_name(header.codec_bits) or f"codec {header.codec_bits}?",
        format_ms(header.base_timestamp),
        format_ms(header.max_timestamp),
        header.leader_epoch,
        producer,
        ",".join(flags) or None,
        "ok" if found.crc_ok else "BAD",
    )


def batch_document(found: FoundBatch, transaction_end: str | None) -> dict[str, object]:
    header = found.header
    return {
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "position": found.position,
        "size": header.size,
        "record_count": header.record_count,
        # None: no codec of Kafka has this number.
        "codec": _codec_name(header.codec_bits),
        "codec_bits": header.codec_bits,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence if header.base_sequence >= 0 else -1,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "transaction_end": transaction_end,
        "crc": header.crc,
        "crc_ok": found.crc_ok,
    }


def _codec_name(bits: int) -> str | None:
    try:
        return Codec(bits).name.lower()
    except ValueError:
        return None


def _record_row(record: Record) -> tuple[object, ...]:
    headers = ",".join(f"{name}={for_terminal(value or b'')}" for name, value in record.headers)
    return (
        record.offset,
        format_ms(record.timestamp),
        None if record.key is None else for_terminal(record.key),
        None if record.value is None else for_terminal(record.value),
        headers or None,
    )


def _record_document(record: Record) -> dict[str, object]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": bytes_to_json(record.key),
        "value": bytes_to_json(record.value),
        "headers": [[name, bytes_to_json(value)] for name, value in record.headers],
    }


def _dump_entries(path: Path, *, from_offset: int, limit: int | None, as_json: bool) -> None:
    names, rows = _entries_of(path, from_offset)
    stream = output.RowStream(names, [max(14, len(name)) for name in names])
    for row in islice(rows, limit):
        if as_json:
            fields = dict(zip(names, row, strict=True))
            output.print_line(output.json_line({"file": str(path), **fields}))
        else:
            stream.print_row(row)


def _entries_of(
    path: Path, from_offset: int
) -> tuple[tuple[str, ...], Iterator[tuple[object, ...]]]:
    """The names of an entry's fields, and the entries."""
    match kind_of(path):
        case FileKind.OFFSET_INDEX:
            entries = (entry for entry in read_offset_index(path) if entry.offset >= from_offset)
            return ("offset", "position"), entries
        case FileKind.TIME_INDEX:
            times = (entry for entry in read_time_index(path) if entry.offset >= from_offset)
            return ("timestamp", "offset"), times
        case FileKind.TRANSACTION_INDEX:
            return _transaction_entries(path, from_offset)
        case FileKind.SNAPSHOT:
            return _snapshot_entries(path)
        case _:
            return _checkpoint_entries(path)


def _snapshot_entries(path: Path) -> tuple[tuple[str, ...], Iterator[tuple[object, ...]]]:
    try:
        entries = decode_entries(path.read_bytes())
    except ValueError as error:
        raise OperatorError(f"{path}: {error}") from error
    names = (
        "producer_id", "epoch", "last_sequence", "last_offset", "offset_delta", "timestamp",
        "coordinator_epoch", "current_txn_first_offset",
    )  # fmt: skip
    return names, iter(entries)


def _transaction_entries(
    path: Path, from_offset: int
) -> tuple[tuple[str, ...], Iterator[tuple[object, ...]]]:
    try:
        entries = read_transaction_index(path)
    except ValueError as error:
        raise OperatorError(f"{path}: {error}") from error
    return AbortedEntry._fields, (entry for entry in entries if entry.last_offset >= from_offset)


def _checkpoint_entries(path: Path) -> tuple[tuple[str, ...], Iterator[tuple[object, ...]]]:
    try:
        names, entries = read_checkpoint(path)
        # A topic may be named 7; the other fields are numbers.
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
