"""Names in the broker: of a sink, of its tasks' transactions, and of who decides.

A task's transactional id is used again every few batches, because a coordinator remembers each one for days. It is
never shared by two attempts of a task (speculation and retries must not fence each other), nor by two runs; and a task
that Spark has given up for lost, but that lives, would have to sleep through `LANES` batches to disturb another.
"""

import re

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


def tasks_of(sink: str) -> re.Pattern[str]:
    """The transactional ids of all tasks of a sink; and of no other, though its name may begin with this one's."""
    return re.compile(rf"{re.escape(sink)}-task-[0-9a-z]+-\d+-\d+-\d+")


def transactional_id(sink: str, place: Place, attempt: int) -> str:
    run = place.run.replace("-", "").lower()[:_RUN_LETTERS]
    return f"{sink}-task-{run}-{place.batch % LANES}-{place.task}-{attempt}"


def tasks_of_job(job: str) -> re.Pattern[str]:
    return re.compile(rf"spark-job-{re.escape(job)}-\d+")


def job_transactional_id(job: str, attempt_id: int) -> str:
    """`attempt_id`: of the task's attempt, which no other one of a Spark context has."""
    return f"spark-job-{job}-{attempt_id}"


def job_end_of(job: str) -> str:
    """There is such a transactional id once the job has ended."""
    return f"spark-job-{job}-end"
