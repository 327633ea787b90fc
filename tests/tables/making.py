"""A topic in memory and tables in a folder, for tests of tables: no broker, no clock, no dice."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from respool.columnar.arrow_columns import TYPES
from respool.model.tables.table_settings import TableSettings, table_settings_of
from respool.tables.formats.opening import make_rejected, open_table
from respool.tables.formats.table_log import TableLog, TopicIdentity
from respool.tables.layout import Layout
from respool.tables.planning.positions import LogEnds, TopicRange
from respool.tables.values.value_decoder import ValueDecoder
from respool.tables.writing.table_writer import TableWriter, WriterParts
from respool.tables.writing.topic_source import SourcePiece

RIDES = TopicIdentity(name="rides", id="8d3f9c1e-0000-4000-8000-000000000001")
_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        *(
            pa.field(name, TYPES[name])
            for name in ("offset", "timestamp", "timestamp_type", "headers")
        ),
    ]
)


def settings_of(folder: Path, kind: str = "delta", **more: str) -> TableSettings:
    """`schema="infer"` is `respool.table.schema=infer`."""
    given = {f"respool.table.{name.replace('_', '.')}": value for name, value in more.items()}
    return table_settings_of(
        {"respool.table": kind, "respool.table.location": str(folder / "table"), **given}
    )


@dataclass
class MemoryTopic:
    """A `TopicSource`: values by partition; None is a marker or an aborted record, which takes an offset."""

    settings_now: TableSettings
    values: dict[int, list[bytes | None]] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    topic: TopicIdentity = RIDES
    rows_per_piece: int = 3
    # Called before each piece.
    before_piece: Callable[[], None] = lambda: None
    tombstones: set[tuple[int, int]] = field(default_factory=set)

    def identity(self) -> TopicIdentity:
        return self.topic

    def settings(self) -> TableSettings:
        return self.settings_now

    def ends(self) -> Mapping[int, LogEnds]:
        return {
            number: LogEnds(start=self.starts.get(number, 0), end=len(found))
            for number, found in self.values.items()
        }

    def read(self, ranges: Sequence[TopicRange]) -> Iterator[SourcePiece]:
        for one in ranges:
            for begin in range(one.begin, one.end, self.rows_per_piece):
                self.before_piece()
                end = min(begin + self.rows_per_piece, one.end)
                yield SourcePiece(
                    partition=one.partition,
                    batch=self._batch(one.partition, begin, end),
                    next_offset=end,
                )

    def _batch(self, partition: int, begin: int, end: int) -> pa.RecordBatch | None:
        found = [
            (offset, value)
            for offset, value in enumerate(self.values[partition][begin:end], begin)
            if value is not None or (partition, offset) in self.tombstones
        ]
        if not found:
            return None
        rows: list[dict[str, Any]] = [
            {
                "partition": partition,
                "key": f"k{offset}".encode(),
                "value": value,
                "offset": offset,
                "timestamp": 1_700_000_000_000 + offset * 3_600_000,
                "timestamp_type": 0,
                "headers": [{"key": "h", "value": b"1"}] if offset % 2 else [],
            }
            for offset, value in found
        ]
        return pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)


def numbers() -> Callable[[], str]:
    counter = count(1)
    return lambda: f"{next(counter):016x}"


def make_table(topic: MemoryTopic, fields: Sequence[pa.Field] = ()) -> TableLog:
    log = open_log(topic)
    layout = Layout.of(topic.settings_now)
    log.create(layout.schema(fields), topic.topic, by_day=layout.by_day)
    return log


def open_log(topic: MemoryTopic) -> TableLog:
    return open_table(topic.settings_now, topic.topic.name, partitions=len(topic.values))


def make_writer(
    topic: MemoryTopic,
    log: TableLog | None = None,
    *,
    decoder: ValueDecoder | None = None,
    new_random: Callable[[], str] | None = None,
) -> TableWriter:
    parts = WriterParts(
        source=topic,
        log=log or open_log(topic),
        open_rejected=lambda: make_rejected(
            topic.settings_now, topic.topic, partitions=len(topic.values)
        ),
        decoder=decoder,
        new_random=new_random or numbers(),
        wait=lambda _failures: None,
    )
    return TableWriter(parts, topic.settings_now)


def rows_of(log: TableLog) -> pa.Table:
    """The rows of the newest version, read as files, ordered by partition and offset."""
    from pyarrow import parquet

    state = log.load()
    tables = []
    for one in log.table_files(state):
        with log.files.open_input(one.path) as source:
            tables.append(parquet.read_table(source))
    if not tables:
        return state.schema.empty_table()
    joined = pa.concat_tables(tables, promote_options="permissive")
    return joined.sort_by([("_partition", "ascending"), ("_offset", "ascending")])


def offsets_of(log: TableLog) -> list[tuple[int, int]]:
    found = rows_of(log)
    return list(zip(found["_partition"].to_pylist(), found["_offset"].to_pylist(), strict=True))
