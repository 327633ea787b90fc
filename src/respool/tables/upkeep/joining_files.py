"""Joins small files of one partition into larger ones, and drops files whose rows are beyond the table's retention.

The rows stay as they are, in the order of their offsets. Such a commit takes effect only if the files are still the
table's; a concurrent commit of new rows is not a conflict in Delta; in Iceberg it is, and joining is retried.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyarrow import parquet

from respool.tables.errors import CommitUnknown, TableConflict
from respool.tables.formats.table_log import (
    TableChange,
    TableFile,
    TableLog,
    TableState,
    WrittenFile,
)
from respool.tables.planning.data_file_names import FileName
from respool.tables.planning.file_joining import (
    FILES_MIN,
    JOINED_BYTES_MAX,
    SMALL_BYTES,
    SizedFile,
    plan_joins,
)
from respool.tables.writing.part_files import PartFile

_log = logging.getLogger("respool.tables")
_ATTEMPTS = 5
_ROWS = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    joined: int = 0
    made: int = 0
    bytes: int = 0


def compact(
    log: TableLog,
    *,
    new_random: Callable[[], str],
    small_bytes: int = SMALL_BYTES,
    joined_bytes_max: int = JOINED_BYTES_MAX,
    files_min: int = FILES_MIN,
) -> CompactionResult:
    """Join small files. Each group is one commit, so an interruption loses little."""
    joined = made = size = 0
    state = log.load()
    by_name = {one.name: one for one in log.table_files(state) if one.name is not None}
    groups = plan_joins(
        [SizedFile(name=name, size=one.size) for name, one in by_name.items()],
        small_bytes=small_bytes,
        joined_bytes_max=joined_bytes_max,
        files_min=files_min,
    )
    for group in groups:
        files = [by_name[one.name] for one in group]
        new = _join(log, state, files, new_random())
        if _replace(log, files, new, new_random()):
            joined, made, size = joined + len(files), made + 1, size + new.size
    return CompactionResult(joined=joined, made=made, bytes=size)


def _join(log: TableLog, state: TableState, files: Sequence[TableFile], random: str) -> WrittenFile:
    first, last = _name(files[0]), _name(files[-1])
    schema = log.write_schema(state)
    part = PartFile(log.files, schema, first.partition, first.day)
    try:
        for one in files:
            with log.files.open_input(one.path) as source:
                for batch in parquet.ParquetFile(source).iter_batches(_ROWS):
                    part.add(batch)
        return part.finish(first=first.first, end=last.next, random=random)
    finally:
        part.discard()


def _name(file: TableFile) -> FileName:
    assert file.name is not None
    return file.name


def _replace(log: TableLog, files: Sequence[TableFile], new: WrittenFile, token: str) -> bool:
    """Commit the joined file instead of the others; False if the table no longer has them."""
    paths = {one.path for one in files}
    base = state = log.load()
    for _attempt in range(_ATTEMPTS):
        now = {one.path: one for one in log.table_files(state)}
        if not paths <= now.keys():
            break
        change = TableChange(
            token=token, added=[new], removed=[now[path] for path in sorted(paths)]
        )
        try:
            log.commit(state, change)
        except (TableConflict, CommitUnknown) as error:
            _log.info("joining files of %s: %s", log.files.location, error)
            state = log.load()
            if log.has_token(token, since=base):
                return True
        else:
            return True
    if not log.has_token(token, since=base):
        log.files.delete(new.path)
        return False
    return True


def drop_expired_rows(log: TableLog, *, before_us: int, token: str) -> int:
    """Drop whole files whose newest `_timestamp` lies before this time; return how many."""
    base = state = log.load()
    for _attempt in range(_ATTEMPTS):
        old = [
            one
            for one in log.table_files(state)
            if one.timestamp_max is not None and one.timestamp_max < before_us
        ]
        if not old:
            return 0
        note = f"{len(old)} files are beyond respool.table.retention.ms"
        try:
            log.commit(state, TableChange(token=token, removed=old, note=note))
        except (TableConflict, CommitUnknown) as error:
            _log.info("dropping old files of %s: %s", log.files.location, error)
            state = log.load()
            if log.has_token(token, since=base):
                return len(old)
        else:
            return len(old)
    return 0
