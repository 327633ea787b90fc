"""A table: Parquet files that Spark's executors write in parallel, and a Delta log that lists the committed ones.

Spark has no Delta jar here and needs none: the driver commits the executors' files with delta-rs. A commit is one file
in the log, created atomically, and contains both
- the files that are added and removed, and
- for each source (a topic's partition or another table) the position reached, as a Delta app transaction.
So a table always knows exactly what it contains, and recognizes a repeated batch.

DuckDB, Polars and pandas read the table with `deltalake`; Spark reads the file list of a version: `read`.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from respool.pipeline.jobs import HistoryGone, TableChanged, TableReplaced, TableUnreadable
from respool.pipeline.staging import Staged, drop, drop_old_tries, put_in_place, stage

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

LOG = "_delta_log"
# Files of failed attempts, and replaced files, are kept for readers that still use them.
KEPT_HOURS = 24 * 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    # None: there was nothing to commit.
    version: int | None
    rows: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """The files that one version added."""

    version: int
    paths: tuple[str, ...]
    rows: int


class Table:
    """A table in a folder, with one writer and any number of readers."""

    def __init__(
        self,
        path: Path,
        make_schema: "Callable[[], StructType]",
        *,
        partition_by: Sequence[str] = ("date",),
    ) -> None:
        self.path = path.absolute()
        # Called when rows are written or read by Spark: a report reads tables where Spark is not installed.
        self._make_schema = make_schema
        self.partition_by = tuple(partition_by)

    @property
    def schema(self) -> "StructType":
        return self._make_schema()

    # -- reading

    @property
    def exists(self) -> bool:
        found: bool = DeltaTable.is_deltatable(str(self.path))
        return found

    @property
    def version(self) -> int:
        """The latest version; -1 if the table does not exist."""
        return self.delta().version() if self.exists else -1

    def delta(self, version: int | None = None) -> DeltaTable:
        """
        Raises:
            TableUnreadable: its log is damaged.
        """
        try:
            return DeltaTable(str(self.path), version=version)
        except TableNotFoundError:
            raise
        except DeltaError as error:
            raise TableUnreadable(self.path, str(error)) from error

    def arrow_dataset(self, version: int | None = None) -> "Dataset":
        """The rows of a version as an Arrow dataset, read with Arrow's own file system.

        By default delta-rs gives Arrow a file system in Python. Arrow's I/O threads then acquire the GIL, even to
        release files after the read, and CPython kills a thread that acquires it while the interpreter finalizes. The
        unwinding reaches C++ destructors, and the process aborts ("terminate called without an active exception").
        """
        from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

        files = SubTreeFileSystem(str(self.path), LocalFileSystem())
        return self.delta(version).to_pyarrow_dataset(filesystem=files)

    def position(self, reader: str) -> int | None:
        """The position of `reader` in this table's last commit; None if it has none."""
        return self.delta().transaction_version(reader) if self.exists else None

    @property
    def id(self) -> str:
        """The table's id: a re-created table at the same path has another id, and its versions begin at 0."""
        return str(self.delta().metadata().id)

    def reads(self, source: "Table", version: int) -> dict[str, int]:
        """Positions for a commit, which say that this table contains `source` up to `version`.

        Stored twice: by the source's id, and by its name alone, which reveals a source with another id.
        """
        return {source.path.name: version, f"{source.path.name} {source.id}": version}

    def has_read(self, source: "Table", made: DeltaTable) -> int:
        """Return the version of `source` up to which this table (at state `made`) contains it; -1 if it contains none.

        Raises:
            TableReplaced: its rows came from another table at the path of `source`.
        """
        found = made.transaction_version(f"{source.path.name} {source.id}")
        if found is None and made.transaction_version(source.path.name) is not None:
            raise TableReplaced(source.path.name, f"delete {self.path}")
        return -1 if found is None else int(found)

    def read(
        self,
        spark: "SparkSession",
        *,
        version: int | None = None,
        partitions: Collection[str] | None = None,
    ) -> "DataFrame":
        """Return the rows of a version, by default the latest; with `partitions`, only those of these days."""
        if not self.exists:
            return spark.createDataFrame([], self.schema)
        delta = self.delta(version)
        if partitions is None:
            return self.read_files(spark, delta.file_uris())
        column = self.partition_by[0]
        wanted = [(column, "in", sorted(partitions))]
        return self.read_files(spark, delta.file_uris(wanted) if partitions else [])

    def read_files(self, spark: "SparkSession", paths: Sequence[str]) -> "DataFrame":
        if not paths:
            return spark.createDataFrame([], self.schema)
        names = [field.name for field in self.schema]
        found = spark.read.option("basePath", str(self.path)).schema(self.schema)
        return found.parquet(*paths).select(*names)

    def additions(self, *, after: int, upto: int, is_new: bool = False) -> list[Addition]:
        """Return the rows that each version in (after, upto] added, in order; mere rewrites of files are skipped.

        For a new reader (`is_new`, and `after` is -1), the whole table is one addition if the log lacks its first
        versions.

        Raises:
            HistoryGone: a version's log entry was deleted, or it removed rows.
        """
        if is_new and after == -1 and upto >= 0 and not self._entry(0).exists():
            delta = self.delta(upto)
            rows = sum(delta.get_add_actions(flatten=True).column("num_records").to_pylist())
            return [Addition(version=upto, paths=tuple(delta.file_uris()), rows=rows)]
        return [self._addition(version) for version in range(after + 1, upto + 1)]

    def _entry(self, version: int) -> Path:
        return self.path / LOG / f"{version:020d}.json"

    def _addition(self, version: int) -> Addition:
        try:
            lines = self._entry(version).read_text().splitlines()
        except FileNotFoundError:
            raise HistoryGone(
                f"version {version} of {self.path.name} is no longer in its log, so what it brought is not known; "
                f"delete the tables made from {self.path.name}, and run their jobs again"
            ) from None
        actions = [json.loads(line) for line in lines]
        if any(one["remove"]["dataChange"] for one in actions if "remove" in one):
            raise HistoryGone(
                f"version {version} of {self.path.name} removed rows, which a reader of new rows cannot undo"
            )
        new = [one["add"] for one in actions if "add" in one and one["add"]["dataChange"]]
        return Addition(
            version=version,
            paths=tuple(str(self.path / unquote(one["path"])) for one in new),
            rows=sum(json.loads(one["stats"])["numRecords"] for one in new),
        )

    # -- writing

    # `before` is the table's state when the positions were read. If another process has committed for the same job
    # since then, the commit is rejected. Without `before`, only a concurrent commit is detected.

    def append(
        self,
        frame: "DataFrame",
        *,
        positions: Mapping[str, int],
        before: DeltaTable | None = None,
    ) -> Commit:
        """Add these rows and the positions of their sources in one commit."""
        staged = stage(frame, self.path, self.partition_by)
        return self.commit(staged, positions=positions, before=before)

    def replace(
        self,
        frame: "DataFrame",
        *,
        partitions: Collection[str],
        positions: Mapping[str, int],
        before: DeltaTable,
    ) -> Commit:
        """Replace all rows of these partitions (days), as they were at `before`, in one commit."""
        staged = stage(frame, self.path, self.partition_by)
        return self.commit(staged, positions=positions, instead_of=partitions, before=before)

    def commit(
        self,
        staged: Staged,
        *,
        positions: Mapping[str, int],
        instead_of: Collection[str] | None = None,
        before: DeltaTable | None = None,
    ) -> Commit:
        """Commit staged files, optionally replacing partitions.

        Raises:
            TableChanged: another run of this job committed first. Nothing was changed.
        """
        delta = before or self.made()
        removed = [] if instead_of is None else self._removals(delta, instead_of)
        known = {reader: delta.transaction_version(reader) for reader in positions}
        if not staged.files and not removed and known == dict(positions):
            drop(staged)
            return Commit(version=None)
        put_in_place(staged, self.path)
        now_ms = time.time_ns() // 1_000_000
        try:
            delta.create_write_transaction(
                [*_additions(staged, now_ms), *removed],
                "append",
                delta.schema(),
                list(self.partition_by),
                commit_properties=CommitProperties(
                    app_transactions=[
                        Transaction(reader, position, now_ms)
                        for reader, position in positions.items()
                    ]
                ),
            )
        except CommitFailedError as error:
            # The commit may have succeeded with only its reply lost: then the files belong to the table.
            found = self._committed(staged, after=delta.version())
            if found is not None:
                return Commit(version=found, rows=staged.rows, files=len(staged.files))
            for one in staged.files:
                (self.path / one.path).unlink(missing_ok=True)
            raise TableChanged(
                f"another run committed to {self.path.name} meanwhile ({error}); this one changed nothing, run it again"
            ) from error
        delta.update_incremental()
        return Commit(version=delta.version(), rows=staged.rows, files=len(staged.files))

    def _committed(self, staged: Staged, *, after: int) -> int | None:
        """Return the version after `after` that added these files (their names are unique), or None."""
        wanted = {str(self.path / one.path) for one in staged.files}
        if not wanted:
            return None
        for version in range(after + 1, self.version + 1):
            if wanted <= set(self._brought(version)):
                return version
        return None

    def _brought(self, version: int) -> list[str]:
        actions = [json.loads(line) for line in self._entry(version).read_text().splitlines()]
        return [str(self.path / unquote(one["add"]["path"])) for one in actions if "add" in one]

    def made(self) -> DeltaTable:
        """Return the table; it is created empty if it does not exist."""
        if self.exists:
            return self.delta()
        return DeltaTable.create(
            str(self.path),
            Schema.from_json(_nullable(self.schema.jsonValue())),
            mode="ignore",
            partition_by=list(self.partition_by),
            name=self.path.name,
        )

    def _removals(self, delta: DeltaTable, partitions: Iterable[str]) -> list[RemoveAction]:
        column, wanted = self.partition_by[0], set(partitions)
        now_ms = time.time_ns() // 1_000_000
        found = delta.get_add_actions(flatten=True)
        rows = zip(
            found.column("path").to_pylist(),
            found.column("size_bytes").to_pylist(),
            found.column(f"partition.{column}").to_pylist(),
            strict=True,
        )
        return [
            RemoveAction(path, True, now_ms, size=size, partition_values={column: str(value)})
            for path, size, value in rows
            if str(value) in wanted
        ]

    def clean(self, *, kept_hours: int = KEPT_HOURS) -> int:
        """Delete files that no version of the last `kept_hours` refers to, and files of crashed attempts."""
        if not self.exists:
            return 0
        dropped = self.delta().vacuum(
            retention_hours=kept_hours, dry_run=False, enforce_retention_duration=False, full=True
        )
        return len(dropped) + drop_old_tries(self.path, older_than_s=kept_hours * 3600)


def _additions(staged: Staged, now_ms: int) -> list[AddAction]:
    return [
        AddAction(
            path=one.path,
            size=one.size,
            partition_values=one.partition,
            modification_time=now_ms,
            data_change=True,
            stats=json.dumps({"numRecords": one.rows}),
        )
        for one in staged.files
    ]


def _nullable(schema: dict[str, Any]) -> str:
    """Convert Spark's JSON schema to Delta's: the same, but every column is nullable."""
    fields = [{**field, "nullable": True} for field in schema["fields"]]
    return json.dumps({**schema, "fields": fields})
