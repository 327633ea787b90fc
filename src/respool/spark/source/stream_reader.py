"""`spark.readStream.format("respool")`: the driver has one such object for as long as the query runs.

Its copies on executors only read ranges (`read`). Spark stores the stream's position: `stream_offset.py` has its
format, and `stream_plan.py` the use of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from respool.spark.hidden_traceback import hidden_traceback
from respool.spark.option_values import Options
from respool.spark.source.loss import Loss
from respool.spark.source.reading import Reading
from respool.spark.source.source_columns import columns_of
from respool.spark.source.source_options import SourceOptions
from respool.spark.source.stream_offset import Position, TopicAt, from_json, to_json
from respool.spark.source.stream_plan import (
    Available,
    Place,
    Range,
    available,
    is_worth_a_batch,
    limit_bytes,
    limit_offsets,
    ranges_between,
    report_recreated,
    report_vanished,
    split,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from respool.spark.source.brokers import Brokers
    from respool.spark.source.group_progress import GroupProgress


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        """
        Raises:
            BadOption
        """
        self._options = SourceOptions.of(Options(given), "stream")
        self._schema = schema
        self._loss = Loss(self._options.fail_on_data_loss)
        self._reading = Reading.of(self._options, columns_of(schema))
        # Only on the driver, created on first use: this object is pickled for executors before that.
        self._brokers_here: Brokers | None = None
        self._progress_here: GroupProgress | None = None
        # The end of a query with Trigger.AvailableNow.
        self._target: Position | None = None
        self._latest: Position | None = None
        # The last plan, whose ranges brokers have just reported as readable.
        self._planned: tuple[dict[str, Any], dict[str, Any]] | None = None
        self._batch_at = float("-inf")
        # The position last committed for the group.
        self._shown: dict[str, Any] | None = None

    # -- planning, on the driver ---------------------------------------------------------------------------------------

    @hidden_traceback()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        from respool.spark.source.resolving import resolve

        topics = self._brokers.all_topics()
        found = resolve(
            self._brokers, self._options.start, topics, unmatched=self._options.unmatched_start
        )
        return to_json({name: TopicAt(topics[name].id, found[name]) for name in topics})

    @hidden_traceback()
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """One of the limits, which Spark passes back; but all of them apply."""
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        if options.max_bytes is not None:
            return ReadMaxBytes(options.max_bytes)
        return (
            ReadAllAvailable() if options.min_offsets is None else ReadMinRows(options.min_offsets)
        )

    @hidden_traceback()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._ask_latest(())

    @hidden_traceback()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        # Spark calls `commit` only when the next batch begins. But a call for the next offset means that the previous
        # batch is done: without this, a query that waits for messages would seem to lag by its last batch.
        self._show(start)
        begin = from_json(start)
        self._latest = (
            self._ask_latest(begin) if self._target is None else self._whole_target(begin)
        )
        between = available(
            begin,
            self._latest,
            self._loss,
            is_wanted=self._options.wanted.has,
            earliest=self._earliest,
        )
        between = self._without_cut_logs(between, begin)
        end = between.position(self._limited(between, limit))
        told = start if _same(end, begin) else to_json(end)
        self._planned = (start, told)
        return told

    @hidden_traceback()
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._latest is None else to_json(self._latest)

    @hidden_traceback()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, to = from_json(start), from_json(end)
        ranges = ranges_between(begin, to)
        if self._planned != (start, end) or any(self._is_fresh(begin, one) for one in ranges):
            # A batch from before a restart, or partitions that are read from their log start.
            ranges = self._checked(begin, to, ranges)
        parts = split(
            ranges, at_least=self._options.min_partitions, offsets_max=self._options.max_records
        )
        return [InputPartition(part) for part in parts]

    @hidden_traceback()
    def commit(self, end: dict[str, Any]) -> None:
        self._show(end)

    def stop(self) -> None:
        if self._brokers_here is not None:
            self._brokers_here.close()

    # -- reading, on executors -----------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from respool.spark.source.shaping import as_spark_wants

        wanted: Range = partition.value
        return as_spark_wants(self._reading.batches(wanted), self._schema)

    # -- inside --------------------------------------------------------------------------------------------------------

    @property
    def _brokers(self) -> "Brokers":
        from respool.spark.source.brokers import Brokers

        if self._brokers_here is None:
            self._brokers_here = Brokers(self._options)
        return self._brokers_here

    def _show(self, end: dict[str, Any]) -> None:
        """Publish for monitoring that everything before this position was processed."""
        if self._options.group is None or end == self._shown:
            return
        from respool.spark.source.group_progress import GroupProgress

        if self._progress_here is None:
            self._progress_here = GroupProgress(self._options.group)
        # Omit deleted topics: brokers would refuse the whole commit because of them.
        position = from_json(end)
        there = (
            position
            if self._latest is None
            else {topic: at for topic, at in position.items() if topic in self._latest}
        )
        if self._progress_here.show(self._brokers.cluster, there):
            self._shown = end

    def _earliest(self, topic: str, partitions: list[int]) -> Mapping[int, int]:
        return self._brokers.earliest(topic, partitions)

    def _ask_latest(self, known: Iterable[str]) -> Position:
        seen = self._brokers.topics(known=known)
        return {
            name: TopicAt(one.id, self._brokers.latest(name, one.partitions))
            for name, one in seen.items()
        }

    def _whole_target(self, begin: Position) -> Position:
        """The target, with topics of the checkpoint that brokers did not list when the query began."""
        assert self._target is not None
        unseen = [one for one in begin if one not in self._target and self._options.wanted.has(one)]
        if unseen:
            shown = self._ask_latest(unseen)
            self._target = {**self._target, **{one: shown[one] for one in unseen if one in shown}}
        return self._target

    def _without_cut_logs(self, between: Available, begin: Position) -> Available:
        """Detect lost messages: a log that ends before the read position, unless a second look shows otherwise.

        Raises:
            DataLost
        """
        assert self._latest is not None
        for (topic, number), offset in between.begins.items():
            if self._latest[topic].offsets[number] >= offset or topic not in begin:
                continue
            high = self._high_watermark(topic, number, offset)
            if high < offset:
                self._loss.report(
                    f"{topic}/{number}: it was read up to offset {offset}, and the log now ends at {high}: what was "
                    "there has been lost by the brokers",
                    instead=f"from offset {high}",
                )
                between.begins[topic, number] = between.ends[topic, number] = high
        return between

    def _high_watermark(self, topic: str, number: int, offset: int) -> int:
        """Fetch it again while it is too low: a new leader learns it only after a moment."""
        high = self._brokers.high_watermarks(topic, [number])[number]
        for _ in range(self._options.offset_retries):
            if high >= offset:
                break
            sleep(self._options.offset_retry_ms / 1000)
            high = self._brokers.high_watermarks(topic, [number])[number]
        return high

    def _limited(self, between: Available, limit: ReadLimit) -> dict[Place, int]:
        if isinstance(limit, ReadAllAvailable):
            return between.ends
        begins, ends, options = between.begins, between.ends, self._options
        now = monotonic()
        if (
            options.min_offsets is not None
            and self._target is None
            and not is_worth_a_batch(begins, ends, options.min_offsets)
            and (now - self._batch_at) * 1000 < options.max_delay_ms
        ):
            return begins
        self._batch_at = now
        if options.max_offsets is not None:
            ends = limit_offsets(begins, ends, options.max_offsets)
        if options.max_bytes is not None:
            sizes = self._brokers.bytes_an_offset(begins, ends)
            ends = limit_bytes(begins, ends, options.max_bytes, sizes)
        return ends

    def _checked(self, begin: Position, to: Position, ranges: list[Range]) -> list[Range]:
        """The part of an earlier planned batch that still exists, according to the brokers.

        Raises:
            DataLost
        """
        found: list[Range] = []
        for name in sorted({one.topic for one in ranges}):
            # Even if the topic is no longer wanted: the planned batch must still be read.
            seen = self._brokers.find(name)
            if seen is None:
                report_vanished(self._loss, name, to[name])
                continue
            now = TopicAt(seen.id, {})
            if to[name].is_another_than(now):
                report_recreated(self._loss, name, to[name], now)
                continue
            wanted = [one for one in ranges if one.topic == name]
            numbers = [one.partition for one in wanted]
            highs = self._brokers.high_watermarks(name, numbers)
            fresh = [one.partition for one in wanted if self._is_fresh(begin, one)]
            firsts = self._brokers.earliest(name, fresh) if fresh else {}
            for one in wanted:
                end = self._end_of(one, highs[one.partition])
                first = min(end, max(one.begin, firsts.get(one.partition, 0)))
                found.append(replace(one, topic_id=one.topic_id or seen.id, begin=first, end=end))
        return found

    def _is_fresh(self, begin: Position, one: Range) -> bool:
        """Whether the range begins at the log start, so that no messages before it count as lost.

        This excludes partitions added to a known topic: their first message has offset 0.
        """
        known = begin.get(one.topic)
        if known is None:
            return True
        return self._options.wanted.assigned is not None and one.partition not in known.offsets

    def _end_of(self, one: Range, high: int) -> int:
        if high < one.end:
            high = self._high_watermark(one.topic, one.partition, one.end)
        if high < one.end:
            self._loss.report(
                f"{one.topic}/{one.partition}: the batch goes up to offset {one.end}, and the log now ends at {high}",
                instead=f"up to offset {high}",
            )
        return max(one.begin, min(one.end, high))


def _same(one: Position, other: Position) -> bool:
    return {name: dict(at.offsets) for name, at in one.items()} == {
        name: dict(at.offsets) for name, at in other.items()
    } and all(not one[name].is_another_than(other[name]) for name in one)
