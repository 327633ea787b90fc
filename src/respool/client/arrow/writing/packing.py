"""Routed rows -> encoded record batches in their queues."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from respool.client.arrow.writing.cutting import Cut, cut
from respool.client.arrow.writing.delivery import Delivery
from respool.client.arrow.writing.gathering import Routed
from respool.client.arrow.writing.stamping import producer_stamp
from respool.client.kafka.partition_queue import ProducerBatch
from respool.client.kafka.retries import now_ms
from respool.columnar.encode_columns import encode, encoded_size
from respool.columnar.row_buffers import RowBuffers
from respool.records.batch import HEADER_BYTES, Codec


def row_sizes(rows: RowBuffers) -> NDArray[np.int64]:
    """What each row takes in a record batch, at most."""
    if not rows.rows:
        return np.empty(0, dtype=np.int64)
    return np.diff(encoded_size(rows, None), prepend=0)


class Packer:
    def __init__(self, delivery: Delivery, *, codec: Codec, level: int | None) -> None:
        self._delivery = delivery
        self._codec = codec
        self._level = level

    @property
    def is_compressing(self) -> bool:
        return self._codec is not Codec.NONE

    def pack(self, routed: Routed, *, batch_bytes: int) -> bool:
        """Encode all, and wait for room meanwhile; False as soon as a partition has failed."""
        rows = RowBuffers.of(routed.records)
        return all(
            self._pack_one(routed, rows, one, batch_bytes)
            for one in cut(routed.partitions, routed.sizes, batch_bytes=batch_bytes)
        )

    def _pack_one(self, routed: Routed, rows: RowBuffers, one: Cut, batch_bytes: int) -> bool:
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
            # Compression made it larger, or times lie further apart than it seemed.
            delivery.free(one.size)
            return all(self._pack_one(routed, rows, half, batch_bytes) for half in _halves(one))
        delivery.free(one.size - len(data))
        batch = ProducerBatch(
            rows=one.row_count,
            size=len(data),
            deadline_ms=now_ms() + delivery.settings.delivery_timeout_ms,
            data=data,
            written_stamp=stamp,
        )
        return delivery.submit(place, batch)


def _halves(one: Cut) -> Iterator[Cut]:
    middle = one.row_count // 2
    size = (one.size + HEADER_BYTES) // 2
    for begin, end in ((0, middle), (middle, one.row_count)):
        if isinstance(one.rows, slice):
            rows: slice | NDArray[np.int64] = slice(one.rows.start + begin, one.rows.start + end)
        else:
            rows = one.rows[begin:end]
        yield Cut(one.partition, rows, end - begin, size)
