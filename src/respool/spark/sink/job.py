"""The transactions of one `df.write`: how its tasks take theirs, and how the driver sees that none stays open.

Spark does not wait for tasks that it has given up: one may begin to write when the driver has ended the job. So a task
first takes its transactional id, then looks whether the job has ended, then writes; and the driver first says that the
job has ended, and then takes away every id that there is. Whichever comes first, the other sees it, also where the
task's process is killed between any two steps.
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

# Nothing is written under ids that are taken away, so any timeout will do.
_TIMEOUT_MS = 60_000
# Taken, and maybe written with. Of the others nothing can follow.
_ALIVE = ("Empty", "Ongoing")


def check_not_ended(cluster: Cluster, job: str) -> None:
    """For a task that has its transactional id.

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
    """Abort all that its tasks have open, and see that they open nothing more; leave the ids alone that are spared.

    Unless it is to be thorough, a broker that does not answer is passed over.

    Raises:
        BrokerRefused, BrokerUnreachable
    """
    init_producer_id(cluster, job_end_of(job), timeout_ms=_TIMEOUT_MS)
    names = transactional_ids(cluster, tasks_of_job(job), states=_ALIVE, is_all=is_thorough)
    others = sorted(names.difference(spared))
    each(others, lambda name: init_producer_id(cluster, name, timeout_ms=_TIMEOUT_MS))
