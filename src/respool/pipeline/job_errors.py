"""Errors that end a job of the pipeline. Each message says what to do."""

from pathlib import Path

from respool.model.errors import RespoolError


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
