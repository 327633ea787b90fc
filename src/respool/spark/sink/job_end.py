"""The end of one `df.write`: no task that is late may leave a transaction open, or write after it.

Spark does not wait for abandoned tasks: one may begin to write after the driver has ended the job. So a task first
initializes its transactional id, then checks whether the job has ended, then writes; and the driver first marks the job
as ended, and then fences every existing id. Whichever comes first, the other notices it, even if the task's process is
killed between any two steps.
"""

from collections.abc import Collection

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code
from respool.client.kafka.coordinator import Coordinator
from respool.client.kafka.errors import BrokerRefused
from respool.client.kafka.producer_ids import init_producer_id
from respool.client.kafka.transactions import describe_transaction
from respool.spark.sink.errors import Superseded
from respool.spark.sink.executing import each, transactional_ids
from respool.spark.sink.names import job_end_of, tasks_of_job

# Nothing is written under fenced ids, so any timeout will do.
_TIMEOUT_MS = 60_000
# States of an id that may have an open transaction. In all other states no write can follow.
_ALIVE = ("Empty", "Ongoing")


def check_not_ended(cluster: Cluster, job: str) -> None:
    """Check that the job has not ended; for a task that has initialized its transactional id.

    Raises:
        Superseded: the driver has ended the job.
    """
    name = job_end_of(job)
    coordinator = Coordinator(cluster, name, is_transaction=True)
    try:
        describe_transaction(coordinator, name)
    except BrokerRefused as error:
        if error.code == Code.transactional_id_not_found:
            return
        raise
    raise Superseded(f"write {job} has ended without this task: nothing of it counts")


def end_job(
    cluster: Cluster, job: str, *, spared: Collection[str], is_thorough: bool = True
) -> None:
    """Abort all open transactions of the job's tasks and fence their ids, except the spared ones.

    Unless `is_thorough`, brokers that do not answer are skipped.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    init_producer_id(cluster, job_end_of(job), timeout_ms=_TIMEOUT_MS)
    names = transactional_ids(cluster, tasks_of_job(job), states=_ALIVE, is_all=is_thorough)
    others = sorted(names.difference(spared))
    each(others, lambda name: init_producer_id(cluster, name, timeout_ms=_TIMEOUT_MS))
