"""Where the writer reads a topic: the log's ends, and the committed messages of ranges of it.

A table gets all its messages from here, archived ones too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from respool.client.arrow.reading.projection import Projection
from respool.client.arrow.reading.read_plan import PartitionRange, ReadPlan
from respool.client.arrow.reading.stream import BatchStream, ReadSettings
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.configs import ConfigResource, describe_configs
from respool.client.kafka.list_offsets import EARLIEST, LATEST, offsets_for
from respool.model.tables.table_settings import TableSettings, table_settings_of
from respool.tables.errors import TableError
from respool.tables.formats.table_log import TopicIdentity
from respool.tables.planning.positions import LogEnds, TopicRange

COLUMNS = ("partition", "key", "value", "offset", "timestamp", "timestamp_type", "headers")
BUFFER_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePiece:
    partition: int
    # With `COLUMNS`; None if these offsets have no messages.
    batch: pa.RecordBatch | None
    # Everything of the partition before this offset was returned with this piece.
    next_offset: int


class TopicSource(Protocol):
    def identity(self) -> TopicIdentity: ...

    def settings(self) -> TableSettings: ...

    def ends(self) -> Mapping[int, LogEnds]:
        """The ends of all partitions; for readers of committed messages."""

    def read(self, ranges: Sequence[TopicRange]) -> Iterator[SourcePiece]:
        """Read the ranges; those of one partition in order, of different partitions in any order."""


class BrokerSource:
    """A topic of a cluster."""

    def __init__(self, cluster: Cluster, topic: str, *, parallel: int | None = None) -> None:
        self._cluster = cluster
        self.topic = topic
        self._settings = ReadSettings(buffer_bytes=BUFFER_BYTES, parallel=parallel)

    def identity(self) -> TopicIdentity:
        seen = self._cluster.retrying(lambda: self._cluster.refresh(self.topic))
        if seen.id is None:
            raise TableError(
                f"the brokers do not say the id of {self.topic}",
                hint="a table needs it to tell the topic from a later one of the same name; Kafka has ids since 2.8",
            )
        return TopicIdentity(name=self.topic, id=str(seen.id))

    def settings(self) -> TableSettings:
        def attempt() -> TableSettings:
            found = describe_configs(self._cluster, ConfigResource.TOPIC, [self.topic])[self.topic]
            return table_settings_of({name: one.value or "" for name, one in found.items()})

        return self._cluster.retrying(attempt)

    def ends(self) -> Mapping[int, LogEnds]:
        seen = self._cluster.retrying(lambda: self._cluster.refresh(self.topic))
        partitions = sorted(seen.leaders)
        # The ends first: retention may raise a start meanwhile, which is then a gap rather than a range.
        ends = offsets_for(
            self._cluster, self.topic, partitions, LATEST, isolation="read_committed"
        )
        starts = offsets_for(
            self._cluster, self.topic, partitions, EARLIEST, isolation="read_committed"
        )
        found = {}
        for number in partitions:
            end, start = ends[number], starts[number]
            low = 0 if start is None else start.offset
            found[number] = LogEnds(start=low, end=max(low, 0 if end is None else end.offset))
        return found

    def read(self, ranges: Sequence[TopicRange]) -> Iterator[SourcePiece]:
        seen = self._cluster.topic(self.topic)
        plan = ReadPlan(
            topic=self.topic,
            topic_id=seen.id,
            ranges=tuple(
                PartitionRange(partition=one.partition, begin=one.begin, end=one.end)
                for one in ranges
            ),
        )
        projection = Projection(self.topic, COLUMNS, None)
        with BatchStream(self._cluster, plan, projection, self._settings) as stream:
            while (piece := stream.next_piece()) is not None:
                end = piece.next_offset
                if piece.batch is not None:
                    # A piece may be part of a fetch, but it has all records of its offsets.
                    end = max(end, piece.batch.column("offset")[-1].as_py() + 1)
                yield SourcePiece(partition=piece.partition, batch=piece.batch, next_offset=end)
