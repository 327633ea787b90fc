"""What a job of the pipeline ends with when it cannot go on. Each message says what to do."""

from respool.model.errors import RespoolError


class PipelineError(RespoolError):
    """A job cannot go on."""


class TableMissing(PipelineError):
    """A job reads a table that nobody has written yet."""

    def __init__(self, name: str, job: str) -> None:
        super().__init__(f"there is no table {name} yet: run {job} first")


class TableChanged(PipelineError):
    """Another run of the same job committed in between: this one's files were thrown away, nothing is in twice."""


class HistoryGone(PipelineError):
    """The log of a table's versions was cleaned up to a point beyond where its reader stands."""


class EventsGone(PipelineError):
    """A topic has deleted events that a table has not read yet."""


class TableReplaced(PipelineError):
    """A table was deleted and made again; a reader's position in the old one says nothing about the new one."""

    def __init__(self, name: str, remedy: str) -> None:
        super().__init__(
            f"the table {name} is not the one that was read before: it was deleted and made again, and counts its "
            f"versions anew, so what is new in it cannot be told; {remedy}, and run the job again"
        )


class ModelMissing(PipelineError):
    """There is no model of this name, and no truth to train one with."""


class NothingToLearn(PipelineError):
    """The rides to train on lack fraud, or honest rides, or both."""


class BadReplay(PipelineError):
    """A replay's window cannot be."""
