"""Rows of a version of a table, for ranges of offsets. Files outside the ranges are not opened."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset

from respool.tables.formats.table_log import TableFile, TableLog, TableState
from respool.tables.layout import DATE, OFFSET, PARTITION
from respool.tables.planning.positions import TopicRange

_ROWS = 131_072


def table_rows(
    log: TableLog,
    state: TableState,
    ranges: Mapping[int, TopicRange] | None = None,
    *,
    since_us: int | None = None,
    where: "pc.Expression | None" = None,
) -> Iterator[pa.RecordBatch]:
    """The rows with these offsets, by partition and offset; with all columns of the table but its day."""
    schema = pa.schema([one for one in state.schema if one.name != DATE])
    for one in sorted(log.table_files(state), key=_order):
        wanted = _wanted(one, ranges, since_us)
        if wanted is None:
            continue
        condition = _both(wanted, where)
        found = dataset.dataset(
            one.path, schema=schema, format="parquet", filesystem=log.files.arrow_files
        )
        for batch in found.to_batches(filter=condition, batch_size=_ROWS):
            if batch.num_rows:
                yield batch


def _order(file: TableFile) -> tuple[int, int, str]:
    return (
        (-1, 0, file.path)
        if file.name is None
        else (file.name.partition, file.name.first, file.path)
    )


def _wanted(
    file: TableFile, ranges: Mapping[int, TopicRange] | None, since_us: int | None
) -> "pc.Expression | bool | None":
    """None: no row of the file is wanted; True: all are."""
    if since_us is not None and file.timestamp_max is not None and file.timestamp_max < since_us:
        return None
    if ranges is None:
        return True
    if file.name is None:
        # Written by another program: only its rows tell their partition and offset.
        return _in_ranges(list(ranges.values()))
    one = ranges.get(file.name.partition)
    if one is None or one.end <= file.name.first or one.begin >= file.name.next:
        return None
    if one.begin <= file.name.first and one.end >= file.name.next:
        return True
    return _in_ranges([one])


def _in_ranges(ranges: Sequence[TopicRange]) -> "pc.Expression":
    found = pc.scalar(False)
    for one in ranges:
        found |= (
            (pc.field(PARTITION) == one.partition)
            & (pc.field(OFFSET) >= one.begin)
            & (pc.field(OFFSET) < one.end)
        )
    return found


def _both(first: "pc.Expression | bool", second: "pc.Expression | None") -> "pc.Expression | None":
    if isinstance(first, bool):
        return second
    return first if second is None else first & second
