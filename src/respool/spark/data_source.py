"""`format("respool")`: the door that Spark comes in by. What it opens on is imported when it is opened."""

from pyspark.sql.datasource import DataSource


class RespoolDataSource(DataSource):
    """Topics to read and to write, in batches and as streams."""

    @classmethod
    def name(cls) -> str:
        return "respool"
