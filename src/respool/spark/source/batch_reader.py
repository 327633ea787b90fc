"""`spark.read.format("respool")`: each read is planned on the driver, up to the current log ends."""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from respool.spark.hidden_traceback import hidden_traceback
from respool.spark.option_values import Options
from respool.spark.source.filters import Narrowing, narrow
from respool.spark.source.loss import Loss
from respool.spark.source.reading import Reading
from respool.spark.source.source_columns import columns_of
from respool.spark.source.source_options import (
    BATCH_SPLIT_ROWS,
    SourceOptions,
    trigger_options_given,
)
from respool.spark.source.stream_plan import Range, split
from respool.spark.worker import runs_as

if TYPE_CHECKING:
    import pyarrow as pa

    from respool.spark.source.brokers import Brokers

_log = logging.getLogger("respool.spark")
_PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def batch_reader(given: Mapping[str, str], schema: StructType) -> "BatchReader":
    """Create a reader that accepts filters only in the process in which Spark pushes filters down.

    Spark refuses a reader that accepts filters unless `spark.sql.python.filterPushdown.enabled` is set, which it is
    not by default; but a read without pushdown is only slower. Spark pushes filters down in a process that runs a
    module for nothing else.
    """
    pushes = _PUSHDOWN_WORKER in sys.modules or runs_as(_PUSHDOWN_WORKER)
    return (PushingReader if pushes else BatchReader)(given, schema)


class BatchReader(DataSourceReader):
    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        """
        Raises:
            BadOption
        """
        options = Options(given)
        self._options = SourceOptions.of(options, "batch")
        for name in trigger_options_given(options):
            _log.warning("%s is for streams: it changes nothing of a batch read", name)
        self._schema = schema
        self._narrowing = Narrowing()
        self._reading = Reading.of(self._options, columns_of(schema))

    @hidden_traceback()
    def partitions(self) -> Sequence[InputPartition]:
        from respool.spark.source.brokers import Brokers

        with Brokers(self._options) as brokers:
            ranges = planned(brokers, self._options, self._narrowing)
        offsets_max = self._options.max_records
        if offsets_max is None and self._options.min_partitions is None:
            offsets_max = BATCH_SPLIT_ROWS
        parts = split(ranges, at_least=self._options.min_partitions, offsets_max=offsets_max)
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from respool.spark.source.shaping import as_spark_wants

        wanted: Range | None = partition.value
        if wanted is None:
            # Spark makes a partition of None if there are none.
            return iter(())
        return as_spark_wants(self._reading.batches(wanted), self._schema)


class PushingReader(BatchReader):
    @hidden_traceback()
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._narrowing, left = narrow(filters)
        self._reading = replace(
            self._reading,
            since_ms=self._narrowing.since_ms,
            until_ms=self._narrowing.until_ms,
            rows=tuple(self._narrowing.rows),
        )
        return left


def planned(brokers: "Brokers", options: SourceOptions, narrowing: Narrowing) -> list[Range]:
    """The offsets to read, according to the current metadata.

    Raises:
        BadOption, BrokersAway, DataLost
    """
    from respool.spark.source.resolving import resolve

    topics = brokers.all_topics()
    # The ends first: messages that arrive in the meantime belong to the next read.
    ends = resolve(brokers, options.end, topics, unmatched="latest")
    starts = resolve(brokers, options.start, topics, unmatched=options.unmatched_start)
    ranges = []
    for name, seen in topics.items():
        wanted = [number for number in seen.partitions if narrowing.wants(name, number)]
        if not wanted:
            continue
        checked = _checked(brokers, options, name, wanted, starts=starts[name], ends=ends[name])
        narrowed = {number: narrowing.range_of(*checked[number]) for number in wanted}
        for number, (begin, end) in _by_time(brokers, options, narrowing, name, narrowed).items():
            ranges.append(
                Range(topic=name, topic_id=seen.id, partition=number, begin=begin, end=end)
            )
    return ranges


def _checked(
    brokers: "Brokers",
    options: SourceOptions,
    topic: str,
    partitions: list[int],
    *,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
) -> dict[int, tuple[int, int]]:
    """Clamp the ranges to the log; report missing messages."""
    loss = Loss(options.fail_on_data_loss)
    highs = brokers.high_watermarks(topic, partitions)
    latest = brokers.latest(topic, partitions)
    earliest = brokers.earliest(topic, partitions)
    found = {}
    for number in partitions:
        begin, end = starts[number], ends[number]
        place = f"{topic}/{number}"
        if begin < earliest[number]:
            loss.report(
                f"{place}: {options.start.option} begins at offset {begin}, and the log begins at {earliest[number]}",
                instead=f"at offset {earliest[number]}",
            )
        if begin > highs[number]:
            loss.report(
                f"{place}: {options.start.option} begins at offset {begin}, and the log ends at {highs[number]}",
                instead="nothing of it is read",
            )
        if end > highs[number]:
            loss.report(
                f"{place}: {options.end.option} ends at offset {end}, and the log ends at {highs[number]}",
                instead=f"up to offset {highs[number]}",
            )
        if latest[number] < end <= highs[number] and options.end.has_offsets:
            loss.report(
                f"{place}: {options.end.option} ends at offset {end}, and from offset {latest[number]} on messages "
                "wait for a transaction that is still open: read them when it has ended, or with "
                "isolation=read_uncommitted",
                instead=f"up to offset {latest[number]}",
            )
        begin = max(begin, earliest[number])
        # Messages after the last stable offset cannot be read now.
        found[number] = begin, max(begin, min(end, latest[number]))
    return found


def _by_time(
    brokers: "Brokers",
    options: SourceOptions,
    narrowing: Narrowing,
    topic: str,
    ranges: dict[int, tuple[int, int]],
) -> dict[int, tuple[int, int]]:
    """Begin at the first message of the time, by the brokers' index; end where no such message can follow."""
    found = dict(ranges)
    if narrowing.since_ms is not None:
        firsts = brokers.at_time(topic, found, narrowing.since_ms)
        for number, (begin, end) in found.items():
            first = firsts[number]
            found[number] = (end if first is None else min(max(begin, first), end)), end
    if narrowing.until_ms is not None and options.lateness_ms is not None:
        lasts = brokers.at_time(topic, found, narrowing.until_ms + options.lateness_ms)
        for number, (begin, end) in found.items():
            last = lasts[number]
            found[number] = begin, (end if last is None else max(begin, min(end, last)))
    return found
