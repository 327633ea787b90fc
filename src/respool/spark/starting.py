"""`session`: a Spark session in which `format("respool")` works, with Java found and Python workers like this one."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from respool.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's row conversion is what bounds a Python source: large batches cost it least (see docs/spark.md).
_DEFAULTS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Off in Spark, because some sources get it wrong.
    "spark.sql.python.filterPushdown.enabled": "true",
}
# A JVM of its own on this machine; else it is somebody's cluster, with rules of its own.
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
    """Start a session, or take the one that runs.

    Args:
        master: Where it runs: `local[2]`, `spark://host:7077`, ...
        settings: Spark's own, over the ones that are set here.

    Raises:
        NoJava: Spark has nothing to run on.
    """
    prepare_environment()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    local = _LOCAL_DEFAULTS if master.startswith("local") else {}
    for key, value in {**_DEFAULTS, **local, **(settings or {})}.items():
        builder = builder.config(key, value)
    made: SparkSession = builder.getOrCreate()
    return made


def prepare_environment() -> None:
    """Say which Java and which Python Spark starts, where nobody said so before."""
    os.environ["JAVA_HOME"] = str(java_home(os.environ))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
