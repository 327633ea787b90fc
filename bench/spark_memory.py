"""A data source that reads nothing: it yields the same Arrow rows from memory, to see what Spark itself costs."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

ROWS_A_BATCH = 50_000


class MemorySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "bench-memory"

    def schema(self) -> StructType:
        from respool.spark.source.columns import full_schema

        return full_schema(include_headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return MemoryReader(
            schema, rows=int(self.options["rows"]), tasks=int(self.options["tasks"])
        )


class MemoryReader(DataSourceReader):
    def __init__(self, schema: StructType, *, rows: int, tasks: int) -> None:
        self._schema = schema
        self._rows = rows
        self._tasks = tasks

    def partitions(self) -> list[InputPartition]:
        bounds = [self._rows * number // self._tasks for number in range(self._tasks + 1)]
        return [InputPartition(bounds[one + 1] - bounds[one]) for one in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import numpy as np
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        rows = ROWS_A_BATCH
        numbers = np.arange(rows)
        columns = {
            "key": pa.array([b"%08d" % (one % 1000) for one in numbers]),
            "value": pa.array([b"%0100d" % one for one in numbers]),
            "topic": pa.array(["rides"] * rows),
            "partition": pa.array(np.zeros(rows, dtype=np.int32)),
            "offset": pa.array(numbers),
            "timestamp": pa.array(numbers).cast(pa.timestamp("us", "UTC")),
            "timestampType": pa.array(np.zeros(rows, dtype=np.int32)),
        }
        schema = to_arrow_schema(self._schema, timezone="UTC")
        batch = pa.RecordBatch.from_arrays([columns[one.name] for one in schema], schema=schema)
        left = partition.value
        while left > 0:
            yield batch.slice(0, min(left, rows))
            left -= rows
