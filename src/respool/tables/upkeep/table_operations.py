"""The work of `respool table create` and `respool table status`, for Python too."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.configs import ConfigResource, alter_configs
from respool.model.errors import InvalidConfig
from respool.model.operator_errors import UsageError
from respool.model.tables.table_settings import (
    TableKind,
    TableSettings,
    check_table_settings,
    table_settings_of,
)
from respool.model.tables.value_schema import ValueKind
from respool.tables.errors import NoTable, TableExists
from respool.tables.formats.opening import open_rejected, open_table
from respool.tables.formats.table_log import TableLog
from respool.tables.layout import Layout
from respool.tables.planning.positions import LogEnds, TopicRange
from respool.tables.values.decoding import make_decoder
from respool.tables.values.value_decoder import ValueDecoder
from respool.tables.writing.topic_source import BrokerSource, TopicSource

EXAMPLES = 10_000


def create_table(cluster: Cluster, topic: str, settings: Mapping[str, str]) -> TableLog:
    """Create the table, and store its settings (`respool.table.*`) in the topic.

    Raises:
        TableExists: the topic has a table, or its location is not empty.
        UsageError: the settings are invalid.
        TableError, ClientError
    """
    source = BrokerSource(cluster, topic)
    identity = source.identity()
    known = source.settings()
    if known.respool_table is not TableKind.NONE:
        raise TableExists(
            f"topic {topic} has a {known.respool_table} table at {known.respool_table_location} already",
            hint=f"see it with: respool table status {topic}",
        )
    try:
        wanted = table_settings_of(settings)
        check_table_settings(wanted)
    except InvalidConfig as error:
        raise UsageError(str(error)) from None
    # Before the table is created: the brokers may be older, or refuse this user.
    alter_configs(cluster, ConfigResource.TOPIC, topic, values=settings, validate_only=True)
    ends = source.ends()
    log = open_table(wanted, topic, partitions=len(ends))
    layout = Layout.of(wanted)
    fields = _first_fields(source, wanted, topic, ends)
    log.create(layout.schema(fields), identity, by_day=layout.by_day)
    alter_configs(cluster, ConfigResource.TOPIC, topic, values=settings)
    return log


def _first_fields(
    source: TopicSource, settings: TableSettings, topic: str, ends: Mapping[int, LogEnds]
) -> list[pa.Field]:
    decoder = make_decoder(
        settings.respool_table_schema, topic=topic, registry=settings.respool_table_registry
    )
    if decoder is None:
        return []
    try:
        known = decoder.new_fields(pa.array([], pa.binary()), [])
        if settings.respool_table_schema.kind is ValueKind.INFER:
            return [*known, *_inferred(source, decoder, ends)]
        return known
    finally:
        decoder.close()


def _inferred(
    source: TopicSource, decoder: ValueDecoder, ends: Mapping[int, LogEnds]
) -> list[pa.Field]:
    """Columns from the newest messages of all partitions."""
    each = max(1, EXAMPLES // max(1, len(ends)))
    ranges = [
        TopicRange(partition=number, begin=max(one.start, one.end - each), end=one.end)
        for number, one in sorted(ends.items())
    ]
    batches = [
        piece.batch.column("value")
        for piece in source.read([one for one in ranges if not one.is_empty])
        if piece.batch is not None
    ]
    if not batches:
        return []
    return decoder.new_fields(pa.concat_arrays(batches), [])


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    partition: int
    # The next offset that the table lacks; None: it has nothing yet.
    position: int | None
    log_start: int
    log_end: int

    @property
    def lag(self) -> int:
        begin = self.log_start if self.position is None else self.position
        return max(0, self.log_end - begin)

    @property
    def deleted(self) -> int:
        """Offsets that were deleted before the table had them."""
        return 0 if self.position is None else max(0, self.log_start - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    topic: str
    settings: TableSettings
    version: int
    rows: int
    files: int
    bytes: int
    # Files that Respool did not write.
    foreign_files: int
    # None: no record was ever rejected.
    rejected: int | None
    columns: pa.Schema
    partitions: tuple[PartitionProgress, ...]
    # Why the table does not belong to the topic; empty if it does.
    problem: str

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "format": str(self.settings.respool_table),
            "location": self.settings.respool_table_location,
            "schema": str(self.settings.respool_table_schema),
            "version": self.version,
            "row_count": self.rows,
            "file_count": self.files,
            "bytes": self.bytes,
            "foreign_file_count": self.foreign_files,
            "rejected_count": self.rejected,
            "lag": sum(one.lag for one in self.partitions),
            "problem": self.problem or None,
            "columns": [{"column": one.name, "arrow_type": str(one.type)} for one in self.columns],
            "partitions": [
                {
                    "partition": one.partition,
                    "position": one.position,
                    "log_start": one.log_start,
                    "log_end": one.log_end,
                    "lag": one.lag,
                    "deleted": one.deleted,
                }
                for one in self.partitions
            ],
        }


def table_status(cluster: Cluster, topic: str) -> TableStatus:
    """
    Raises:
        NoTable: the topic has none.
        TableError, ClientError
    """
    source = BrokerSource(cluster, topic)
    identity, settings, ends = source.identity(), source.settings(), source.ends()
    log = open_table(settings, topic, partitions=len(ends))
    state = log.load()
    files = log.table_files(state)
    try:
        aside = open_rejected(settings, topic, partitions=len(ends))
        rejected = sum(one.rows for one in aside.table_files(aside.load()))
    except NoTable:
        rejected = None
    problem = ""
    if state.topic != identity:
        problem = f"it belongs to topic {state.topic.name} ({state.topic.id}), and {topic} is {identity.id}"
    return TableStatus(
        topic=topic,
        settings=settings,
        version=state.version,
        rows=sum(one.rows for one in files),
        files=len(files),
        bytes=sum(one.size for one in files),
        foreign_files=sum(one.name is None for one in files),
        rejected=rejected,
        columns=state.schema,
        problem=problem,
        partitions=tuple(
            PartitionProgress(
                partition=number,
                position=state.positions.get(number),
                log_start=one.start,
                log_end=one.end,
            )
            for number, one in sorted(ends.items())
        ),
    )
