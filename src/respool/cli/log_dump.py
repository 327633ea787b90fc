"""Print `respool log dump`: the batches, records and entries of a log's files, as text or as JSON lines."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from respool.cli import output
from respool.cli.messages.message_format import for_terminal
from respool.inspect.dump import (
    DumpedBatch,
    RecordsUnreadable,
    check_are_log_files,
    read_entries,
    read_segment,
)
from respool.inspect.log_files import Broken, FileKind, FoundBatch, kind_of
from respool.model.json_bytes import bytes_to_json
from respool.model.times import format_ms
from respool.records.batch import Codec
from respool.records.record import Record

BATCH_COLUMNS = (
    "offsets", "position", "size", "records", "codec", "from", "to", "epoch", "producer", "flags", "crc",
)  # fmt: skip
BATCH_WIDTHS = (21, 10, 9, 7, 6, 29, 29, 5, 22, 13, 3)
RECORD_COLUMNS = ("offset", "timestamp", "key", "value", "headers")
RECORD_WIDTHS = (10, 29, 12, 40, 10)


def dump_files(
    files: Sequence[Path], *, records: bool, from_offset: int, limit: int | None, as_json: bool
) -> bool:
    """Print all files; return whether every batch read is intact.

    Raises:
        NotFound, UsageError: a path is not a file, or not a log's file; nothing was printed then.
        OperatorError: a snapshot or checkpoint cannot be read.
    """
    check_are_log_files(files)
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


def _dump_segment(
    path: Path, *, records: bool, from_offset: int, limit: int | None, as_json: bool
) -> bool:
    printer = _SegmentPrinter(path, records=records, as_json=as_json)
    sound = True
    for found in islice(read_segment(path, records=records, from_offset=from_offset), limit):
        if isinstance(found, Broken):
            output.print_error(
                f"{path} at byte {found.position}: {found.what}",
                f"see what to do with: respool log verify {path}",
            )
            return False
        printer.print_batch(found)
        sound &= bool(found.batch.crc_ok)
    return sound


def _readable(records: Iterator[Record]) -> Iterator[Record]:
    try:
        yield from records
    except RecordsUnreadable as error:
        output.print_error(error.message)


class _SegmentPrinter:
    def __init__(self, path: Path, *, records: bool, as_json: bool) -> None:
        self._path = path
        self._with_records = records
        self._as_json = as_json
        self._batches = output.RowStream(BATCH_COLUMNS, BATCH_WIDTHS)
        self._records = output.RowStream(RECORD_COLUMNS, RECORD_WIDTHS, indent="    ")

    def print_batch(self, dumped: DumpedBatch) -> None:
        found, transaction_end = dumped.batch, dumped.transaction_end
        records = _readable(dumped.records)
        if self._as_json:
            document = {"file": str(self._path), **batch_document(found, transaction_end)}
            if self._with_records:
                document["records"] = [_record_document(record) for record in records]
            output.print_line(output.json_line(document))
            return
        # With batches and records on one pipe, the first field tells them apart.
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
        # Control batches have no sequence numbers.
        if header.base_sequence >= 0:
            producer += f" {header.base_sequence}-{header.last_sequence}"
    flags = [
        word
        for word, is_set in (
            ("append-time", header.is_log_append_time),
            ("transactional", header.is_transactional),
            (transaction_end or "control", header.is_control),
            # The base timestamp field then holds the delete horizon, not a record's timestamp.
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
        # None: Kafka has no codec with this number.
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
    names, rows = read_entries(path, from_offset=from_offset)
    stream = output.RowStream(names, [max(14, len(name)) for name in names])
    for row in islice(rows, limit):
        if as_json:
            fields = dict(zip(names, row, strict=True))
            output.print_line(output.json_line({"file": str(path), **fields}))
        else:
            stream.print_row(row)
