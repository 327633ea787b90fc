"""Topics as a producer sees them: their partition counts, batch size limits, and the routing of rows."""

import random
import time

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from respool.client.arrow.errors import RecordTooLarge
from respool.client.arrow.writing.accumulator import Routed
from respool.client.arrow.writing.batch_encoder import row_sizes
from respool.client.arrow.writing.routing import Partitioner, Router
from respool.client.arrow.writing.table_columns import Columns
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.configs import batch_bytes_max
from respool.columnar.row_buffers import RowBuffers
from respool.records.batch import HEADER_BYTES

# New partitions of a topic are noticed within this time, as in other clients.
METADATA_SECONDS_MAX = 300.0
# If the brokers do not report a limit.
_LIMIT_UNKNOWN = 2**31 - 1


class Destinations:
    """Not thread-safe: callers hold the producer's lock."""

    def __init__(
        self, cluster: Cluster, *, partitioner: Partitioner, batch_bytes: int, is_compressing: bool
    ) -> None:
        """
        Raises:
            BadArgument: there is no such partitioner. Raised here, not by the first write.
        """
        Router("", partitioner, batch_bytes=batch_bytes)
        self._cluster = cluster
        self._partitioner = partitioner
        self._batch_bytes = batch_bytes
        self._is_compressing = is_compressing
        self._known: dict[str, Destination] = {}

    def __getitem__(self, topic: str) -> "Destination":
        """The destination of a topic that was looked up before."""
        return self._known[topic]

    def look_up(self, topic: str) -> "Destination":
        """Fetch what is needed before a topic's first row; later calls refresh outdated metadata.

        Raises:
            UnknownTopic, BrokerUnreachable
        """
        known = self._known.get(topic)
        if known is None:
            known = self._known[topic] = self._new(topic)
        elif time.monotonic() - known.seen_at >= METADATA_SECONDS_MAX:
            self._cluster.retrying(lambda: self._cluster.refresh(topic))
            known.seen_at = time.monotonic()
        # The senders may have fetched newer metadata since.
        known.partitions = self._cluster.topic(topic).partitions
        return known

    def _new(self, topic: str) -> "Destination":
        partitions = self._cluster.topic(topic).partitions
        limit = self._cluster.retrying(lambda: batch_bytes_max(self._cluster, topic))
        limit = limit or _LIMIT_UNKNOWN
        batch_bytes = min(self._batch_bytes, limit)
        router = Router(
            topic,
            self._partitioner,
            batch_bytes=batch_bytes,
            # If all producers began with the first partition, it would fill before the others.
            first=random.randrange(max(1, partitions)),  # noqa: S311
        )
        return Destination(
            topic,
            router,
            partitions=partitions,
            batch_bytes=batch_bytes,
            # The broker's limit applies to compressed bytes, which are unknown here.
            row_bytes_max=None if self._is_compressing else limit,
        )


class Destination:
    def __init__(
        self,
        name: str,
        router: Router,
        *,
        partitions: int,
        batch_bytes: int,
        row_bytes_max: int | None,
    ) -> None:
        self.name = name
        self.partitions = partitions
        # The maximum size of one record batch, before compression.
        self.batch_bytes = batch_bytes
        self.seen_at = time.monotonic()
        self._router = router
        self._row_bytes_max = row_bytes_max

    def check(self, piece: pa.RecordBatch, columns: Columns, *, first_row: int) -> None:
        """
        Raises:
            RecordTooLarge, UnknownPartition: a row cannot be written.
        """
        records, chosen = columns.records_of(piece)
        self._check_sizes(row_sizes(RowBuffers.of(records)), first_row)
        if chosen is not None:
            self._router.check_chosen(chosen, self.partitions)

    def route(self, piece: pa.RecordBatch, columns: Columns, *, first_row: int) -> Routed:
        """Return each row's partition; no row is queued yet.

        Raises:
            RecordTooLarge, UnknownPartition: a row cannot be written.
        """
        records, chosen = columns.records_of(piece)
        sizes = row_sizes(RowBuffers.of(records))
        self._check_sizes(sizes, first_row)
        partitions = self._router.route(
            records.column("key") if columns.key is not None else None,
            records.column("value") if columns.value is not None else None,
            chosen,
            sizes,
            partitions=self.partitions,
        )
        return Routed(self.name, records, partitions, sizes, _wall_ms())

    def _check_sizes(self, sizes: NDArray[np.int64], first_row: int) -> None:
        limit = self._row_bytes_max
        if limit is None or not len(sizes):
            return
        row = int(sizes.argmax())
        size = int(sizes[row]) + HEADER_BYTES
        if size > limit:
            raise RecordTooLarge(self.name, row=first_row + row, size=size, limit=limit)


def _wall_ms() -> int:
    return int(time.time() * 1000)
