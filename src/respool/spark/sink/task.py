"""Writes one task's rows to topics: Arrow batches in; the result is a transaction that is written and still open.

Runs in Spark's Python workers. No state is kept between tasks.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import WriterCommitMessage

from respool.client.arrow.writing.arrow_producer import ArrowProducer
from respool.client.kafka.codes import Code
from respool.client.kafka.errors import BrokerRefused
from respool.columnar.row_sum import row_sum
from respool.spark.option_values import BadOption
from respool.spark.sink.sink_columns import SinkColumns, WrongFrame
from respool.spark.sink.sink_options import SinkOptions
from respool.spark.sink.state import Extent, Share, TaskTransaction
from respool.spark.worker import freeze_loaded_objects

_SUM_BITS = 2**64


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """The message from a task to the driver."""

    # Its sink; None for a write without a name.
    sink: str | None
    run: str
    batch: int
    task: int
    rows: int
    # None if nothing was written, or not in a transaction.
    share: Share | None


class Extents:
    """Sums up the rows of a task."""

    def __init__(self) -> None:
        self._rows = self._bytes = self._sum = 0

    def add(self, topic: str, batch: pa.RecordBatch, columns: SinkColumns) -> None:
        keys = pa.nulls(batch.num_rows) if columns.key is None else batch.column(columns.key)
        total, size = row_sum(keys, batch.column(columns.value))
        self._rows += batch.num_rows
        self._bytes += size
        # The factor is odd, so that no information is lost; it differs by topic, so that the topic counts.
        factor = 2 * zlib.crc32(topic.encode()) + 1
        self._sum = (self._sum + total * factor) % _SUM_BITS

    @property
    def extent(self) -> Extent:
        return Extent(rows=self._rows, bytes=self._bytes, checksum=self._sum)


def by_topic(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, columns: SinkColumns
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each batch, split by the topics of its rows.

    Raises:
        WrongFrame: a row has no topic.
    """
    for batch in batches:
        if not batch.num_rows:
            continue
        if columns.topic is None:
            assert options.topic is not None
            yield options.topic, batch
            continue
        topics = batch.column(columns.topic)
        if topics.null_count:
            raise WrongFrame(
                f"{topics.null_count} rows have no topic: their column 'topic' is null, and there is no option 'topic'"
            )
        names = pc.unique(topics).to_pylist()
        for name in names:
            yield name, batch if len(names) == 1 else batch.filter(pc.equal(topics, name))


def measure(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, columns: SinkColumns
) -> Extent:
    """The extent of the rows, without writing them."""
    seen = Extents()
    for topic, batch in by_topic(batches, options, columns):
        seen.add(topic, batch, columns)
    return seen.extent


def write_prepared(
    batches: Iterator[pa.RecordBatch],
    options: SinkOptions,
    columns: SinkColumns,
    *,
    transactional_id: str,
    task: int,
    check: Callable[[], None] = lambda: None,
) -> Share | None:
    """Write all rows in one transaction and leave it open; None if there are no rows.

    `check` is called after the transactional id is initialized, and before anything is written.

    Raises:
        WriteFailed, ...: as for `ArrowProducer.write`, or raised by `check`. The transaction is aborted.
    """
    parts = by_topic(batches, options, columns)
    first = next(parts, None)
    if first is None:
        return None
    seen = Extents()
    with ArrowProducer(
        **options.producer_settings(),
        transactional_id=transactional_id,
        transaction_timeout_ms=options.transaction_timeout_ms,
    ) as producer:
        _begin(producer, options)
        check()
        for topic, batch in _and_then(first, parts):
            seen.add(topic, batch, columns)
            _write(producer, topic, batch, columns)
        prepared, _ = producer.prepare()
    # The producer has many reference cycles, and objects that exist at the freeze are never collected.
    del producer
    freeze_loaded_objects()
    return Share(
        task=task,
        transaction=TaskTransaction(
            prepared.transactional_id, prepared.producer_id, prepared.epoch
        ),
        extent=seen.extent,
    )


def write_plainly(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, columns: SinkColumns
) -> int:
    """Write all rows without a transaction, visible at once; return their number."""
    rows = 0
    with ArrowProducer(**options.producer_settings()) as producer:
        for topic, batch in by_topic(batches, options, columns):
            rows += _write(producer, topic, batch, columns)
        producer.flush()
    del producer
    freeze_loaded_objects()
    return rows


def _begin(producer: ArrowProducer, options: SinkOptions) -> None:
    try:
        producer.begin()
    except BrokerRefused as error:
        if error.code == Code.invalid_transaction_timeout:
            raise BadOption(
                f"transactionTimeout = {options.transaction_timeout_ms} ms is more than the brokers allow "
                "(their transaction.max.timeout.ms, 15 minutes by default): take less, or have them allow more"
            ) from error
        raise


def _write(producer: ArrowProducer, topic: str, batch: pa.RecordBatch, columns: SinkColumns) -> int:
    return producer.write(
        batch,
        topic,
        key=columns.key or False,
        value=columns.value,
        timestamp=False,
        headers=columns.headers or False,
        partition=columns.partition,
    )


def _and_then(
    first: tuple[str, pa.RecordBatch], rest: Iterator[tuple[str, pa.RecordBatch]]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    yield first
    yield from rest
