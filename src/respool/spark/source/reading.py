"""The work of a read task: reads one range of one partition, across leader changes, and reports unreadable offsets."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING
from uuid import UUID

from respool.spark.client_options import ClientOptions
from respool.spark.source.filters import Condition
from respool.spark.source.loss import Loss
from respool.spark.source.source_options import Isolation, SourceOptions
from respool.spark.source.stream_plan import Range
from respool.spark.worker import freeze_loaded_objects

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from respool.client.kafka.cluster import Cluster
    from respool.client.kafka.errors import ClientError

# For decoded batches that wait for Spark: two fetches are enough, and an executor has many tasks.
BUFFER_BYTES = 16 * 1024 * 1024

# Executors are in different racks, but share the options: so each machine may set its own rack.
RACK_VARIABLE = "RESPOOL_RACK"
# Python workers run many tasks: the next one reuses the metadata and the connection.
_clusters: dict[tuple[int, ClientOptions, int], "Cluster"] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How ranges are read: the same for all tasks. Can be pickled."""

    client: ClientOptions
    poll_ms: int
    isolation: Isolation
    fetch_bytes: int | None
    rack: str | None
    loss: Loss
    columns: tuple[str, ...]
    # A condition as text, applied before rows are decoded.
    tags: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    rows: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, options: SourceOptions, columns: tuple[str, ...]) -> "Reading":
        return cls(
            client=options.client,
            poll_ms=options.poll_ms,
            isolation=options.isolation,
            fetch_bytes=options.fetch_bytes,
            rack=options.rack,
            loss=Loss(options.fail_on_data_loss),
            columns=columns,
            tags=options.tags,
        )

    def batches(self, wanted: Range) -> "Iterator[pa.RecordBatch]":
        """
        Raises:
            DataLost: part of the range was lost.
            ClientError: it cannot be read.
        """
        from respool.client.arrow.errors import (
            LogTruncated,
            PartitionRetired,
            PartitionUnavailable,
            RetentionOvertook,
            TopicRecreated,
        )
        from respool.client.kafka.errors import UnknownPartition, UnknownTopic

        begin = wanted.begin
        while begin < wanted.end:
            try:
                yield from self._stream(wanted, begin)
            except RetentionOvertook as error:
                lost_from = begin if error.offset is None else error.offset
                begin = self._after_overtaken(wanted, lost_from, error)
            except (
                LogTruncated,
                PartitionRetired,
                TopicRecreated,
                UnknownTopic,
                UnknownPartition,
            ) as error:
                self._passed_over(wanted, begin, error)
                return
            except PartitionUnavailable as error:
                # Brokers may be down, or the topic was deleted: a fetch cannot tell the difference.
                try:
                    self._cluster().refresh(wanted.topic)
                except UnknownTopic:
                    self._passed_over(wanted, begin, error)
                    return
                raise
            else:
                freeze_loaded_objects()
                return

    def _passed_over(self, wanted: Range, begin: int, error: "ClientError") -> None:
        self.loss.report(
            f"{wanted.topic}/{wanted.partition}: offsets from {begin} to {wanted.end - 1} cannot be read: {error}",
            instead="what is left of them is passed over",
            cause=error,
        )

    def _after_overtaken(self, wanted: Range, lost_from: int, error: "ClientError") -> int:
        first: int = getattr(error, "first_offset", wanted.end)
        resumed = min(first, wanted.end)
        self.loss.report(
            f"{wanted.topic}/{wanted.partition}: offsets {lost_from} to {resumed - 1} have been deleted before they "
            f"were read, the log now begins at {first}",
            instead=f"at offset {resumed}",
            cause=error,
        )
        return resumed

    def _stream(self, wanted: Range, begin: int) -> "Iterator[pa.RecordBatch]":
        from respool.client.arrow.reading.read import read_range
        from respool.client.arrow.reading.read_plan import PartitionRange, ReadPlan
        from respool.client.arrow.reading.stream import FETCH_BYTES, FETCH_BYTES_MAX, ReadSettings

        plan = ReadPlan(
            topic=wanted.topic,
            topic_id=None if wanted.topic_id is None else UUID(wanted.topic_id),
            ranges=(PartitionRange(partition=wanted.partition, begin=begin, end=wanted.end),),
            since_ms=self.since_ms,
            until_ms=self.until_ms,
        )
        settings = ReadSettings(
            isolation=self.isolation,
            fetch_bytes=min(self.fetch_bytes or FETCH_BYTES, FETCH_BYTES_MAX),
            buffer_bytes=BUFFER_BYTES,
            parallel=1,
            rack=os.environ.get(RACK_VARIABLE, "") if self.rack is None else self.rack,
        )
        cluster = self._cluster()
        # The cached metadata of an earlier task may be old: this notices a deleted topic.
        cluster.retrying(lambda: cluster.refresh(wanted.topic))
        with read_range(
            cluster,
            plan,
            wanted.partition,
            columns=self.columns,
            where=where_of(self.rows),
            tags=self.tags,
            settings=settings,
        ) as stream:
            yield from stream

    def _cluster(self) -> "Cluster":
        key = (os.getpid(), self.client, self.poll_ms)
        known = _clusters.get(key)
        if known is None or known.is_closed:
            known = _clusters[key] = self.client.cluster(retry_ms=self.poll_ms)
        return known


def where_of(conditions: Sequence[Condition]) -> "pc.Expression | None":
    if not conditions:
        return None
    return reduce(and_, [_expression(one) for one in conditions])


def _expression(one: Condition) -> "pc.Expression":
    import pyarrow as pa
    import pyarrow.compute as pc

    column = pc.field(one.column)
    kind = pa.int64() if one.column == "offset" else pa.binary()
    match one.operation:
        case "null":
            return column.is_null()
        case "not null":
            return column.is_valid()
        case "in" | "not in":
            among = column.isin(pa.array(list(one.value), kind))
            # As in SQL: for null the result is unknown.
            return among if one.operation == "in" else ~among & column.is_valid()
        case "=":
            return column == pa.scalar(one.value, kind)
    assert one.operation == "!=", one
    return column != pa.scalar(one.value, kind)
