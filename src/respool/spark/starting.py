"""`session`: a Spark session in which `format("respool")` works; finds Java, and uses this Python for workers."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from respool.spark.java import java_home
from respool.spark.register_source import register_if_hidden

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's row conversion limits the speed of a Python source; large batches cost it least (see docs/spark.md).
_DEFAULTS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Off by default in Spark, because some sources implement it incorrectly.
    "spark.sql.python.filterPushdown.enabled": "true",
}
# For a local JVM; otherwise it is an existing cluster, with its own settings.
_LOCAL_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "8",
}


def session(
    name: str = "respool",
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Start a session, or return the running one.

    Args:
        master: Where Spark runs: `local[2]`, `spark://host:7077`, ...
        settings: Spark settings, which override the defaults here.

    Raises:
        NoJava: no Java for Spark was found.
    """
    prepare_environment()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    local = _LOCAL_DEFAULTS if master.startswith("local") else {}
    for key, value in {**_DEFAULTS, **local, **(settings or {})}.items():
        builder = builder.config(key, value)
    made: SparkSession = builder.getOrCreate()
    register_if_hidden(made)
    return made


def prepare_environment() -> None:
    """Set the Java and Python for Spark, unless they are already set."""
    os.environ["JAVA_HOME"] = str(java_home(os.environ))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
