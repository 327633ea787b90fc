"""Registers the data source in sessions that would not find it: those where another Python than this one is searched.

Spark searches the packages of one Python for data sources: PYSPARK_DRIVER_PYTHON, or PYSPARK_PYTHON, or `python3` on
the PATH, as they were when its JVM started. If that has no Respool, because the environment with Respool is not
active, `format("respool")` fails with DATA_SOURCE_NOT_FOUND.
"""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make `format("respool")` known to a session that was started without Respool, and run it with this Python.

    Executors on other machines need Respool in a Python at the same path.
    """
    from respool.spark.data_source import RespoolDataSource

    context = spark.sparkContext
    python_of_session = context.pythonExec
    context.pythonExec = sys.executable
    try:
        spark.dataSource.register(RespoolDataSource)
    finally:
        # Functions of users run where they would have run.
        context.pythonExec = python_of_session


def register_if_hidden(spark: "SparkSession") -> None:
    """Register the source if Spark runs on this machine and looks in the Python of another environment."""
    from pyspark.sql.utils import is_remote

    if is_remote() or not str(spark.sparkContext.master).startswith("local"):
        # Workers elsewhere have Pythons of their own, which the user has chosen.
        return
    if not is_of_this_environment(searched_python(spark)):
        register(spark)


def searched_python(spark: "SparkSession") -> str:
    """The Python whose packages Spark searches for data sources."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - Spark's own way to ask the JVM
    assert jvm is not None
    environment = jvm.System.getenv()
    return str(
        environment.get("PYSPARK_DRIVER_PYTHON") or environment.get("PYSPARK_PYTHON") or "python3"
    )


def is_of_this_environment(python: str) -> bool:
    """Whether it is a Python in the running one's folder. Links are not followed: they lead out of environments."""
    found = shutil.which(python)
    return (
        found is not None
        and Path(found).name.startswith("python")
        and Path(found).absolute().parent == Path(sys.executable).absolute().parent
    )
