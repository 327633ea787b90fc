"""Reads offset ranges of a topic's partitions as records, without a group.

Control batches, and with read_committed the batches of aborted transactions, are left out. Transient errors are retried
with backoff on new connections; the positions are kept.
"""

import time
from collections.abc import Callable, Iterator, Mapping

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.list_offsets import Isolation
from respool.client.kafka.reading.cursor import Cursor
from respool.client.kafka.reading.fetch_loop import FetchLoop
from respool.client.kafka.reading.fetch_request import FetchSettings
from respool.model.errors import CorruptMessage, RequestError
from respool.records.batch import HEADER_BYTES, LENGTH_BYTES, RecordBatch, crc_of, read_header
from respool.records.markers import read_marker
from respool.records.record import Record, read_records
from respool.replay.copy_plan import Span
from respool.replay.errors import ReplayFailed, ReplayUnreachable
from respool.wire.fetch_reply import FetchedPart

FETCH_BYTES = 1024 * 1024
FETCH_WAIT_MS = 250
# How long a broker may be unavailable before reading fails.
RETRY_MS = 30_000
# The largest batch, decompressed, that is decoded.
BATCH_BYTES_MAX = 1 << 30

# Partition -> its records, in order.
Fetched = list[tuple[int, list[Record]]]


def ignore_note(text: str) -> None:
    """Ignore the note: for callers that need no notes."""
    del text


class RecordRangeReader:
    """Reads records: call `read` until `is_done`, then `close`."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        spans: Mapping[int, Span],
        *,
        isolation: Isolation = "read_committed",
        retry_ms: int = RETRY_MS,
        on_note: Callable[[str], None] = ignore_note,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_note` is called when a broker becomes unavailable and when it recovers."""
        self._topic = topic
        self._clock = clock
        self._isolation = isolation
        self._on_note = on_note
        self._loop = FetchLoop(
            cluster,
            topic,
            cluster.topic(topic).id,
            [
                Cursor(topic=topic, partition=partition, position=span.start, end=span.stop)
                for partition, span in spans.items()
            ],
            settings=FetchSettings(
                isolation=isolation,
                fetch_bytes=FETCH_BYTES,
                retry_ms=retry_ms,
                wait_ms=FETCH_WAIT_MS,
                reads_files=False,
            ),
            owner=self,
            clock=clock,
        )
        self._fetched: Fetched = []
        self._is_failing = False
        # When the last `read` returned.
        self._read_at = clock()

    @property
    def is_done(self) -> bool:
        return self._loop.is_done

    @property
    def undone(self) -> list[int]:
        """The partitions that have not been read to their end."""
        return self._loop.undone

    def batches(self) -> Iterator[Fetched]:
        """Yield all remaining records."""
        while not self.is_done:
            yield self.read(seconds=FETCH_WAIT_MS / 1000)

    def read(self, *, seconds: float) -> Fetched:
        """Return the records that arrive within that time, possibly none.

        Raises:
            ReplayUnreachable: a partition could not be read for `retry_ms`. Time between calls does not count.
            ReplayFailed: a batch is corrupt.
            ClientError: records were deleted or truncated before they were read, or the topic was recreated.
        """
        self._loop.exclude(self._clock() - self._read_at)
        try:
            self._loop.turn(seconds)
        finally:
            self._read_at = self._clock()
        fetched, self._fetched = self._fetched, []
        return fetched

    def hold(self, partition: int) -> None:
        """Stop fetching this partition until `release`. A fetch in flight may still return its records."""
        self._loop.hold(partition)

    def release(self, partition: int) -> None:
        self._loop.release(partition)

    def close(self) -> None:
        self._loop.close()

    # -- for the loop --------------------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """The caller decides when to fetch more."""
        return False

    def on_records(self, cursor: Cursor, begin: int, part: FetchedPart) -> None:
        if self._is_failing:
            self._is_failing = False
            self._on_note("the broker answers again")
        assert cursor.end is not None
        records = self._decode(part, begin, cursor.end)
        if records:
            self._fetched.append((cursor.partition, records))

    def on_failure(self, error: Exception) -> None:
        if not self._is_failing:
            self._is_failing = True
            self._on_note(f"{error}; trying again")

    def unavailable(self, cursor: Cursor, *, limit_ms: int, error: Exception) -> Exception:
        return ReplayUnreachable(
            f"{cursor.topic}/{cursor.partition} could not be read for {limit_ms / 1000:.0f} seconds: {error}"
        )

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def _decode(self, part: FetchedPart, begin: int, end: int) -> list[Record]:
        found: list[Record] = []
        try:
            for batch in data_batches(part, committed_only=self._isolation == "read_committed"):
                if crc_of(batch.data) != batch.header.crc:
                    raise CorruptMessage(f"checksum of the batch at {batch.header.base_offset}")
                found += [
                    record
                    for record in read_records(batch, limit=BATCH_BYTES_MAX)
                    if begin <= record.offset < end
                ]
        except RequestError as error:
            raise ReplayFailed(
                f"{self._topic}/{part.partition} cannot be read from offset {begin}: {error}",
                hint="damage in the broker's data folder is shown by: respool log verify DATA",
            ) from error
        return found


def data_batches(part: FetchedPart, *, committed_only: bool) -> Iterator[RecordBatch]:
    """Yield the complete batches of a reply, without control batches and, with read_committed, without aborted ones."""
    pending = sorted(part.aborted, key=lambda one: one[1], reverse=True)
    aborted: set[int] = set()
    for batch in _whole_batches(part.records):
        header = batch.header
        while pending and pending[-1][1] <= header.last_offset:
            aborted.add(pending.pop()[0])
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None and not marker.is_commit:
                aborted.discard(header.producer_id)
        elif not (committed_only and header.is_transactional and header.producer_id in aborted):
            yield batch


def _whole_batches(records: memoryview) -> Iterator[RecordBatch]:
    """Yield complete batches. A reply may end inside a batch, which is then fetched again."""
    at = 0
    while len(records) - at >= HEADER_BYTES:
        header = read_header(records, at)
        end = at + LENGTH_BYTES + header.length
        if header.length < 0 or end > len(records):
            return
        yield RecordBatch(header, bytes(records[at:end]))
        at = end
