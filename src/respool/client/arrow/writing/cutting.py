"""Rows of a table -> which of them make the next record batch of which partition. Arrays in, arrays out.

Work is per array and per batch, never per row. Rows of one partition keep their order.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from respool.records.batch import HEADER_BYTES

Rows: TypeAlias = slice | NDArray[np.int64]

# numpy sorts numbers of 16 bits by counting them, ten times as fast as larger ones by comparing.
_SMALL = np.iinfo(np.int16).max


class Cut(NamedTuple):
    partition: int
    # A slice where the rows lie side by side: then nothing needs to be gathered.
    rows: Rows
    row_count: int
    # What the rows need without compression, the batch's header included.
    size: int


def cut(
    partitions: NDArray[np.int32], sizes: NDArray[np.int64], *, batch_bytes: int
) -> Iterator[Cut]:
    """Row i goes to `partitions[i]` and takes `sizes[i]` bytes. A row larger than a batch may be is alone."""
    assert len(partitions) == len(sizes)
    if not len(partitions):
        return
    room = max(1, batch_bytes - HEADER_BYTES)
    # Rows that lie together are not gathered, if that makes few batches more.
    runs_max = 2 * int(sizes.sum()) // room
    for partition, rows in _by_partition(partitions, runs_max):
        ends = np.cumsum(sizes[rows])
        for begin, end, size in _pieces(ends, room):
            yield Cut(partition, _part(rows, begin, end), end - begin, size + HEADER_BYTES)


def _by_partition(partitions: NDArray[np.int32], runs_max: int) -> Iterator[tuple[int, Rows]]:
    changes = np.flatnonzero(partitions[1:] != partitions[:-1]) + 1
    starts = np.concatenate(([0], changes))
    owners = partitions[starts]
    if len(starts) <= runs_max or len(np.unique(owners)) == len(owners):
        stops = np.concatenate((changes, [len(partitions)]))
        for owner, start, stop in zip(
            owners.tolist(), starts.tolist(), stops.tolist(), strict=True
        ):
            yield owner, slice(start, stop)
        return
    keys = partitions.astype(np.int16) if partitions.max() <= _SMALL else partitions
    order = np.argsort(keys, kind="stable")
    counts = np.bincount(partitions)
    start = 0
    for owner in np.flatnonzero(counts).tolist():
        stop = start + int(counts[owner])
        yield owner, order[start:stop]
        start = stop


def _pieces(ends: NDArray[np.int64], room: int) -> Iterator[tuple[int, int, int]]:
    begin, before = 0, 0
    while begin < len(ends):
        end = max(int(np.searchsorted(ends, before + room, side="right")), begin + 1)
        after = int(ends[end - 1])
        yield begin, end, after - before
        begin, before = end, after


def _part(rows: Rows, begin: int, end: int) -> Rows:
    if isinstance(rows, slice):
        return slice(rows.start + begin, rows.start + end)
    return rows[begin:end]
