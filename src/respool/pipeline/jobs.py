"""The jobs by name, in the order in which they stand on each other."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.pipeline.outcome import Outcome, Teller
    from respool.pipeline.settings import PipelineSettings

    Run = Callable[["SparkSession", "PipelineSettings", "Teller"], "Outcome"]

# Name -> the module that has it. What each does is told by the command line's help.
JOBS = {
    "bronze": "bronze",
    "silver": "silver",
    "gold": "gold",
    "fraud": "fraud",
    "replay-fraud": "replay",
    "warehouse": "warehouse",
}
# Those that are streaming queries, and stay up with --continuous; the others run again and again.
STREAMING = ("bronze", "gold")
# Those that read the topic itself.
READ_TOPIC = frozenset({"bronze", "replay-fraud", "warehouse"})
# Job -> the table it reads, which the job of that name writes.
STANDS_ON = {"silver": "bronze", "gold": "silver", "fraud": "silver"}


def job(name: str) -> "Run":
    """The job's `run`; it is imported now, and with it much of Spark."""
    run: Run = import_module(f"respool.pipeline.{JOBS[name]}").run
    return run
