"""`df.write.format("respool")`: all rows of a frame, or none.

Each task writes in a transaction of its own and hands it to the driver, which commits them all when every task is
done. A driver that dies before its first commit leaves nothing; one that dies among them leaves some, and the rest are
aborted by their timeout: there is nobody who could know of it. One that lives and gets no answer says what is in, and
tries again to bring it to an end. A write with a name (`txnAppId`, `txnVersion`) goes
through the same decision as a stream's batch instead, and may be repeated after any death.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from respool.client.arrow.errors import BrokerUnreachable
from respool.spark.options import Options
from respool.spark.sink.columns import SinkColumns
from respool.spark.sink.errors import NotSupported, SinkError
from respool.spark.sink.names import job_transactional_id, sink_of
from respool.spark.sink.options import SinkOptions
from respool.spark.sink.protocol import Outcome, Place

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from respool.client.arrow.cluster import Cluster
    from respool.spark.sink.state import Share

# Spark ends the Python process of a task that it has given up after spark.python.task.killTimeout, 2 s by default.
KILLED_WITHIN_S = 3.0


class BatchWriteIncomplete(SinkError):
    """Some of a write's tasks count, and others do not."""


class BatchWriter(DataSourceArrowWriter):
    def __init__(
        self, options: Mapping[str, str], schema: "StructType", *, overwrite: bool
    ) -> None:
        if overwrite:
            raise NotSupported(
                "mode('overwrite') would have to replace what is in the topic, and a log only grows: use mode('append')"
            )
        self._options = SinkOptions.of(Options(options), is_stream=False)
        self._columns = SinkColumns.of(
            schema,
            has_topic=self._options.topic is not None,
            include_headers=self._options.include_headers,
        )
        # Made on the driver, and sent to all tasks with this object.
        self._job = str(uuid4())

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        from respool.spark.sink.stream_writer import write_task
        from respool.spark.sink.task import TaskMessage, write_plainly, write_prepared

        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        task, attempt = context.partitionId(), context.attemptNumber()
        options, stamp = self._options, self._options.stamp
        if stamp is not None:
            place = Place(run=self._job, batch=stamp.version, task=task)
            return write_task(
                iterator,
                options,
                self._columns,
                sink=sink_of(stamp.app),
                place=place,
                attempt=attempt,
            )
        share = None
        if options.exactly_once:
            share = write_prepared(
                iterator,
                options,
                self._columns,
                transactional_id=job_transactional_id(self._job, task, attempt),
                task=task,
            )
            rows = 0 if share is None else share.extent.rows
        else:
            rows = write_plainly(iterator, options, self._columns)
        return TaskMessage(
            sink=None, run=self._job, batch=0, task=task, attempt=attempt, rows=rows, share=share
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        from respool.spark.sink.executing import end
        from respool.spark.sink.stream_writer import commit_batch

        if self._options.stamp is not None:
            commit_batch(self._options, messages, self._options.stamp.version)
            return
        shares = _shares(messages)
        lost: list[int] = []
        in_doubt: list[int] = []
        with self._options.client.cluster() as cluster:
            for share in shares:
                try:
                    outcome = end(cluster, share.transaction, is_commit=True)
                except BrokerUnreachable:
                    in_doubt.append(share.task)
                else:
                    lost += [] if outcome is Outcome.DONE else [share.task]
            if not lost and not in_doubt:
                self._end_others(cluster)
        if lost or in_doubt:
            raise BatchWriteIncomplete(
                f"of {len(shares)} tasks with rows {len(shares) - len(lost) - len(in_doubt)} are in; lost are those of "
                f"tasks {lost[:20]}, whose transactions had ended (was the write longer than transactionTimeout?); "
                f"no answer came for those of tasks {in_doubt[:20]}. If any is in, the rest that is not lost is "
                "committed, too, once brokers answer. With txnAppId and txnVersion such a write can be repeated"
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Tasks failed, or `commit` did. Then what that began is brought to its end: half is worse than all."""
        from respool.spark.sink.executing import end_all, is_committed
        from respool.spark.sink.stream_writer import abort_batch

        if self._options.stamp is not None:
            abort_batch(self._options, messages, self._options.stamp.version)
            return
        transactions = [one.transaction for one in _shares(messages)]
        with self._options.client.cluster() as cluster:
            is_begun = any(is_committed(cluster, one) for one in transactions)
            end_all(cluster, transactions, is_commit=is_begun)
            self._end_others(cluster)
            if any(one is None for one in messages):
                # Tasks that Spark gave up may still be at work, and open a transaction after they were looked for.
                time.sleep(KILLED_WITHIN_S)
                self._end_others(cluster)

    def _end_others(self, cluster: "Cluster") -> None:
        """Attempts that lost a race, and tasks that failed after they had written."""
        from respool.spark.sink.executing import end_all, open_transactions
        from respool.spark.sink.names import tasks_of_job

        if self._options.exactly_once:
            end_all(cluster, open_transactions(cluster, tasks_of_job(self._job)), is_commit=False)


def _shares(messages: Sequence[WriterCommitMessage | None]) -> "list[Share]":
    from respool.spark.sink.task import TaskMessage

    return [one.share for one in messages if isinstance(one, TaskMessage) and one.share is not None]
