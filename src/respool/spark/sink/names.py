"""Names in the broker: of a sink, of its tasks' transactional ids, and of its decider.

A task's transactional id is reused every few batches, because a coordinator remembers each id for days. It is never
shared by two attempts of a task (speculation and retries must not fence each other), nor by two runs. A task that Spark
has abandoned, but that is still alive, could disturb another only after `ID_SLOTS` batches.
"""

import re

from respool.spark.sink.protocol import TaskId

# The topic with the states of all sinks; compacted, so that each state is kept.
STATE_TOPIC = "respool-spark-sinks"
ID_SLOTS = 4
_RUN_LETTERS = 8


def sink_of(query: str) -> str:
    """Also the name of the group whose committed offset points at the sink's state."""
    return f"spark-sink-{query}"


def decider_of(sink: str) -> str:
    return f"{sink}-decides"


def tasks_of(sink: str) -> re.Pattern[str]:
    """Matches the transactional ids of all tasks of this sink, and of no other sink with the same prefix."""
    return re.compile(rf"{re.escape(sink)}-task-[0-9a-z]+-\d+-\d+-\d+")


def transactional_id(sink: str, place: TaskId, attempt: int) -> str:
    run = place.run.replace("-", "").lower()[:_RUN_LETTERS]
    return f"{sink}-task-{run}-{place.batch % ID_SLOTS}-{place.task}-{attempt}"


def tasks_of_job(job: str) -> re.Pattern[str]:
    return re.compile(rf"spark-job-{re.escape(job)}-\d+")


def job_transactional_id(job: str, attempt_id: int) -> str:
    """`attempt_id` is that of the task's attempt, which is unique in a Spark context."""
    return f"spark-job-{job}-{attempt_id}"


def job_end_of(job: str) -> str:
    """The transactional id that exists once the job has ended."""
    return f"spark-job-{job}-end"
