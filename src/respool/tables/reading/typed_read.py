"""`respool.read_table` and `respool.stream_batches`: messages as the client reads them, or with values as columns.

```
schema=None                                    the client's columns: topic, partition, key, value, ...
schema="declared:…" | "infer" | "registry" …   from the brokers, with the columns of a table of that schema
schema="table"                                 the columns of the topic's own table, and its rows; the log for the tail
```
`history` says where old messages come from: "brokers"; "table", which is the topic's table and then the log; "auto" is
the table for `schema="table"`, and otherwise the brokers.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias, overload

import pyarrow as pa

from respool.client.arrow.reading import read as plain
from respool.client.arrow.reading.read_bounds import PartitionOffsets, Point, parse_point
from respool.client.arrow.reading.stream import BatchStream
from respool.client.kafka.cluster import RETRY_MS, Cluster
from respool.client.kafka.errors import BadArgument
from respool.client.kafka.security import IN_THE_CLEAR
from respool.model.errors import InvalidConfig
from respool.model.seek_target import AtOffset, AtTime, Earliest, Latest
from respool.model.tables.value_schema import ValueSchema, parse_value_schema
from respool.tables.errors import RecordRejected
from respool.tables.layout import OFFSET, PARTITION, TIMESTAMP, Layout
from respool.tables.values.decoding import make_decoder
from respool.tables.writing.row_shaper import shape_rows
from respool.tables.writing.topic_source import COLUMNS, BrokerSource

History: TypeAlias = Literal["auto", "table", "brokers"]
Errors: TypeAlias = Literal["stop", "drop"]
_OF_TABLES = (
    "bootstrap",
    "since",
    "until",
    "columns",
    "where",
    "partitions",
    "retry_ms",
    "security",
)


def read_table(
    topic: str,
    *,
    schema: str | None = None,
    registry: str = "",
    history: History = "auto",
    version: int | None = None,
    errors: Errors = "stop",
    **options: Any,
) -> pa.Table:
    """Read the current messages of a topic into a table, ordered by partition and offset.

    Args:
        schema: What values are read as: None leaves them as bytes; "table", "infer", "declared:id long, city string",
            "registry", "registry:latest", "avro:…" or "protobuf:…".
        registry: The URL of the schema registry.
        history: Where messages come from: "auto", "table" or "brokers"; see above.
        version: A version of the topic's table, as it was then, without the log.
        errors: For a schema other than the table's: "stop" raises at a value that cannot be read; "drop" leaves it out.
        options: Those of `respool.client.arrow.reading.read.read_table`: bootstrap, since, until, columns, where, ...

    Raises:
        ClientError, TableError: one of their subclasses; no partial result is returned.
    """
    if not _is_typed(schema, history, version):
        return plain.read_table(topic, **options)
    if schema == "table" or history == "table" or version is not None:
        return _read_hybrid(topic, schema, version, options)
    with stream_batches(
        topic,
        schema=schema or "",
        registry=registry,
        history=history,
        errors=errors,
        follow=False,
        **options,
    ) as stream:
        batches = list(stream)
    found = pa.Table.from_batches(batches, stream.schema)
    order = [(name, "ascending") for name in (PARTITION, OFFSET) if name in found.schema.names]
    return found.sort_by(order) if order else found


@overload
def stream_batches(
    topic: str, *, schema: None = None, history: History = "auto", **options: Any
) -> BatchStream: ...


@overload
def stream_batches(
    topic: str,
    *,
    schema: str,
    registry: str = "",
    history: History = "auto",
    errors: Errors = "stop",
    **options: Any,
) -> "TypedStream": ...


def stream_batches(
    topic: str,
    *,
    schema: str | None = None,
    registry: str = "",
    history: History = "auto",
    errors: Errors = "stop",
    **options: Any,
) -> "BatchStream | TypedStream":
    """Read a topic's messages as record batches; see `read_table`. With `follow`, it continues with new messages.

    With a schema whose columns are found in the values ("infer", "registry"), the columns are those of the first batch;
    what later values have beyond them is in `_rest`.
    """
    if not _is_typed(schema, history, None):
        return plain.stream_batches(topic, **options)
    if schema is None or schema == "table" or history == "table":
        raise BadArgument(
            "a stream reads the log: give schema='declared:…' or another one, or use read_table for history='table'"
        )
    columns = options.pop("columns", None)
    where = options.pop("where", None)
    stream = plain.stream_batches(topic, columns=COLUMNS, **options)
    return TypedStream(
        stream,
        schema=_parsed(schema),
        topic=topic,
        registry=registry,
        errors=errors,
        columns=columns,
        where=where,
    )


def _is_typed(schema: str | None, history: str, version: int | None) -> bool:
    if history not in {"auto", "table", "brokers"}:
        raise BadArgument(f"history = {history!r}: 'auto', 'table' or 'brokers'")
    if schema == "table" and history == "brokers":
        raise BadArgument(
            "schema = 'table' reads the topic's table: history = 'brokers' contradicts it"
        )
    return schema is not None or history == "table" or version is not None


def _parsed(schema: str | None) -> ValueSchema:
    try:
        return parse_value_schema(schema or "")
    except InvalidConfig as error:
        raise BadArgument(f"schema = {error}; or 'table'") from None


def _read_hybrid(
    topic: str, schema: str | None, version: int | None, options: dict[str, Any]
) -> pa.Table:
    if schema not in {None, "table"}:
        raise BadArgument(
            "the topic's table has its own columns: schema='table', or history='brokers'"
        )
    unknown = [name for name in options if name not in _OF_TABLES]
    if unknown:
        raise BadArgument(f"{', '.join(unknown)}: not supported for reads of the topic's table")
    since = parse_point("since", options.get("since"), default=Earliest(), now_ms=_now_ms())
    until = parse_point("until", options.get("until"), default=Latest(), now_ms=_now_ms())
    with Cluster(
        options.get("bootstrap"),
        retry_ms=options.get("retry_ms", RETRY_MS),
        security=options.get("security", IN_THE_CLEAR),
    ) as cluster:
        source = BrokerSource(cluster, topic)
        partitions = sorted(source.ends())
        # Imported here: it loads pyarrow.dataset and pandas, which a plain read does not need.
        from respool.tables.reading.hybrid_read import HybridRead

        read = HybridRead(
            source,
            since=_offsets("since", since, partitions),
            until=_offsets("until", until, partitions),
            version=version,
        )
        where = _where(options.get("where"), since, until, options.get("partitions"))
        return read.table(options.get("columns"), where=where)


def _offsets(name: str, point: Point, partitions: Sequence[int]) -> dict[int, int] | None:
    match point:
        case AtOffset(offset):
            return dict.fromkeys(partitions, offset)
        case PartitionOffsets(offsets):
            return dict(offsets)
        case Earliest() | Latest() | AtTime():
            return None
    raise BadArgument(
        f"{name}: an offset, offsets by partition, or a time, for a read of the topic's table"
    )


def _where(where: Any, since: Point, until: Point, partitions: Any) -> Any:
    import pyarrow.compute as pc

    time = pa.timestamp("us", "UTC")
    parts = [] if where is None else [where]
    if isinstance(since, AtTime):
        parts.append(pc.field(TIMESTAMP) >= pa.scalar(since.ms * 1000, time))
    if isinstance(until, AtTime):
        parts.append(pc.field(TIMESTAMP) < pa.scalar(until.ms * 1000, time))
    if partitions is not None:
        parts.append(pc.field(PARTITION).isin(list(partitions)))
    found = None
    for one in parts:
        found = one if found is None else found & one
    return found


def _now_ms() -> int:
    import time

    return time.time_ns() // 1_000_000


class TypedStream(Iterator[pa.RecordBatch]):
    """Batches with the columns of a table. Close it, or use it as a context manager, unless it is read to its end."""

    def __init__(
        self,
        stream: BatchStream,
        *,
        schema: ValueSchema,
        topic: str,
        registry: str,
        errors: Errors,
        columns: Sequence[str] | None,
        where: Any,
    ) -> None:
        if errors not in {"stop", "drop"}:
            raise BadArgument(f"errors = {errors!r}: 'stop' or 'drop'")
        self._stream = stream
        self._topic = topic
        self._errors = errors
        self._columns = None if columns is None else list(columns)
        self._where = where
        self._layout = Layout(
            is_typed=not schema.is_raw, keeps_raw=schema.is_raw, is_struct=False, by_day=False
        )
        self._decoder = make_decoder(schema, topic=topic, registry=registry)
        self._fields: list[pa.Field] | None = None
        # The number of values that could not be decoded and were omitted.
        self.dropped = 0

    @property
    def schema(self) -> pa.Schema:
        """The columns; with "infer" and "registry" those of what was read so far."""
        found = self._layout.schema(self._fields or [])
        return (
            found
            if self._columns is None
            else pa.schema([found.field(one) for one in self._columns])
        )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        while True:
            try:
                batch = next(self._stream)
            except StopIteration:
                self.close()
                raise
            rows = self._rows(batch)
            if rows.num_rows:
                return rows

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._decoder is None:
            rows = shape_rows(batch, self._layout, ())
        else:
            values = batch.column("value")
            if self._fields is None:
                self._fields = self._decoder.new_fields(values, [])
            decoded = self._decoder.decode(values, self._fields)
            if decoded.rejected and self._errors == "stop":
                first = decoded.rejected[0]
                raise RecordRejected(
                    f"{self._topic}/{batch.column('partition')[first.row]} at offset "
                    f"{batch.column('offset')[first.row]} cannot be read: {first.reason}",
                    hint="errors='drop' omits such values",
                )
            self.dropped += len(decoded.rejected)
            rows = shape_rows(batch, self._layout, self._fields, decoded)
        if self._where is not None:
            rows = rows.filter(self._where)
        return rows if self._columns is None else rows.select(self._columns)

    @property
    def positions(self) -> Mapping[int, int]:
        """Partition -> the next offset to return: pass it as `since` to continue from here."""
        return self._stream.positions

    @property
    def is_closed(self) -> bool:
        return self._stream.is_closed

    def close(self) -> None:
        self._stream.close()
        if self._decoder is not None:
            self._decoder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
