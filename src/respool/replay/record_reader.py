"""Reads offset ranges of a topic's partitions as records, without a group: one fetch per leader in flight.

```
   fetch to each idle leader -> wait for replies -> cursors advance -> batches are decoded -> records, by partition
```
Control batches, and with read_committed the batches of aborted transactions, are left out. Transient errors are retried
with backoff on new connections; the positions are kept.
"""

import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from respool.client.arrow.reading.cursor import Cursor, FetchStep
from respool.client.arrow.reading.watched_topic import WatchedTopic
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import refused
from respool.client.kafka.connection import Connection
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable, ClientError
from respool.client.kafka.list_offsets import (
    EARLIEST,
    LATEST,
    Isolation,
    isolation_level,
    offsets_for,
)
from respool.client.kafka.retries import RetryTimer
from respool.model.errors import CorruptMessage, RequestError
from respool.records.batch import HEADER_BYTES, LENGTH_BYTES, RecordBatch, crc_of, read_header
from respool.records.markers import read_marker
from respool.records.record import Record, read_records
from respool.replay.copy_plan import Span
from respool.replay.errors import ReplayFailed, ReplayUnreachable
from respool.wire.api_table import Api
from respool.wire.fetch_reply import TOPIC_IDS_FROM, FetchedPart, read_fetch_reply
from respool.wire.protocol_errors import RequestMalformed

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


@dataclass(slots=True, kw_only=True)
class _PartitionRead:
    cursor: Cursor
    retries: RetryTimer
    # Not fetched before this time, in seconds of the monotonic clock.
    due_at: float = 0.0
    is_held: bool = False


@dataclass(slots=True, kw_only=True)
class _LeaderConnection:
    """The connection to one leader, and the partitions of its fetch in flight."""

    connection: Connection
    version: int
    asked: Sequence[_PartitionRead] = ()
    answer_due_at: float = 0.0


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
        self._cluster = cluster
        self._clock = clock
        self._isolation = isolation
        self._on_note = on_note
        self._sight = WatchedTopic(cluster, topic, cluster.topic(topic).id)
        self._readings = {
            partition: _PartitionRead(
                cursor=Cursor(topic=topic, partition=partition, position=span.start, end=span.stop),
                retries=RetryTimer(retry_ms, monotonic=clock),
            )
            for partition, span in spans.items()
        }
        self._lines: dict[int, _LeaderConnection] = {}
        self._is_failing = False
        # When the last `read` returned.
        self._read_at = clock()

    @property
    def is_done(self) -> bool:
        return all(one.cursor.is_done for one in self._readings.values())

    @property
    def undone(self) -> list[int]:
        """The partitions that have not been read to their end."""
        return [number for number, one in self._readings.items() if not one.cursor.is_done]

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
        idle = self._clock() - self._read_at
        for one in self._readings.values():
            one.retries.exclude(idle)
        try:
            return self._read(seconds=seconds)
        finally:
            self._read_at = self._clock()

    def _read(self, *, seconds: float) -> Fetched:
        if self._sight.is_stale and self.undone:
            self._sight.refresh(self._readings[self.undone[0]].cursor)
        self._send()
        busy = {
            line.connection.fileno(): broker for broker, line in self._lines.items() if line.asked
        }
        poll = select.poll()
        for number in busy:
            poll.register(number, select.POLLIN)
        ready = [busy[number] for number, _ in poll.poll(seconds * 1000)]
        fetched: Fetched = []
        for broker in ready:
            fetched += self._receive(broker)
        now = self._clock()
        for broker in [each for each in busy.values() if each not in ready]:
            if now > self._lines[broker].answer_due_at:
                self._lose(broker, BrokerUnreachable(f"broker {broker} does not answer"))
        return fetched

    def hold(self, partition: int) -> None:
        """Stop fetching this partition until `release`. A fetch in flight may still return its records."""
        self._readings[partition].is_held = True

    def release(self, partition: int) -> None:
        self._readings[partition].is_held = False

    def close(self) -> None:
        for line in self._lines.values():
            self._cluster.release(line.connection)
        self._lines.clear()

    # -- requests ------------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        now = self._clock()
        by_leader: dict[int, list[_PartitionRead]] = {}
        for partition, one in self._readings.items():
            if one.cursor.is_done or one.is_held or one.due_at > now:
                continue
            leader = self._sight.leader_of(partition)
            if leader is None:
                self._fail(one, BrokerUnreachable("it has no leader"))
            else:
                by_leader.setdefault(leader.broker, []).append(one)
        for broker, readings in by_leader.items():
            line = self._lines.get(broker)
            if line is not None and line.asked:
                continue
            try:
                line = line or self._connect(broker)
                line.connection.send(Api.FETCH, line.version, self._fields(line, readings))
            except BrokerUnreachable as error:
                self._lose(broker, error, also=readings)
                continue
            line.asked = readings
            line.answer_due_at = now + self._cluster.request_timeout_ms / 1000

    def _connect(self, broker: int) -> _LeaderConnection:
        connection = self._cluster.connect(broker)
        version = connection.version(Api.FETCH)
        self._lines[broker] = line = _LeaderConnection(connection=connection, version=version)
        return line

    def _fields(
        self, line: _LeaderConnection, readings: Sequence[_PartitionRead]
    ) -> dict[str, Any]:
        partitions = []
        for one in readings:
            leader = self._sight.leader_of(one.cursor.partition)
            assert leader is not None
            partitions.append(
                {
                    "partition": one.cursor.partition,
                    "current_leader_epoch": leader.epoch,
                    "fetch_offset": one.cursor.position,
                    "last_fetched_epoch": one.cursor.last_epoch,
                    "partition_max_bytes": one.cursor.bytes_wanted(FETCH_BYTES),
                }
            )
        name = (
            {"topic_id": self._sight.topic_id}
            if line.version >= TOPIC_IDS_FROM
            else {"topic": self._sight.topic}
        )
        return {
            "max_wait": FETCH_WAIT_MS,
            "min_bytes": 1,
            "max_bytes": FETCH_BYTES,
            "isolation_level": isolation_level(self._isolation),
            "topics": [{**name, "partitions": partitions}],
            "forgotten_topics_data": [],
            "rack_id": "",
        }

    # -- replies -------------------------------------------------------------------------------------------------------

    def _receive(self, broker: int) -> Fetched:
        line = self._lines[broker]
        try:
            reply = read_fetch_reply(line.connection.receive(), line.version)
        except (BrokerUnreachable, RequestMalformed) as error:
            self._lose(broker, error)
            return []
        if reply.error_code:
            refusal = refused(f"fetching from broker {broker}", reply.error_code)
            if not refusal.retriable:
                raise refusal
            self._lose(broker, refusal)
            return []
        asked = {one.cursor.partition: one for one in line.asked}
        line.asked = ()
        fetched: Fetched = []
        is_crowded = any(part.records for part in reply.parts)
        for part in reply.parts:
            one = asked.get(part.partition)
            if one is None:
                continue
            records = self._on_answer(one, part, is_crowded=is_crowded)
            if records:
                fetched.append((part.partition, records))
        # Partitions that returned records move to the end of the next fetch, so that each gets its turn.
        for partition, _ in fetched:
            self._readings[partition] = self._readings.pop(partition)
        return fetched

    def _on_answer(
        self, one: _PartitionRead, part: FetchedPart, *, is_crowded: bool
    ) -> list[Record]:
        position, end = one.cursor.position, one.cursor.end
        assert end is not None
        match one.cursor.on_answer(part):
            case FetchStep.TAKE:
                self._on_progress(one)
                return self._decode(part, position, end)
            case FetchStep.WAIT if is_crowded and not part.records:
                # Other partitions filled the reply; this one is fetched first the next time.
                one.retries.reset()
            case FetchStep.WAIT:
                self._fail(one, ClientError("its leader returns no records"), is_quiet=True)
            case FetchStep.ASK_BOUNDS:
                self._on_out_of_range(one)
            case FetchStep.RETRY:
                error = refused(f"fetching {one.cursor.topic}/{part.partition}", part.error_code)
                if not error.retriable:
                    raise error
                self._fail(one, error)
        return []

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
                f"{self._sight.topic}/{part.partition} cannot be read from offset {begin}: {error}",
                hint="damage in the broker's data folder is shown by: respool log verify DATA",
            ) from error
        return found

    # -- failures ------------------------------------------------------------------------------------------------------

    def _on_progress(self, one: _PartitionRead) -> None:
        one.retries.reset()
        if self._is_failing:
            self._is_failing = False
            self._on_note("the broker answers again")

    def _on_out_of_range(self, one: _PartitionRead) -> None:
        """
        Raises:
            ClientError: the offset was deleted or truncated.
        """
        partition = one.cursor.partition
        try:
            start = offsets_for(self._cluster, self._sight.topic, [partition], EARLIEST)[partition]
            end = offsets_for(
                self._cluster,
                self._sight.topic,
                [partition],
                LATEST,
                isolation="read_uncommitted",
            )[partition]
        except (BrokerUnreachable, BrokerRefused) as error:
            self._fail(one, error)
            return
        if start is not None and end is not None:
            one.cursor.on_bounds(start.offset, end.offset)
        self._fail(one, ClientError(f"offset {one.cursor.position} is out of range"))

    def _fail(self, one: _PartitionRead, error: Exception, *, is_quiet: bool = False) -> None:
        """Fetch this partition again after a backoff.

        Raises:
            ReplayUnreachable: it has failed for too long.
        """
        wait_ms = one.retries.next_wait_ms()
        if wait_ms is None:
            raise ReplayUnreachable(
                f"{self._sight.topic}/{one.cursor.partition} could not be read for "
                f"{one.retries.limit_ms / 1000:.0f} seconds: {error}"
            ) from error
        one.due_at = self._clock() + wait_ms / 1000
        if is_quiet:
            return
        self._sight.is_stale = True
        if not self._is_failing:
            self._is_failing = True
            self._on_note(f"{error}; trying again")

    def _lose(self, broker: int, error: Exception, *, also: Sequence[_PartitionRead] = ()) -> None:
        line = self._lines.pop(broker, None)
        if line is not None:
            self._cluster.release(line.connection)
        for one in (*(line.asked if line is not None else ()), *also):
            self._fail(one, error)


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
