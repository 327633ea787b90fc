"""Names in the broker: of a sink, of its tasks' transactions, and of who decides.

A task's transactional id is used again every few batches, because a coordinator remembers each one for days. It is
never shared by two attempts of a task (speculation and retries must not fence each other), nor by two runs; and a task
that Spark has given up for lost, but that lives, would have to sleep through `LANES` batches to disturb another.
"""

from respool.spark.sink.protocol import Place

# Where the states of all sinks are; compacted, so that each stays.
STATE_TOPIC = "respool-spark-sinks"
LANES = 4
_RUN_LETTERS = 8


def sink_of(query: str) -> str:
    """Also the name of the group whose offset points at the sink's state."""
    return f"spark-sink-{query}"


def decider_of(sink: str) -> str:
    return f"{sink}-decides"


def tasks_of(sink: str) -> str:
    """How the transactional ids of all tasks of a sink begin."""
    return f"{sink}-task-"


def transactional_id(sink: str, place: Place, attempt: int) -> str:
    run = place.run.replace("-", "")[:_RUN_LETTERS]
    return f"{tasks_of(sink)}{run}-{place.batch % LANES}-{place.task}-{attempt}"


def job_of(job: str) -> str:
    return f"spark-job-{job}"


def job_transactional_id(job: str, task: int, attempt: int) -> str:
    return f"{job_of(job)}-{task}-{attempt}"
