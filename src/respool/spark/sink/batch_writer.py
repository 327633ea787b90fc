"""`df.write.format("respool")`: writes all rows of a frame, or none.

Each task writes in its own transaction and passes it to the driver, which commits them all when every task is done. If
the driver dies before its first commit, nothing is written; if it dies between commits, some transactions are committed
and the others are aborted by their timeout, which no process can detect. If it survives but gets no answer, it reports
which tasks are committed, and tries again to end the others. A write with a name (`txnAppId`, `txnVersion`) uses the
same decision record as a stream's batch instead, and may be repeated after any crash.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from respool.client.kafka.errors import BrokerUnreachable, ClientError, Untrusted
from respool.spark.hidden_traceback import hidden_traceback
from respool.spark.option_values import Options
from respool.spark.sink.errors import NotSupported, SinkError
from respool.spark.sink.names import job_transactional_id, sink_of
from respool.spark.sink.protocol import TaskId
from respool.spark.sink.protocol_steps import Outcome
from respool.spark.sink.sink_columns import SinkColumns
from respool.spark.sink.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from respool.client.kafka.cluster import Cluster
    from respool.spark.sink.state import Share

_log = logging.getLogger(__name__)


class BatchWriteIncomplete(SinkError):
    """Some of a write's transactions are committed, and others are not."""


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
        # Created on the driver, and sent to all tasks with this object.
        self._job = str(uuid4())

    def check_brokers(self) -> None:
        """Check that brokers answer and the topic exists before tasks start, which would report it late and repeatedly.

        Only if the driver will commit, so that it needs the brokers anyway. Not for named writes, which are
        frequent in a stream's `foreachBatch`.

        Raises:
            UnknownTopic, BrokerUnreachable, BrokerRefused, TlsRefused, LoginRefused
        """
        options = self._options
        topic = options.topic
        if topic is not None and options.exactly_once and options.stamp is None:
            first_contact_ms = options.client.first_contact_ms
            with options.client.cluster(first_contact_ms=first_contact_ms) as cluster:
                cluster.retrying(lambda: cluster.refresh(topic))

    @hidden_traceback()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        from respool.spark.sink.stream_writer import write_task
        from respool.spark.sink.task import TaskMessage, write_plainly, write_prepared

        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        task = context.partitionId()
        options, stamp = self._options, self._options.stamp
        if stamp is not None:
            place = TaskId(run=self._job, batch=stamp.version, task=task)
            return write_task(
                iterator,
                options,
                self._columns,
                sink=sink_of(stamp.app),
                place=place,
                attempt=context.attemptNumber(),
            )
        share = None
        if options.exactly_once:
            share = write_prepared(
                iterator,
                options,
                self._columns,
                transactional_id=job_transactional_id(self._job, context.taskAttemptId()),
                task=task,
                check=self._check_not_ended,
            )
            rows = 0 if share is None else share.extent.rows
        else:
            rows = write_plainly(iterator, options, self._columns)
        return TaskMessage(sink=None, run=self._job, batch=0, task=task, rows=rows, share=share)

    @hidden_traceback()
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
                except (BrokerUnreachable, Untrusted):
                    in_doubt.append(share.task)
                else:
                    lost += [] if outcome is Outcome.DONE else [share.task]
            if not lost and not in_doubt:
                self._end_losers(cluster, shares)
        if lost or in_doubt:
            raise BatchWriteIncomplete(
                f"of {len(shares)} tasks with rows {len(shares) - len(lost) - len(in_doubt)} are in; lost are those of "
                f"tasks {lost[:20]}, whose transactions had ended (was the write longer than transactionTimeout?); "
                f"no answer came for those of tasks {in_doubt[:20]}. If any is in, the rest that is not lost is "
                "committed, too, once brokers answer. With txnAppId and txnVersion such a write can be repeated"
            )

    @hidden_traceback()
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Handle failed tasks or a failed `commit`: if any transaction is committed, commit all; else abort all."""
        from respool.spark.sink.executing import end_all, is_committed
        from respool.spark.sink.stream_writer import abort_batch

        if self._options.stamp is not None:
            abort_batch(self._options, messages, self._options.stamp.version)
            return
        shares = _shares(messages)
        transactions = [one.transaction for one in shares]
        with self._options.client.cluster() as cluster:
            try:
                is_begun = any(is_committed(cluster, one) for one in transactions)
                end_all(cluster, transactions, is_commit=is_begun)
            finally:
                self._end_others(cluster, shares, is_thorough=True)

    def _check_not_ended(self) -> None:
        from respool.spark.sink.job_end import check_not_ended

        with self._options.client.cluster() as cluster:
            check_not_ended(cluster, self._job)

    def _end_losers(self, cluster: "Cluster", shares: "Sequence[Share]") -> None:
        """End attempts that lost a race. All rows are written, so an error here must not fail the job."""
        try:
            self._end_others(cluster, shares, is_thorough=False)
        except ClientError as error:
            _log.warning(
                "all rows are in; a task that lost a race may hold readers back for %d ms: %s",
                self._options.transaction_timeout_ms,
                error,
            )

    def _end_others(
        self, cluster: "Cluster", shares: "Sequence[Share]", *, is_thorough: bool
    ) -> None:
        """End attempts that lost a race, tasks that failed after writing, and tasks that are still running."""
        from respool.spark.sink.job_end import end_job

        if self._options.exactly_once:
            spared = {one.transaction.transactional_id for one in shares}
            end_job(cluster, self._job, spared=spared, is_thorough=is_thorough)


def _shares(messages: Sequence[WriterCommitMessage | None]) -> "list[Share]":
    from respool.spark.sink.task import TaskMessage

    return [one.share for one in messages if isinstance(one, TaskMessage) and one.share is not None]
