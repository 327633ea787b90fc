"""`writeStream.format("respool")`: the calls from Spark, on executors and the driver. The package docstring has the
protocol.

Spark creates an object of this class for every batch and another one for its end, in different processes, so it keeps
no state. A task identifies itself by Spark's task context; the driver, by the tasks' messages.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from respool.spark.hidden_traceback import hidden_traceback
from respool.spark.option_values import Options
from respool.spark.sink.errors import NotSupported, SinkError
from respool.spark.sink.names import sink_of, transactional_id
from respool.spark.sink.protocol import (
    AlreadyIn,
    CheckRows,
    TaskId,
    WriteAgain,
    decide,
    fail_batch,
    join,
    mismatch,
)
from respool.spark.sink.protocol_steps import Effect
from respool.spark.sink.sink_columns import SinkColumns
from respool.spark.sink.sink_options import SinkOptions
from respool.spark.sink.state import Extent, Share

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from respool.spark.sink.task import TaskMessage

QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"
# The group of a query's jobs is named after its run.
RUN_PROPERTY = "spark.jobGroup.id"


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(
        self, options: Mapping[str, str], schema: "StructType", *, overwrite: bool
    ) -> None:
        if overwrite:
            raise NotSupported(
                "outputMode('complete') would have to replace what is in the topic, and a log only grows: "
                "use 'append', or 'update' with a key"
            )
        self._options = SinkOptions.of(Options(options), is_stream=True)
        self._columns = SinkColumns.of(
            schema,
            has_topic=self._options.topic is not None,
            include_headers=self._options.include_headers,
        )

    @hidden_traceback()
    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None, "Spark calls this in a task"
        query = _property(context, QUERY_PROPERTY)
        place = TaskId(
            run=_property(context, RUN_PROPERTY),
            batch=int(_property(context, BATCH_PROPERTY)),
            task=context.partitionId(),
        )
        return write_task(
            iterator,
            self._options,
            self._columns,
            sink=sink_of(query),
            place=place,
            attempt=context.attemptNumber(),
        )

    @hidden_traceback()
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        commit_batch(self._options, messages, batchId)

    @hidden_traceback()
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        abort_batch(self._options, messages, batchId)


def write_task(
    batches: "Iterator[pa.RecordBatch]",
    options: SinkOptions,
    columns: SinkColumns,
    *,
    sink: str,
    place: TaskId,
    attempt: int,
) -> "TaskMessage":
    """Write one task of a batch that must count exactly once."""
    from respool.spark.sink.executing import SinkBroker
    from respool.spark.sink.task import TaskMessage, measure, write_plainly, write_prepared

    def message(rows: int, share: Share | None = None) -> TaskMessage:
        return TaskMessage(
            sink=sink,
            run=place.run,
            batch=place.batch,
            task=place.task,
            rows=rows,
            share=share,
        )

    if not options.exactly_once:
        return message(write_plainly(batches, options, columns))
    with options.client.cluster() as cluster:
        part = SinkBroker(cluster, sink).run(join(place))
    if isinstance(part, AlreadyIn):
        return message(0)
    if isinstance(part, CheckRows):
        found = measure(batches, options, columns)
        if found != part.expected:
            raise mismatch(place.batch, place.task, part.expected, found)
        return message(0)
    share = write_prepared(
        batches,
        options,
        columns,
        transactional_id=transactional_id(sink, place, attempt),
        task=place.task,
    )
    if isinstance(part, WriteAgain) and (share is None or share.extent != part.expected):
        # The driver would refuse it, too; raised here, it becomes an error of this task.
        _abort_share(options, share)
        found = Extent() if share is None else share.extent
        raise mismatch(place.batch, place.task, part.expected, found)
    return message(0 if share is None else share.extent.rows, share)


def commit_batch(
    options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int
) -> None:
    told = _told(messages)
    shares = _shares(told)
    if shares:
        sink, run = _same(told)
        steps = decide(run, batch, tasks=len(messages), shares=shares)
        _carry_out(options, sink, steps)


def abort_batch(
    options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int
) -> None:
    told = _told(messages)
    shares = _shares(told)
    if shares:
        sink, run = _same(told)
        _carry_out(options, sink, fail_batch(run, batch, shares=shares))


def _carry_out(options: SinkOptions, sink: str, steps: Generator[Effect, Any, None]) -> None:
    from respool.spark.sink.executing import SinkBroker

    with options.client.cluster() as cluster:
        SinkBroker(cluster, sink).run(steps)


def _shares(told: "Sequence[TaskMessage]") -> list[Share]:
    return [one.share for one in told if one.share is not None]


def _told(messages: Sequence[WriterCommitMessage | None]) -> "list[TaskMessage]":
    from respool.spark.sink.task import TaskMessage

    return [one for one in messages if isinstance(one, TaskMessage)]


def _same(told: "Sequence[TaskMessage]") -> tuple[str, str]:
    whose = {(one.sink, one.run) for one in told}
    if len(whose) != 1:
        raise SinkError(
            f"one batch has commit messages from tasks of {len(whose)} runs: {sorted(whose)}"
        )
    ((sink, run),) = whose
    assert sink is not None
    return sink, run


def _abort_share(options: SinkOptions, share: Share | None) -> None:
    from respool.spark.sink.executing import end_all

    if share is not None:
        with options.client.cluster() as cluster:
            end_all(cluster, [share.transaction], is_commit=False)


def _property(context: TaskContext, name: str) -> str:
    value = context.getLocalProperty(name)
    if not value:
        raise NotSupported(
            f"Spark does not tell the task its {name}, by which a repeated batch is known; exactlyOnce=false does "
            "without it"
        )
    return value
