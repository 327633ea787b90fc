"""One read of a table and the log behind it: rows of one version of the table, then those that the log has beyond it.

The tail goes through the table's own decoder, with the columns of the version: both parts have the same columns, types,
and treatment of what cannot be read.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from respool.model.tables.table_settings import OnBadRecord, TableSettings
from respool.tables.errors import ForeignTable, RecordRejected
from respool.tables.formats.opening import open_table
from respool.tables.formats.table_log import TableLog, TableState
from respool.tables.layout import DATE, OFFSET, PARTITION, Layout
from respool.tables.planning.positions import LogEnds, TopicRange
from respool.tables.reading.hybrid_plan import HybridPart, plan_hybrid
from respool.tables.reading.table_rows import table_rows
from respool.tables.values.decoding import make_decoder
from respool.tables.values.value_decoder import ValueDecoder
from respool.tables.writing.row_shaper import shape_rows
from respool.tables.writing.topic_source import TopicSource


class HybridRead:
    """A planned read. The table's version, its positions and the log's ends are fixed when it is made."""

    def __init__(
        self,
        source: TopicSource,
        *,
        since: Mapping[int, int] | None = None,
        until: Mapping[int, int] | None = None,
        version: int | None = None,
        log: TableLog | None = None,
    ) -> None:
        """With `version`, that version of the table, without the log.

        Raises:
            NoTable, ForeignTable, RecordsDeleted, PositionBeyondLog, TableError, ClientError
        """
        topic = source.identity()
        self._source = source
        self._settings: TableSettings = source.settings()
        # The number of partitions may grow; the table's positions are looked up for those that there are.
        partitions = len(source.ends())
        self._log = log or open_table(self._settings, topic.name, partitions=partitions)
        self.state: TableState = self._log.load(version)
        if self.state.topic != topic:
            raise ForeignTable(
                f"the table at {self._log.files.location} belongs to topic {self.state.topic.name} "
                f"({self.state.topic.id}), and {topic.name} is {topic.id}",
                hint="read the table itself, or the topic with history='brokers'",
            )
        self.parts: list[HybridPart] = []
        if version is None:
            # Read after the version: rows that the table gets in between are beyond its positions.
            ends: Mapping[int, LogEnds] = source.ends()
            self.parts = plan_hybrid(
                topic.name, self.state.positions, ends, since=since, until=until
            )
        self._layout = Layout.of(self._settings)
        self.schema = pa.schema([one for one in self.state.schema if one.name != DATE])

    def batches(self, *, where: "pc.Expression | None" = None) -> Iterator[pa.RecordBatch]:
        """The rows: first the table's, then those of the log."""
        ranges = None
        if self.parts:
            ranges = {one.partition: one.from_table for one in self.parts}
        yield from table_rows(self._log, self.state, ranges, where=where)
        yield from self.tail([one.from_log for one in self.parts], where=where)

    def tail(
        self, ranges: Sequence[TopicRange], *, where: "pc.Expression | None" = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of these ranges of the log, with the table's columns."""
        wanted = [one for one in ranges if not one.is_empty]
        if not wanted:
            return
        decoder = make_decoder(
            self._settings.respool_table_schema,
            topic=self.state.topic.name,
            registry=self._settings.respool_table_registry,
        )
        try:
            for piece in self._source.read(wanted):
                if piece.batch is not None and piece.batch.num_rows:
                    rows = self._shaped(piece.batch, decoder)
                    if where is not None:
                        rows = rows.filter(where)
                    if rows.num_rows:
                        yield rows
        finally:
            if decoder is not None:
                decoder.close()

    def _shaped(self, batch: pa.RecordBatch, decoder: ValueDecoder | None) -> pa.RecordBatch:
        fields = self._layout.value_fields(self.state.schema)
        if decoder is None:
            rows = shape_rows(batch, self._layout, fields)
        else:
            decoded = decoder.decode(batch.column("value"), fields)
            if decoded.rejected and self._settings.respool_table_errors is OnBadRecord.STOP:
                first = decoded.rejected[0]
                raise RecordRejected(
                    f"{self.state.topic.name}/{batch.column('partition')[first.row]} at offset "
                    f"{batch.column('offset')[first.row]} cannot be read: {first.reason}"
                )
            rows = shape_rows(batch, self._layout, fields, decoded)
        has = set(rows.schema.names)
        columns = [
            rows.column(one.name) if one.name in has else pa.nulls(rows.num_rows, one.type)
            for one in self.schema
        ]
        found = pa.table(columns, names=self.schema.names).cast(self.schema)
        return found.combine_chunks().to_batches()[0] if rows.num_rows else _empty(self.schema)

    def table(
        self, columns: Sequence[str] | None = None, *, where: "pc.Expression | None" = None
    ) -> pa.Table:
        """All rows, by partition and offset."""
        found = pa.Table.from_batches(
            [_cast(one, self.schema) for one in self.batches(where=where)], self.schema
        ).sort_by([(PARTITION, "ascending"), (OFFSET, "ascending")])
        return found if columns is None else found.select(list(columns))


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    return pa.Table.from_batches([batch]).cast(schema).combine_chunks().to_batches()[0]


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)
