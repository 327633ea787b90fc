"""The jobs by name, in order of their dependencies; what each reports, returns, and raises."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from respool.model.errors import RespoolError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


class ProgressListener(Protocol):
    """Receives a job's progress."""

    def step(self, text: str) -> None:
        """Report the current step."""

    def rows(self, count: int) -> None:
        """Report that `count` more rows are done."""


class Silent:
    def step(self, text: str) -> None:
        pass

    def rows(self, count: int) -> None:
        pass


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    job: str
    # Counts, in display order.
    counts: dict[str, int]
    # Ratios by name, such as 0.93.
    figures: dict[str, float] = field(default_factory=dict)
    # Files for people.
    files: tuple[str, ...] = ()


class PipelineError(RespoolError):
    """A job cannot continue."""


class TableMissing(PipelineError):
    """A job reads a table that does not exist yet."""

    def __init__(self, name: str, job: str) -> None:
        super().__init__(f"there is no table {name} yet: run {job} first")


class TableChanged(PipelineError):
    """Another run of the same job committed first; this run's files were discarded, and nothing is duplicated."""


class HistoryGone(PipelineError):
    """The table's log was cleaned beyond its reader's position."""


class EventsGone(PipelineError):
    """A topic has deleted events that a table has not read yet."""


class TableReplaced(PipelineError):
    """A table was deleted and re-created; a reader's position in the old one does not apply to the new one."""

    def __init__(self, name: str, remedy: str) -> None:
        super().__init__(
            f"the table {name} is not the one that was read before: it was deleted and made again, and counts its "
            f"versions from 0 again, so its new rows are unknown; {remedy}, and run the job again"
        )


class TableUnreadable(PipelineError):
    """A table's log is damaged, or written by a version that this one does not understand."""

    def __init__(self, path: Path, reason: str) -> None:
        # delta-rs adds a backtrace of its own.
        super().__init__(
            f"the table {path.name} cannot be read: {reason.partition(chr(10))[0]} (its log is {path / '_delta_log'}). "
            "Restore it from a copy, or delete the table and its queries' folders in checkpoints, and run its job again"
        )


class ModelMissing(PipelineError):
    """There is no model of this name, and no truth with which to train one."""


class NothingToLearn(PipelineError):
    """The training rides lack fraud, or honest rides, or both."""


class BadReplay(PipelineError):
    """A replay's window is invalid."""
