"""Turns messages into rows of a table: the columns about the message, and those of its value."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from respool.tables.layout import (
    DATE,
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    REASON,
    REST,
    STRUCT,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    VALUE,
    Layout,
    column_of,
)
from respool.tables.values.value_decoder import DecodedValues


def shape_rows(
    batch: pa.RecordBatch,
    layout: Layout,
    fields: Sequence[pa.Field],
    decoded: DecodedValues | None = None,
) -> pa.RecordBatch:
    """The messages of a batch as rows; with `decoded`, those that were not rejected."""
    if decoded is not None and decoded.rejected:
        rejected = {one.row for one in decoded.rejected}
        batch = batch.take(
            pa.array([row for row in range(batch.num_rows) if row not in rejected], pa.int64())
        )
    schema = layout.schema(fields)
    columns = _message_columns(batch, layout)
    if decoded is not None:
        assert decoded.rows.num_rows == batch.num_rows, "rows would be shifted"
        values = {one.name: decoded.rows.column(one.name) for one in fields}
        if layout.is_struct:
            if fields:
                columns[STRUCT] = pa.StructArray.from_arrays(
                    list(values.values()),
                    fields=list(fields),
                    mask=pc.is_null(batch.column("value")),
                )
        else:
            columns |= {column_of(name): column for name, column in values.items()}
        columns[REST] = decoded.rest
    return pa.RecordBatch.from_arrays([columns[one.name] for one in schema], schema=schema)


def rejected_rows(batch: pa.RecordBatch, decoded: DecodedValues) -> pa.RecordBatch:
    """The rejected messages as rows of the table `<name>__rejected`."""
    rows = pa.array([one.row for one in decoded.rejected], pa.int64())
    found = batch.take(rows)
    layout = Layout.of_rejected()
    columns = _message_columns(found, layout)
    columns[REASON] = pa.array([one.reason for one in decoded.rejected], pa.string())
    schema = layout.schema(())
    return pa.RecordBatch.from_arrays([columns[one.name] for one in schema], schema=schema)


def _message_columns(batch: pa.RecordBatch, layout: Layout) -> dict[str, pa.Array]:
    schema = layout.schema(())
    times = batch.column("timestamp").cast(pa.timestamp("us", "UTC"))
    columns = {
        PARTITION: batch.column("partition"),
        OFFSET: batch.column("offset"),
        TIMESTAMP: times,
        TIMESTAMP_TYPE: batch.column("timestamp_type").cast(pa.int32()),
        KEY: batch.column("key"),
        HEADERS: batch.column("headers").cast(schema.field(HEADERS).type),
    }
    if layout.keeps_raw:
        columns[VALUE] = batch.column("value")
    if layout.by_day:
        columns[DATE] = times.cast(pa.date32())
    return columns
