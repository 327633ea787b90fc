"""Streaming queries that build tables, and a table as their source.

The source yields the rows that each new version added. Offsets are table id and version.

A batch consists of whole versions, in order; after a restart the same versions yield the same rows. Versions that
remove rows are rejected, because a stream cannot retract rows.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from respool.pipeline.jobs import TableReplaced
from respool.spark.hidden_traceback import hidden_traceback

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from respool.pipeline.tables import Table

NAME = "respool-table"
_ROWS = 50_000


def stream_of(spark: "SparkSession", table: "Table", *, rows_per_batch: int) -> "DataFrame":
    """Stream the table's present and future rows, in batches of whole versions with a target number of rows."""
    spark.dataSource.register(TableStream)
    return (
        spark.readStream.format(NAME)
        .option("path", str(table.path))
        .option("columns", json.dumps(table.schema.jsonValue()))
        .option("partitionBy", json.dumps(table.partition_by))
        .option("rowsPerBatch", str(rows_per_batch))
        .load()
    )


class TableStream(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.options["columns"]))

    def streamReader(self, schema: StructType) -> "TableStreamReader":  # noqa: N802 - Spark's name
        return TableStreamReader(
            self.options["path"],
            schema,
            partition_by=tuple(json.loads(self.options["partitionBy"])),
            rows_per_batch=int(self.options["rowsPerBatch"]),
        )


@dataclass
class FilePart(InputPartition):
    path: str

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class TableStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self,
        path: str,
        schema: StructType,
        *,
        partition_by: tuple[str, ...],
        rows_per_batch: int,
    ) -> None:
        self._path = path
        self._schema = schema
        self._partition_by = partition_by
        self._rows_per_batch = rows_per_batch
        # With AvailableNow: the version at which the query ends.
        self._last: int | None = None

    @hidden_traceback()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's names, from here on
        self._last = self._table().version

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._rows_per_batch)

    @hidden_traceback()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"version": -1, "table": self._table().id}

    @hidden_traceback()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        table = self._same_table(start)
        last = table.version if self._last is None else self._last
        reached = start["version"]
        if not isinstance(limit, ReadMaxRows):
            reached = max(last, reached)
        else:
            rows = 0
            for one in table.additions(after=reached, upto=last, is_new=True):
                reached, rows = one.version, rows + one.rows
                if rows >= limit.max_rows:
                    break
        return {"version": reached, "table": table.id}

    @hidden_traceback()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        table = self._same_table(end)
        found = table.additions(after=start["version"], upto=end["version"], is_new=True)
        return [FilePart(path) for one in found for path in one.paths]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa
        from pyarrow import dataset
        from pyspark.sql.pandas.types import to_arrow_schema

        assert isinstance(partition, FilePart)
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        days = dataset.partitioning(
            pa.schema([wanted.field(name) for name in self._partition_by]), flavor="hive"
        )
        found = dataset.dataset(
            partition.path,
            schema=wanted,
            format="parquet",
            partitioning=days,
            partition_base_dir=self._path,
        )
        for batch in found.to_batches(batch_size=_ROWS):
            yield batch.cast(wanted)

    def _same_table(self, offset: dict[str, Any]) -> "Table":
        """
        Raises:
            TableReplaced: the offset belongs to another table that was at this path.
        """
        table = self._table()
        # Older checkpoints have no id.
        if offset.get("table", table.id) != table.id or offset["version"] > table.version:
            name = table.path.name
            raise TableReplaced(
                name,
                f"delete the tables made from {name}, and their queries' folders in checkpoints",
            )
        return table

    def _table(self) -> "Table":
        from respool.pipeline.tables import Table

        return Table(Path(self._path), lambda: self._schema, partition_by=self._partition_by)


def started(
    writer: "DataStreamWriter", name: str, checkpoint: Path, *, every_ms: int | None
) -> "StreamingQuery":
    """Start the query: it runs to the present end of its source, or, with `every_ms`, until stopped."""
    ready = writer.queryName(name).option("checkpointLocation", str(checkpoint))
    if every_ms is None:
        return ready.trigger(availableNow=True).start()
    return ready.trigger(processingTime=f"{every_ms} milliseconds").start()


def query_id(checkpoint: Path) -> str:
    """Return the id of a running query. With a new checkpoint it gets a new id, and its batch numbers begin at 0."""
    found: str = json.loads((checkpoint / "metadata").read_text())["id"]
    return found
