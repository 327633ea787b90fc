"""`df.write.format("respool")`: all rows of a frame, or none.

Each task writes in a transaction of its own and hands it to the driver, which commits them all when every task is
done. A driver that dies before its first commit leaves nothing; one that dies among them leaves some, and the rest are
aborted by their timeout: there is nobody who could know of it. A write with a name (`txnAppId`, `txnVersion`) goes
through the same decision as a stream's batch instead, and may be repeated after any death.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

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
        from respool.spark.sink.executing import end_all
        from respool.spark.sink.stream_writer import commit_batch

        if self._options.stamp is not None:
            commit_batch(self._options, messages, self._options.stamp.version)
            return
        shares = _shares(messages)
        with self._options.client.cluster() as cluster:
            transactions = [one.transaction for one in shares]
            outcomes = end_all(cluster, transactions, is_commit=True)
            self._end_others(cluster)
        bad = [
            one.task for one, end in zip(shares, outcomes, strict=True) if end is not Outcome.DONE
        ]
        if bad:
            raise BatchWriteIncomplete(
                f"of {len(shares)} tasks {len(shares) - len(bad)} are in, and those of {bad[:20]} are not: their "
                "transactions ended before. Did the write take longer than transactionTimeout? With txnAppId and "
                "txnVersion it can be repeated"
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        from respool.spark.sink.executing import end_all
        from respool.spark.sink.stream_writer import abort_batch

        if self._options.stamp is not None:
            abort_batch(self._options, messages, self._options.stamp.version)
            return
        with self._options.client.cluster() as cluster:
            # Those that are committed stay so: the write failed half-way then, and said so.
            end_all(cluster, [one.transaction for one in _shares(messages)], is_commit=False)
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
