"""Topics as data frames: the data source `respool` for PySpark, and sessions that start without a jar.

Spark finds the source by itself, through the package `pyspark_respool`: `spark.read.format("respool")` needs no
registration. Large modules are imported only where they are used, because Spark starts many small Python processes.
"""

from respool.spark.register_source import register
from respool.spark.starting import session

__all__ = ["register", "session"]
