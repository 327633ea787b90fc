"""The jobs by name, in the order in which they stand on each other."""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from respool.pipeline.outcome import Outcome, Teller
    from respool.pipeline.settings import PipelineSettings

    Run = Callable[["SparkSession", "PipelineSettings", "Teller"], "Outcome"]

# Name -> the module that has it, and what it does.
JOBS = {
    "bronze": ("bronze", "every event of the topic as it came, by day"),
    "silver": ("silver", "typed, sound events, each once; the others into quarantine"),
    "gold": ("gold", "fares, cities and drivers in windows of event time"),
    "fraud": ("fraud", "score rides as they end, into a table and a topic"),
    "replay-fraud": ("replay", "a model over past days, compared with the live scores"),
    "warehouse": ("warehouse", "one row for each ride, from where it stands in the topic"),
}
# Those that are streaming queries, and stay up with --continuous; the others run again and again.
STREAMING = ("bronze", "gold")
# Those that read the topic itself.
READ_TOPIC = frozenset({"bronze", "replay-fraud", "warehouse"})


def job(name: str) -> "Run":
    """The job's `run`; it is imported now, and with it much of Spark."""
    run: Run = import_module(f"respool.pipeline.{JOBS[name][0]}").run
    return run
