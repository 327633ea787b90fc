"""Which columns are decoded, and which rows are shown."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from respool.client.arrow.reading.projection import ALL_COLUMNS, Projection
from respool.client.kafka.errors import BadArgument
from respool.columnar.arrow_columns import ALL_COLUMNS as RECORD_COLUMNS
from respool.columnar.arrow_columns import schema_of


def decoded(columns: tuple[str, ...], offsets: list[int]) -> pa.RecordBatch:
    """As the decoder makes them."""
    rows = {
        "key": [b"k%d" % one for one in offsets],
        "value": [b"v%d" % one for one in offsets],
        "offset": offsets,
        "timestamp": offsets,
        "timestamp_type": [0] * len(offsets),
        "headers": [[] for _ in offsets],
    }
    schema = schema_of(columns)
    arrays = [pa.array(rows[name], schema.field(name).type) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@pytest.mark.parametrize(
    ("columns", "where", "needed"),
    [
        (None, None, RECORD_COLUMNS),
        (["value"], None, ("value",)),
        (["value", "key"], None, ("value", "key")),
        (["topic", "partition"], None, ("offset",)),
        (["value"], pc.field("partition") == 1, ("value",)),
        (["value"], pc.field("offset") > 5, ("value", "offset")),
        (["topic"], (pc.field("key") == b"k") | pc.field("value").is_null(), ("key", "value")),
        (["value"], pc.scalar(True), ("value",)),
    ],
)
def test_only_what_is_shown_or_asked_about_is_decoded(
    columns: list[str] | None, where: pc.Expression | None, needed: tuple[str, ...]
) -> None:
    assert Projection("rides", columns, where).decoded == needed


def test_rows_are_kept_by_what_where_says_and_shown_as_asked_for() -> None:
    projection = Projection("rides", ["value", "partition"], pc.field("offset") > 5)
    shape = projection.new_shaper().shape
    shown = shape(decoded(projection.decoded, [4, 6, 7]), 3)
    assert shown is not None
    assert shown.schema == projection.schema
    assert shown.to_pydict() == {"value": [b"v6", b"v7"], "partition": [3, 3]}
    assert shape(decoded(projection.decoded, [1, 2]), 3) is None


def test_the_constant_columns_fit_each_batch_and_partition() -> None:
    projection = Projection("rides", None, None)
    shape = projection.new_shaper().shape
    for partition, offsets in ((0, [1, 2, 3]), (1, [1]), (0, [1, 2]), (1, [4, 5, 6, 7])):
        shown = shape(decoded(projection.decoded, offsets), partition)
        assert shown is not None
        assert shown.schema == projection.schema
        assert tuple(shown.schema.names) == ALL_COLUMNS
        assert shown.column("topic").to_pylist() == ["rides"] * len(offsets)
        assert shown.column("partition").to_pylist() == [partition] * len(offsets)
        shown.validate(full=True)


def test_where_that_cannot_be_answered_names_the_columns_there_are() -> None:
    with pytest.raises(BadArgument, match="topic, partition, key") as caught:
        Projection("rides", None, pc.field("driver") == 1)
    assert "driver" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(BadArgument, match="cannot be answered"):
        Projection("rides", None, pc.field("value") > 1)
