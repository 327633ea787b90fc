"""Parquet files being written: one for each partition (and day), bounded in size; together, bounded in memory.

Rows wait in memory until they make a row group, and are then compressed into a hidden file. A file gets its final name
when the writer completes it with its end offset.
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from respool.tables.formats.file_store import FileStore
from respool.tables.formats.table_log import WrittenFile
from respool.tables.layout import (
    DATE,
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    REST,
    TIMESTAMP,
    VALUE,
)
from respool.tables.planning.data_file_names import FOLDER, FileName

MIB = 1024 * 1024
ROW_GROUP_ROWS = 1_000_000
ROW_GROUP_BYTES = 64 * MIB
_DELTA = {OFFSET: "DELTA_BINARY_PACKED", TIMESTAMP: "DELTA_BINARY_PACKED"}
# Message values rarely repeat: Parquet would build a dictionary and then discard it.
_WITHOUT_DICTIONARY = {OFFSET, TIMESTAMP, KEY, VALUE, HEADERS, REST}


class PartFile:
    """One file. The rows of a range go into it in order."""

    def __init__(
        self, files: FileStore, schema: pa.Schema, partition: int, day: str | None
    ) -> None:
        self._files = files
        self._schema = schema
        self.partition = partition
        self.day = day
        self._held: list[pa.RecordBatch] = []
        self.held_bytes = 0
        self._held_rows = 0
        self._aside: Path | None = None
        self._writer: parquet.ParquetWriter | None = None
        self._sink: Any = None
        self.rows = 0
        self._offsets: list[int] = []
        self._times: list[int] = []

    @property
    def size(self) -> int:
        """The size so far: bytes written, and buffered bytes before compression."""
        written = 0 if self._sink is None else int(self._sink.tell())
        return written + self.held_bytes

    def add(self, batch: pa.RecordBatch) -> None:
        offsets, times = batch.column(OFFSET), batch.column(TIMESTAMP)
        self._offsets = [
            self._offsets[0] if self._offsets else offsets[0].as_py(),
            offsets[-1].as_py(),
        ]
        bounds = pc.min_max(times.cast(pa.int64()))
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        known = self._times or [low, high]
        self._times = [min(known[0], low), max(known[1], high)]
        self._held.append(batch)
        self.held_bytes += batch.nbytes
        self._held_rows += batch.num_rows
        self.rows += batch.num_rows
        if self._held_rows >= ROW_GROUP_ROWS or self.held_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows as a row group."""
        if not self._held:
            return
        if self._writer is None:
            self._open()
        assert self._writer is not None
        table = _fitted(pa.Table.from_batches(self._held), self._schema)
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        self._held, self.held_bytes, self._held_rows = [], 0, 0

    def _open(self) -> None:
        folder = None
        if self._files.is_local:
            folder = self._files.local_folder / FOLDER / str(self.partition)
            folder.mkdir(parents=True, exist_ok=True)
        # Hidden from readers, and on the same disk as the table.
        handle, name = tempfile.mkstemp(prefix=".writing-", dir=folder)
        self._aside = Path(name)
        self._sink = os.fdopen(handle, "wb")
        self._writer = parquet.ParquetWriter(
            self._sink,
            self._schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=_dictionaries(self._schema),
            column_encoding={
                name: kind for name, kind in _DELTA.items() if name in self._schema.names
            },
            write_statistics=[OFFSET, TIMESTAMP, PARTITION],
            store_schema=False,
        )

    def finish(self, *, first: int, end: int, random: str) -> WrittenFile:
        """Complete the file: it has the rows of the offsets [first, end)."""
        self.flush()
        assert self._writer is not None
        assert self._aside is not None
        self._writer.close()
        self._sink.close()
        name = FileName(
            partition=self.partition, first=first, next=end, day=self.day, random=random
        )
        size = self._aside.stat().st_size
        if self._files.is_local:
            self._aside.chmod(0o644)
            self._aside.replace(self._files.local_folder / name.path)
            self._files.sync(name.path)
        else:
            with self._aside.open("rb") as source, self._files.open_output(name.path) as target:
                shutil.copyfileobj(source, target, 8 * MIB)
            self._aside.unlink()
        self._aside = None
        return WrittenFile(
            name=name,
            rows=self.rows,
            size=size,
            offset_min=self._offsets[0],
            offset_max=self._offsets[1],
            timestamp_min=self._times[0],
            timestamp_max=self._times[1],
        )

    def discard(self) -> None:
        if self._aside is not None:
            self._sink.close()
            self._aside.unlink(missing_ok=True)
            self._aside = None
        self._held = []


class PartFiles:
    """The files of several partitions that are being written."""

    def __init__(
        self,
        files: FileStore,
        schema: pa.Schema,
        *,
        by_day: bool,
        held_bytes_max: int,
        random: Callable[[], str],
    ) -> None:
        self._files = files
        self._schema = schema
        self._by_day = by_day
        self._held_bytes_max = held_bytes_max
        self._random = random
        self._open: dict[int, dict[str | None, PartFile]] = {}

    def add(self, partition: int, batch: pa.RecordBatch) -> int:
        """Add rows in the order of their offsets; return the size of the partition's files so far."""
        parts = self._open.setdefault(partition, {})
        for day, rows in self._days(batch):
            part = parts.get(day)
            if part is None:
                part = parts[day] = PartFile(self._files, self._schema, partition, day)
            part.add(rows)
        self._bound_memory()
        return sum(one.size for one in parts.values())

    def _days(self, batch: pa.RecordBatch) -> list[tuple[str | None, pa.RecordBatch]]:
        if not self._by_day:
            return [(None, batch)]
        days = batch.column(DATE)
        return [
            (str(day), batch.filter(pc.equal(days, day))) for day in pc.unique(days) if day.is_valid
        ]

    def _bound_memory(self) -> None:
        every = [one for parts in self._open.values() for one in parts.values()]
        while sum(one.held_bytes for one in every) > self._held_bytes_max:
            max(every, key=lambda one: one.held_bytes).flush()

    def finish(self, partition: int, *, first: int, end: int) -> list[WrittenFile]:
        """Complete the partition's files, which have the rows of the offsets [first, end)."""
        parts = self._open.pop(partition, {})
        return [one.finish(first=first, end=end, random=self._random()) for one in parts.values()]

    def discard(self) -> None:
        for parts in self._open.values():
            for one in parts.values():
                one.discard()
        self._open = {}


def _dictionaries(schema: pa.Schema) -> list[str] | bool:
    found = [
        path
        for field in schema
        if field.name not in _WITHOUT_DICTIONARY
        for path in _leaves(field.name, field.type)
    ]
    return found or False


def _leaves(path: str, kind: pa.DataType) -> list[str]:
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return [leaf for one in fields for leaf in _leaves(f"{path}.{one.name}", one.type)]
    if pa.types.is_list(kind):
        return _leaves(f"{path}.list.element", kind.value_type)
    return [path]


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same rows under the file's schema, which may have field ids, and columns that another program added."""
    if table.schema.equals(schema, check_metadata=True):
        return table
    has = set(table.schema.names)
    columns = [
        table.column(one.name) if one.name in has else pa.nulls(table.num_rows, one.type)
        for one in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)
