"""A topic as a producer writes to it: what does not fit is told before any row is taken, with the row's number."""

import pyarrow as pa
import pytest

from respool.client.arrow.errors import RecordTooLarge
from respool.client.arrow.writing.destinations import Destination
from respool.client.arrow.writing.routing import Router
from respool.client.arrow.writing.table_columns import Columns
from respool.client.kafka.errors import UnknownPartition

ROWS = pa.record_batch(
    {
        "value": ["a", "b" * 200, "c"],
        "to": pa.array([0, 1, 1], pa.int32()),
    }
)


def destination(*, row_bytes_max: int | None = None, partitions: int = 2) -> Destination:
    return Destination(
        "rides",
        Router("rides", batch_bytes=1_000),
        partitions=partitions,
        batch_bytes=1_000,
        row_bytes_max=row_bytes_max,
    )


def test_rows_go_where_their_column_says() -> None:
    columns = Columns.of(ROWS.schema, partition="to")
    routed = destination(row_bytes_max=1_000).route(ROWS, columns, first_row=0)
    assert routed.topic == "rides"
    assert routed.partitions.tolist() == [0, 1, 1]


def test_a_row_that_is_too_large_is_told_by_its_number_in_the_table() -> None:
    columns = Columns.of(ROWS.schema, partition="to")
    small = destination(row_bytes_max=200)
    for attempt in (small.check, small.route):
        with pytest.raises(RecordTooLarge) as error:
            attempt(ROWS, columns, first_row=40)
        assert error.value.row == 41
    assert destination(row_bytes_max=None).route(ROWS, columns, first_row=40)


def test_a_partition_that_the_topic_does_not_have_is_told() -> None:
    columns = Columns.of(ROWS.schema, partition="to")
    one = destination(partitions=1)
    for attempt in (one.check, one.route):
        with pytest.raises(UnknownPartition, match="no partition 1"):
            attempt(ROWS, columns, first_row=0)
    one.partitions = 2
    one.check(ROWS, columns, first_row=0)
