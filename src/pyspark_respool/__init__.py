"""Where Spark looks for data sources: packages of this kind of name, and in them a class of this name."""

from respool.spark.data_source import RespoolDataSource as DefaultSource

__all__ = ["DefaultSource"]
