"""`format("respool")`: the entry point for Spark. Readers and writers are imported only when they are used."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from respool.spark.hidden_traceback import hidden_traceback
from respool.spark.worker import skip_finalization

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

skip_finalization()


class RespoolDataSource(DataSource):
    """Reads and writes topics, in batches and as streams."""

    @classmethod
    def name(cls) -> str:
        return "respool"

    @hidden_traceback()
    def schema(self) -> "StructType":
        from respool.spark.option_values import Options
        from respool.spark.source.source_columns import full_schema
        from respool.spark.source.source_options import SourceOptions

        # Parse all options here, so that errors appear when the frame is created, not when it is used.
        options = SourceOptions.of(Options(self.options))
        return full_schema(include_headers=options.include_headers)

    @hidden_traceback()
    def reader(self, schema: "StructType") -> "DataSourceReader":
        from respool.spark.source.batch_reader import batch_reader

        return batch_reader(self.options, schema)

    @hidden_traceback()
    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":  # noqa: N802
        from respool.spark.source.stream_reader import StreamReader

        return StreamReader(self.options, schema)

    @hidden_traceback()
    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from respool.spark.sink.batch_writer import BatchWriter

        writer = BatchWriter(self.options, schema, overwrite=overwrite)
        writer.check_brokers()
        return writer

    @hidden_traceback()
    def streamWriter(  # noqa: N802
        self, schema: "StructType", overwrite: bool
    ) -> "DataSourceStreamWriter":
        from respool.spark.sink.stream_writer import StreamWriter

        return StreamWriter(self.options, schema, overwrite=overwrite)
