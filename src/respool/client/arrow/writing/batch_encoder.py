"""Encodes routed rows into record batches, and queues them by partition.

Work is per array and per batch, never per row. Rows of one partition keep their order.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from respool.client.arrow.writing.accumulator import Routed
from respool.client.arrow.writing.delivery import Delivery
from respool.client.arrow.writing.producer_stamps import producer_stamp
from respool.client.kafka.partition_queue import ProducerBatch
from respool.client.kafka.retries import now_ms
from respool.columnar.encode_columns import encode, encoded_size
from respool.columnar.row_buffers import RowBuffers
from respool.records.batch import HEADER_BYTES, Codec

Rows: TypeAlias = slice | NDArray[np.int64]

# numpy sorts 16-bit numbers by counting, ten times as fast as it sorts larger ones by comparison.
_SMALL = np.iinfo(np.int16).max


class BatchRows(NamedTuple):
    partition: int
    # A slice if the rows are adjacent: then they need not be gathered.
    rows: Rows
    row_count: int
    # Uncompressed bytes of the rows, including the batch's header.
    size: int


def row_sizes(rows: RowBuffers) -> NDArray[np.int64]:
    """The maximum number of bytes of each row in a record batch."""
    if not rows.rows:
        return np.empty(0, dtype=np.int64)
    return np.diff(encoded_size(rows, None), prepend=0)


class BatchEncoder:
    def __init__(self, delivery: Delivery, *, codec: Codec, level: int | None) -> None:
        self._delivery = delivery
        self._codec = codec
        self._level = level

    @property
    def is_compressing(self) -> bool:
        return self._codec is not Codec.NONE

    def encode_all(self, routed: Routed, *, batch_bytes: int) -> bool:
        """Encode all rows, waiting for buffer space; False as soon as a partition has failed."""
        rows = RowBuffers.of(routed.records)
        return all(
            self._encode_one(routed, rows, one, batch_bytes)
            for one in split_batches(routed.partitions, routed.sizes, batch_bytes=batch_bytes)
        )

    def _encode_one(
        self, routed: Routed, rows: RowBuffers, one: BatchRows, batch_bytes: int
    ) -> bool:
        delivery = self._delivery
        place = routed.topic, one.partition
        delivery.reserve(one.size)
        try:
            with delivery.changed:
                stamp = delivery.queue_of(place).next_stamp()
            data = encode(
                rows,
                one.rows,
                codec=self._codec,
                level=self._level,
                timestamp_ms=routed.now_ms,
                stamp=producer_stamp(
                    stamp, is_transactional=delivery.settings.transactional_id is not None
                ),
            )
        except BaseException:
            delivery.free(one.size)
            raise
        if len(data) > batch_bytes and one.row_count > 1:
            # Compression made it larger, or the timestamps are further apart than estimated.
            delivery.free(one.size)
            return all(self._encode_one(routed, rows, half, batch_bytes) for half in _halves(one))
        delivery.free(one.size - len(data))
        batch = ProducerBatch(
            rows=one.row_count,
            size=len(data),
            deadline_ms=now_ms() + delivery.settings.delivery_timeout_ms,
            data=data,
            written_stamp=stamp,
        )
        return delivery.submit(place, batch)


def _halves(one: BatchRows) -> Iterator[BatchRows]:
    middle = one.row_count // 2
    size = (one.size + HEADER_BYTES) // 2
    for begin, end in ((0, middle), (middle, one.row_count)):
        if isinstance(one.rows, slice):
            rows: slice | NDArray[np.int64] = slice(one.rows.start + begin, one.rows.start + end)
        else:
            rows = one.rows[begin:end]
        yield BatchRows(one.partition, rows, end - begin, size)


def split_batches(
    partitions: NDArray[np.int32], sizes: NDArray[np.int64], *, batch_bytes: int
) -> Iterator[BatchRows]:
    """Split rows into batches: row i has `sizes[i]` bytes and goes to `partitions[i]`.

    A row larger than `batch_bytes` gets its own batch.
    """
    assert len(partitions) == len(sizes)
    if not len(partitions):
        return
    room = max(1, batch_bytes - HEADER_BYTES)
    # Adjacent rows are not gathered, if that makes only a few more batches.
    runs_max = 2 * int(sizes.sum()) // room
    for partition, rows in _by_partition(partitions, runs_max):
        ends = np.cumsum(sizes[rows])
        for begin, end, size in _pieces(ends, room):
            yield BatchRows(partition, _part(rows, begin, end), end - begin, size + HEADER_BYTES)


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
