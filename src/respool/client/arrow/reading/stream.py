"""A running read: an iterator of record batches, filled by threads that fetch and decode ahead of the consumer.

Memory is bounded by settings, not by the range: each thread holds one reply of `fetch_bytes` and its decoded batches,
and at most `buffer_bytes` of batches are queued in total. When the queue is full, the threads stop fetching.

The threads end when everything is read, on an error, when the stream is closed or garbage-collected, and when Python
exits.
"""

import os
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Thread, current_thread
from types import MappingProxyType
from typing import Self

import pyarrow as pa

from respool.client.arrow.reading.bounded_queue import BoundedQueue, Piece
from respool.client.arrow.reading.conditions import text_for_brokers
from respool.client.arrow.reading.fetcher import Fetcher
from respool.client.arrow.reading.pieces import PieceMaker
from respool.client.arrow.reading.projection import Projection
from respool.client.arrow.reading.read_plan import PartitionRange, ReadPlan
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import BadArgument, ClientClosed
from respool.client.kafka.list_offsets import Isolation
from respool.client.kafka.reading.cursor import Cursor
from respool.client.kafka.reading.fetch_request import FetchSettings
from respool.client.kafka.transport import FRAME_BYTES_MAX
from respool.columnar.clause_tables import clause_tables
from respool.columnar.decode_columns import DECOMPRESSED_MAX
from respool.model.where import Where

MIB = 1024 * 1024
FETCH_BYTES = 8 * MIB
FETCH_BYTES_MAX = FRAME_BYTES_MAX // 2
BUFFER_BYTES = 64 * MIB
PARALLEL_MAX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSettings:
    """How to read; a plan says what to read."""

    isolation: Isolation = "read_committed"
    # The maximum size of one fetch.
    fetch_bytes: int = FETCH_BYTES
    # The maximum size of decoded batches that wait to be taken.
    buffer_bytes: int = BUFFER_BYTES
    # Threads that fetch and decode; None: one per core, but at most 8, and at most one per partition.
    parallel: int | None = None
    # The maximum decompressed size of one batch.
    decompressed_max: int = DECOMPRESSED_MAX
    # The reader's rack, as in the brokers' configuration: a replica there is preferred to the leader.
    rack: str = ""

    def __post_init__(self) -> None:
        if self.isolation not in {"read_committed", "read_uncommitted"}:
            raise BadArgument(
                f"isolation = {self.isolation!r}: 'read_committed' or 'read_uncommitted'"
            )
        # A reply has a size limit, and may hold one batch larger than the requested bytes.
        limits = {"fetch_bytes": FETCH_BYTES_MAX, "buffer_bytes": 2**31 - 1}
        for name, limit in {**limits, "decompressed_max": 2**31 - 1}.items():
            if not 1 <= getattr(self, name) <= limit:
                raise BadArgument(f"{name} = {getattr(self, name)}: from 1 to {limit} bytes")
        if self.parallel is not None and self.parallel < 1:
            raise BadArgument(f"parallel = {self.parallel}: at least one thread must read")


class BatchStream(Iterator[pa.RecordBatch]):
    """Iterate over it; close it, or use it as a context manager, unless it is read to its end.

    Batches of one partition come in the order of their offsets; those of different partitions in any order.
    """

    def __init__(
        self,
        cluster: Cluster,
        plan: ReadPlan,
        projection: Projection,
        settings: ReadSettings,
        *,
        condition: Where | None = None,
        known_partitions: int | None = None,
    ) -> None:
        """Starts to read at once; only records that fulfill the condition. `known_partitions`: see `Fetcher`."""
        self.schema: pa.Schema = projection.schema
        self._positions = {one.partition: one.begin for one in plan.ranges}
        shares = _shares(plan.ranges, settings.parallel)
        queue = BoundedQueue(bytes_max=settings.buffer_bytes, sources=len(shares))
        fetch = FetchSettings(
            isolation=settings.isolation,
            fetch_bytes=settings.fetch_bytes,
            retry_ms=cluster.retry_ms,
            follow=plan.follow,
            rack=settings.rack,
            condition=text_for_brokers(condition),
        )
        # Looked up first, so that no thread is started if the topic does not exist.
        cluster.topic(plan.topic)
        own = cluster.twin()
        clauses = clause_tables(condition)
        threads = []
        for number, share in enumerate(shares):
            fetcher = Fetcher(
                own,
                plan.topic,
                plan.topic_id,
                [_cursor(plan.topic, one) for one in share],
                settings=fetch,
                pieces=PieceMaker(
                    projection,
                    queue,
                    since_ms=plan.since_ms,
                    until_ms=plan.until_ms,
                    clauses=clauses,
                    decompressed_max=settings.decompressed_max,
                ),
                queue=queue,
                known_partitions=known_partitions if number == 0 else None,
            )
            name = f"respool-read-{plan.topic}-{number}"
            threads.append(Thread(target=fetcher.run, name=name, daemon=True))
        self._queue = queue
        # No thread refers to this stream, so garbage collection ends them, as does the exit of Python.
        self._pid = os.getpid()
        self._end = weakref.finalize(self, _end, queue, own, threads, self._pid)
        for thread in threads:
            thread.start()

    @property
    def positions(self) -> Mapping[int, int]:
        """Partition -> the next offset to return: pass it as `since` to continue from here."""
        return MappingProxyType(self._positions)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = self.poll(None)
        if batch is None:
            raise StopIteration
        return batch

    def poll(self, timeout_s: float | None) -> pa.RecordBatch | None:
        """Return the next batch; None at the end or after the timeout (`is_closed` tells which).

        Raises:
            ReadError: one of its subclasses: the read cannot continue, and the stream is closed.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while (piece := self.next_piece(timeout_s)) is not None:
                if piece.batch is not None:
                    return piece.batch
                if deadline is not None:
                    timeout_s = max(0.0, deadline - time.monotonic())
        except TimeoutError:
            pass
        return None

    def next_piece(self, timeout_s: float | None = None) -> Piece | None:
        """Return the next piece, possibly without a batch; None at the end.

        Raises:
            TimeoutError: none came in time.
            ReadError: as for `poll`.
        """
        if self.is_closed:
            return None
        if os.getpid() != self._pid:
            raise ClientClosed(
                f"this stream reads in process {self._pid}, and a fork has none of its threads: "
                "begin one of its own here"
            )
        try:
            piece = self._queue.take(timeout_s)
        except TimeoutError:
            raise
        except BaseException:
            # Also on Ctrl-C: the caller will not continue the iteration.
            self.close()
            raise
        if piece is None:
            self.close()
            return None
        before = self._positions.get(piece.partition, 0)
        self._positions[piece.partition] = max(before, piece.next_offset)
        return piece

    def reader(self) -> pa.RecordBatchReader:
        """The same as a RecordBatchReader, which DuckDB, Polars and others read batch by batch."""
        return pa.RecordBatchReader.from_batches(self.schema, self)

    @property
    def is_closed(self) -> bool:
        return not self._end.alive

    def close(self) -> None:
        """Stop the threads and close the connections. May be called repeatedly."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _end(queue: BoundedQueue, cluster: Cluster, threads: Sequence[Thread], pid: int) -> None:
    if os.getpid() != pid:
        # In a fork: the connections belong to the parent process, whose threads may hold the locks.
        return
    queue.close()
    cluster.interrupt()
    for thread in threads:
        # A thread may not have been started, if an error occurred. And garbage collection may run in one of these
        # threads, which then notices the close and ends by itself.
        if thread.ident is not None and thread is not current_thread():
            thread.join()
    cluster.close()


def _cursor(topic: str, one: PartitionRange) -> Cursor:
    return Cursor(topic=topic, partition=one.partition, position=one.begin, end=one.end)


def _shares(ranges: Sequence[PartitionRange], parallel: int | None) -> list[list[PartitionRange]]:
    """Assign partitions to threads: about equally many offsets each, the longest ranges first."""
    wanted = [one for one in ranges if not one.is_empty]
    count = min(len(wanted), parallel or min(os.cpu_count() or 1, PARALLEL_MAX))
    shares: list[list[PartitionRange]] = [[] for _ in range(count)]
    lengths = [0] * count
    for one in sorted(wanted, key=_length, reverse=True):
        least = min(range(count), key=lambda number: (lengths[number], len(shares[number])))
        shares[least].append(one)
        lengths[least] += _length(one)
    return shares


def _length(one: PartitionRange) -> int:
    return 0 if one.end is None else one.end - one.begin
