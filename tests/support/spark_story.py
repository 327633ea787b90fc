"""Readers as Spark uses them, without Spark: planned, sent, and read."""

import pickle
from collections.abc import Iterable
from typing import Any

import confluent_kafka as ck
import pyarrow as pa
from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

import respool
from respool.spark.source.batch_reader import PushingReader
from respool.spark.source.source_columns import full_schema
from respool.spark.source.stream_plan import Range
from respool.spark.source.stream_reader import StreamReader
from respool.testing import Broker
from support.topics import Topics

Row = dict[str, Any]


class Story:
    """One broker, and what is read of it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.topics = Topics(broker.bootstrap)
        self._streams: list[StreamReader] = []

    def write(self, topic: str, values: Iterable[Any], **more: Any) -> None:
        """Values as text; `to`, `at` and `tag` are the partition, the time in ms and a header of each."""
        values = list(values)
        columns: dict[str, Any] = {"value": [str(one) for one in values]}
        for name, column in (("to", "to"), ("at", "timestamp"), ("key", "key")):
            if name in more:
                said = more.pop(name)
                columns[column] = said if isinstance(said, list) else [said] * len(values)
        if "tag" in more:
            tags = more.pop("tag")
            columns["headers"] = [
                [{"key": "tag", "value": tag.encode()}]
                for tag in (tags if isinstance(tags, list) else [tags] * len(values))
            ]
        if "to" in columns:
            more["partition"] = "to"
        respool.write_table(pa.table(columns), topic, bootstrap=self.broker.bootstrap, **more)

    def options(self, given: dict[str, Any]) -> dict[str, str]:
        base = {"kafka.bootstrap.servers": self.broker.bootstrap, "subscribe": "rides"}
        if "bootstrap" in given:
            del base["kafka.bootstrap.servers"]
        if given.keys() & {"assign", "subscribePattern"}:
            del base["subscribe"]
        return base | {name: str(value) for name, value in given.items()}

    def batch(self, *filters: Filter, schema: StructType | None = None, **given: Any) -> "Read":
        reader = PushingReader(self.options(given), schema or full_schema(include_headers=False))
        left = list(reader.pushFilters(list(filters)))
        return Read(reader, reader.partitions(), left)

    def stream(self, **given: Any) -> "Stream":
        options = self.options({"startingOffsets": "earliest"} | given)
        reader = StreamReader(options, full_schema(include_headers=False))
        self._streams.append(reader)
        return Stream(reader)

    def committed(self, group: str, topic: str = "rides") -> dict[int, int]:
        """What the group has committed."""
        consumer = ck.Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": group})
        known = self.topics.admin.list_topics(topic, timeout=60).topics[topic].partitions
        places = [ck.TopicPartition(topic, number) for number in known]
        found = {one.partition: one.offset for one in consumer.committed(places, timeout=60)}
        consumer.close()
        return {number: offset for number, offset in found.items() if offset >= 0}

    def close(self) -> None:
        for one in self._streams:
            one.stop()


class Read:
    """A batch that was planned."""

    def __init__(self, reader: Any, parts: Iterable[InputPartition], left: list[Filter]) -> None:
        self.left = left
        self.ranges: list[Range] = [one.value for one in parts]
        # As executors get it.
        self.sent = pickle.dumps((reader, list(parts)))

    @property
    def offsets(self) -> dict[tuple[str, int], tuple[int, int]]:
        return {(one.topic, one.partition): (one.begin, one.end) for one in self.ranges}

    def rows(self) -> list[Row]:
        reader, parts = pickle.loads(self.sent)
        found = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        return sorted(
            found, key=lambda row: (row.get("topic"), row.get("partition"), row["offset"])
        )

    def values(self) -> list[str]:
        return [row["value"].decode() for row in self.rows()]


class Stream:
    """A query, micro-batch by micro-batch."""

    def __init__(self, reader: StreamReader) -> None:
        self.reader = reader
        self._sent = pickle.dumps(reader)
        self.at: dict[str, Any] | None = None

    def begin(self) -> "Stream":
        self.at = self.reader.initialOffset()
        return self

    def resume(self, at: dict[str, Any]) -> "Stream":
        self.at = at
        return self

    def next(self, limit: ReadLimit | None = None) -> list[str]:
        """The values of the next micro-batch; none where there is nothing new."""
        assert self.at is not None
        end = self.reader.latestOffset(self.at, limit or self.reader.getDefaultReadLimit())
        if end == self.at:
            return []
        return self.batch(self.at, end)

    def batch(self, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
        read = Read(pickle.loads(self._sent), self.reader.partitions(start, end), [])
        self.at = end
        return read.values()

    def all(self) -> list[str]:
        return self.next(ReadAllAvailable())
