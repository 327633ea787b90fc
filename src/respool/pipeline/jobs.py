"""The jobs by name, in order of their dependencies."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.pipeline.job_outcome import JobOutcome, ProgressListener
    from respool.pipeline.job_settings import PipelineSettings

    Run = Callable[["SparkSession", "PipelineSettings", "ProgressListener"], "JobOutcome"]

# Name -> module. The command line's help describes each.
JOBS = {
    "bronze": "bronze",
    "silver": "silver",
    "gold": "gold",
    "fraud": "live_scores",
    "replay-fraud": "past_scores",
    "warehouse": "warehouse",
}
# Jobs that are streaming queries and keep running with --continuous; the others are repeated.
STREAMING = ("bronze", "gold")
# Jobs that read the topic itself.
READ_TOPIC = frozenset({"bronze", "replay-fraud", "warehouse"})
# Jobs that read or write any topic.
USE_BROKER = READ_TOPIC | {"fraud"}
# Job -> the job whose table it reads.
STANDS_ON = {"silver": "bronze", "gold": "silver", "fraud": "silver"}


def job(name: str) -> "Run":
    """Return the job's `run`. Imports it only now, because it imports much of Spark."""
    run: Run = import_module(f"respool.pipeline.{JOBS[name]}").run
    return run
