"""A data source that reads nothing: it yields the same Arrow rows from memory, to see what Spark itself costs."""

import json
from collections.abc import Iterator
from functools import cache
from itertools import cycle
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

# As many as the source makes of one fetch of such messages.
ROWS_A_BATCH = 59_000
# Different rows, over and over: as many as no processor's cache can hold, for what is read of a topic is in none.
ROWS_KEPT = 10 * ROWS_A_BATCH


class MemorySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "bench-memory"

    def schema(self) -> StructType:
        from respool.spark.source.source_columns import full_schema

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
        left = partition.value
        for batch in cycle(_batches(self._schema.json())):
            yield batch.slice(0, min(left, ROWS_A_BATCH))
            left -= ROWS_A_BATCH
            if left <= 0:
                return


@cache
def _batches(schema_json: str) -> list[Any]:
    """Made once in each of Spark's Python processes: when it is warmed up."""
    import numpy as np
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(StructType.fromJson(json.loads(schema_json)), timezone="UTC")
    batches = []
    for first in range(0, ROWS_KEPT, ROWS_A_BATCH):
        numbers = np.arange(first, first + ROWS_A_BATCH)
        columns = {
            "key": pa.array(np.char.zfill((numbers % 1000).astype("S"), 8)),
            "value": pa.array(np.char.zfill(numbers.astype("S"), 100)),
            "topic": pa.array(["rides"] * ROWS_A_BATCH),
            "partition": pa.array(np.zeros(ROWS_A_BATCH, dtype=np.int32)),
            "offset": pa.array(numbers),
            "timestamp": pa.array(numbers).cast(pa.timestamp("us", "UTC")),
            "timestampType": pa.array(np.zeros(ROWS_A_BATCH, dtype=np.int32)),
        }
        arrays = [columns[one.name] for one in schema]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return batches
