"""Fetches partitions of one topic from their leaders: one fetch per broker in flight, until each is read to its end.

```
   turn: send to each idle broker -> wait for replies -> advance cursors -> (room? send the next fetch) -> on_records
                                                                             while this is decoded, the broker works
```
A partition's records are handed over in order, also when its leader changes. The next fetch is sent before the last
one is handed over only if the owner has room: otherwise unread replies would occupy the broker's memory.
"""

import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import refused
from respool.client.kafka.connection import Connection, ReplyBuffer
from respool.client.kafka.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    ProtocolBroken,
    VersionUnsupported,
)
from respool.client.kafka.list_offsets import (
    EARLIEST,
    LATEST,
    offsets_for,
)
from respool.client.kafka.local_reads import LocalReads
from respool.client.kafka.reading.cursor import Cursor, FetchStep
from respool.client.kafka.reading.fetch_request import FetchSettings, fetch_fields
from respool.client.kafka.reading.watched_topic import PreferredReplicas, WatchedTopic
from respool.client.kafka.retries import RetryTimer
from respool.client.kafka.versions import FETCH_BY_NAME
from respool.wire.api_table import Api
from respool.wire.fetch_reply import FetchedPart, read_fetch_reply
from respool.wire.local_read import LOCAL_READ_FETCH_VERSION
from respool.wire.protocol_errors import RequestMalformed


class FetchOwner(Protocol):
    """Takes the records, and decides what the loop leaves open."""

    def has_room(self) -> bool:
        """Whether to send the next fetch before records are handed over."""

    def on_records(self, cursor: Cursor, begin: int, part: FetchedPart) -> None:
        """Records from offset `begin` on arrived; they are valid until this returns."""

    def on_failure(self, error: Exception) -> None:
        """A partition could not be fetched; it will be retried."""

    def unavailable(self, cursor: Cursor, *, limit_ms: int, error: Exception) -> Exception:
        """Return the exception for a partition that has failed for longer than the retry limit."""

    def wait(self, seconds: float) -> None:
        """Wait while no request is in flight; may return early."""


@dataclass(slots=True, kw_only=True)
class _Reading:
    """A cursor and its retry state."""

    cursor: Cursor
    retry: RetryTimer
    # Not to be fetched before this time.
    due_at: float = 0.0
    is_held: bool = False

    @property
    def place(self) -> str:
        return f"{self.cursor.topic}/{self.cursor.partition}"


@dataclass(slots=True, kw_only=True)
class _FetchConnection:
    """The connection to one leader, and the partitions of its fetch in flight."""

    connection: Connection
    version: int
    local_reads: LocalReads
    asked: Sequence[_Reading] = ()
    # The connection is considered lost if there is no reply by this time.
    silent_until: float = 0.0


class FetchLoop:
    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        topic_id: UUID | None,
        cursors: Sequence[Cursor],
        *,
        settings: FetchSettings,
        owner: FetchOwner,
        known_partitions: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """With `known_partitions`, it also reads partitions that are added to the topic: all from this number on."""
        self._cluster = cluster
        self._watched = WatchedTopic(cluster, topic, topic_id, known_partitions=known_partitions)
        self._settings = settings
        self._owner = owner
        self._clock = clock
        # Partitions with new records move to the end, so that each gets its turn.
        self._readings = {cursor.partition: self._reading(cursor) for cursor in cursors}
        self._lines: dict[int, _FetchConnection] = {}
        self._preferred_replicas = PreferredReplicas()
        self._buffer = ReplyBuffer()
        self._reply_buffer = ReplyBuffer()

    @property
    def is_done(self) -> bool:
        return all(one.cursor.is_done for one in self._readings.values())

    @property
    def undone(self) -> list[int]:
        """The partitions that have not been read to their end."""
        return [number for number, one in self._readings.items() if not one.cursor.is_done]

    def turn(self, seconds: float) -> None:
        """Send fetches to idle brokers, and process replies that arrive within `seconds`.

        Raises:
            ClientError: a partition cannot be read on.
            Exception: what the owner says of a partition that is unavailable.
        """
        self._remove_done()
        if not self._readings:
            return
        self._discover()
        if self._watched.is_stale:
            self._watched.refresh(self._any_cursor())
        self._send_where_idle()
        busy = {broker: line for broker, line in self._lines.items() if line.asked}
        wait_s = min(seconds, self._until_due_s())
        if busy:
            self._receive(busy, wait_s)
        else:
            self._owner.wait(wait_s)

    def hold(self, partition: int) -> None:
        """Stop fetching this partition until `release`. A fetch in flight may still bring its records."""
        if partition in self._readings:
            self._readings[partition].is_held = True

    def release(self, partition: int) -> None:
        if partition in self._readings:
            self._readings[partition].is_held = False

    def exclude(self, seconds: float) -> None:
        """Do not count this time, in which there was no turn, as a failure of partitions."""
        for one in self._readings.values():
            one.retry.exclude(seconds)

    def close(self) -> None:
        for line in self._lines.values():
            self._cluster.release(line.connection)
        self._lines.clear()

    def _remove_done(self) -> None:
        self._readings = {
            number: one for number, one in self._readings.items() if not one.cursor.is_done
        }

    def _any_cursor(self) -> Cursor:
        return next(iter(self._readings.values())).cursor

    def _until_due_s(self) -> float:
        """Seconds until the next partition that waits after a failure may be fetched."""
        now = self._clock()
        asked = {id(one) for line in self._lines.values() for one in line.asked}
        waits = [
            one.due_at - now
            for one in self._readings.values()
            if id(one) not in asked and not one.is_held and not self._has_busy_broker(one, now)
        ]
        return max(0.001, min(waits, default=1.0))

    def _has_busy_broker(self, one: _Reading, now: float) -> bool:
        """Whether its broker has a fetch in flight, which must be answered first."""
        broker = self._broker_for(one, now)
        line = None if broker is None else self._lines.get(broker)
        return line is not None and bool(line.asked)

    def _broker_for(self, one: _Reading, now: float) -> int | None:
        """The broker to fetch from; None while there is no leader."""
        leader = self._watched.leader_of(one.cursor.partition)
        preferred = self._preferred_replicas.of(one.cursor.partition, now)
        if leader is None or preferred is None or preferred not in self._cluster.brokers:
            return None if leader is None else leader.broker
        return preferred

    # -- requests ------------------------------------------------------------------------------------------------------

    def _send_where_idle(self) -> None:
        now = self._clock()
        asked = {id(one) for line in self._lines.values() for one in line.asked}
        wanted: dict[int, list[_Reading]] = {}
        for one in self._readings.values():
            if id(one) in asked or one.is_held or one.due_at > now:
                continue
            broker = self._broker_for(one, now)
            if broker is None and self._watched.is_retired(one.cursor.partition):
                one.cursor.on_retired()
            elif broker is None:
                self._fail(one, BrokerUnreachable(f"{one.place} has no leader now"))
            else:
                wanted.setdefault(broker, []).append(one)
        for broker, readings in wanted.items():
            line = self._lines.get(broker)
            if line is None or not line.asked:
                self._send(broker, readings)

    def _send(self, broker: int, readings: Sequence[_Reading]) -> None:
        try:
            line = self._line(broker)
            line.connection.send(Api.FETCH, line.version, self._fields(line, readings))
        except BrokerUnreachable as error:
            self._lose(broker, error, also=readings)
        else:
            line.asked = readings
            wait_ms = self._settings.wait_ms + self._cluster.request_timeout_ms
            line.silent_until = self._clock() + wait_ms / 1000

    def _line(self, broker: int) -> _FetchConnection:
        line = self._lines.get(broker)
        if line is None:
            connection = self._cluster.connect(broker)
            versions = None if self._watched.topic_id is not None else FETCH_BY_NAME
            try:
                version = connection.version(Api.FETCH, versions)
            except VersionUnsupported:
                self._cluster.release(connection)
                raise
            local_reads = LocalReads(
                connection.address
                if self._settings.reads_files and connection.is_on_this_host
                else None,
                into=self._reply_buffer,
                bytes_max=connection.reply_bytes_max,
            )
            line = self._lines[broker] = _FetchConnection(
                connection=connection, version=version, local_reads=local_reads
            )
        return line

    def _fields(self, line: _FetchConnection, readings: Sequence[_Reading]) -> dict[str, Any]:
        now = self._clock()
        wanted = []
        for one in readings:
            leader = self._watched.leader_of(one.cursor.partition)
            assert leader is not None
            wanted.append((one.cursor, leader.epoch))
        may_name = all(
            self._preferred_replicas.may_be_named(one.cursor.partition, now) for one in readings
        )
        return fetch_fields(
            line.version,
            self._watched.topic,
            self._watched.topic_id,
            wanted,
            settings=self._settings,
            may_name_replica=may_name,
            reader_host=line.local_reads.host_to_name()
            if line.version == LOCAL_READ_FETCH_VERSION
            else "",
        )

    # -- replies -------------------------------------------------------------------------------------------------------

    def _receive(self, busy: Mapping[int, _FetchConnection], wait_s: float) -> None:
        """Process available replies; waits briefly for the first."""
        poll = select.poll()
        brokers = {line.connection.fileno(): broker for broker, line in busy.items()}
        for number in brokers:
            poll.register(number, select.POLLIN)
        ready = [brokers[number] for number, _ in poll.poll(wait_s * 1000)]
        now = self._clock()
        for broker, line in busy.items():
            if broker in ready:
                self._hear(broker, line)
            elif now > line.silent_until:
                self._lose(broker, ConnectionLost(f"broker {broker} does not answer"))

    def _hear(self, broker: int, line: _FetchConnection) -> None:
        try:
            frame = line.connection.receive(self._buffer)
            reply = read_fetch_reply(frame, line.version)
            parts = line.local_reads.filled(reply.parts)
        except BrokerUnreachable as error:
            self._lose(broker, error)
            return
        except RequestMalformed as error:
            self._lose(broker, ProtocolBroken(f"broker {broker}: {error}"))
            return
        if reply.error_code:
            refusal = refused(f"a fetch from broker {broker}", reply.error_code)
            if not refusal.retriable:
                raise refusal
            self._lose(broker, refusal)
            return
        self._take(broker, line, parts)

    def _take(self, broker: int, line: _FetchConnection, parts: Sequence[FetchedPart]) -> None:
        asked = {one.cursor.partition: one for one in line.asked}
        line.asked = ()
        served = {part.partition for part in parts if part.records}
        taken: list[tuple[_Reading, int, FetchedPart]] = []
        try:
            for part in parts:
                one = asked.pop(part.partition, None)
                if one is None:
                    raise ProtocolBroken(f"broker {broker} sent {part.partition}, unasked")
                begin = one.cursor.position
                if self._on_answer(one, part, is_crowded=bool(served - {part.partition})):
                    taken.append((one, begin, part))
            for one in asked.values():
                self._fail(
                    one, BrokerUnreachable(f"broker {broker} did not answer for {one.place}")
                )
            for one, _, _ in taken:
                self._readings[one.cursor.partition] = self._readings.pop(one.cursor.partition)
            if self._owner.has_room() and not self._watched.is_stale:
                self._remove_done()
                self._send_where_idle()
        finally:
            # Even if another partition ends the read, since the cursors have already advanced past these records.
            for one, begin, part in taken:
                self._owner.on_records(one.cursor, begin, part)

    def _on_answer(self, one: _Reading, part: FetchedPart, *, is_crowded: bool) -> bool:
        """Return whether there are records to take. `is_crowded`: other partitions have records in this reply."""
        if part.file_range is not None and not part.error_code:
            # The local read failed; the next fetch makes the broker send the records.
            return False
        if part.preferred_read_replica is not None and not part.error_code:
            self._preferred_replicas.on_named(
                part.partition, part.preferred_read_replica, self._clock()
            )
            return False
        step = one.cursor.on_answer(part)
        match step:
            case FetchStep.TAKE:
                one.retry.reset()
                return True
            case FetchStep.WAIT if is_crowded or (self._settings.follow and not part.records):
                # The reply was used up by other partitions, or the end of the log is reached.
                one.retry.reset()
            case FetchStep.WAIT:
                shown = "only a part of a batch" if part.records else "nothing"
                error = ClientError(f"its leader shows {shown} there")
                self._fail(one, error, waits=False)
            case FetchStep.ASK_BOUNDS if self._preferred_replicas.leave(
                part.partition, self._clock()
            ):
                # A follower may be behind; only the leader's bounds count.
                pass
            case FetchStep.ASK_BOUNDS:
                self._on_out_of_range(one)
            case FetchStep.RETRY:
                error = refused(f"a fetch of {one.place}", part.error_code)
                if not error.retriable:
                    raise error
                self._fail(one, error)
        return False

    def _on_out_of_range(self, one: _Reading) -> None:
        self._watched.refresh(one.cursor)
        place, topic = [one.cursor.partition], self._watched.topic
        try:
            starts = offsets_for(self._cluster, topic, place, EARLIEST)
            ends = offsets_for(self._cluster, topic, place, LATEST, isolation="read_uncommitted")
        except (BrokerUnreachable, BrokerRefused) as error:
            self._fail(one, error)
            return
        start, end = starts[one.cursor.partition], ends[one.cursor.partition]
        if start is not None and end is not None:
            one.cursor.on_bounds(start.offset, end.offset)
        self._fail(one, ClientError(f"offset {one.cursor.position} was out of range for a moment"))

    # -- failures ------------------------------------------------------------------------------------------------------

    def _fail(self, one: _Reading, error: Exception, *, waits: bool = True) -> None:
        """Retry this partition; `waits`: after a backoff, and with new metadata.

        Raises:
            Exception: it has failed for longer than the retry limit.
        """
        self._preferred_replicas.leave(one.cursor.partition, self._clock())
        wait_ms = one.retry.next_wait_ms()
        if wait_ms is None:
            limit_ms = one.retry.limit_ms
            raise self._owner.unavailable(one.cursor, limit_ms=limit_ms, error=error) from error
        if waits:
            one.due_at = self._clock() + wait_ms / 1000
            self._watched.is_stale = True
            self._owner.on_failure(error)

    def _lose(self, broker: int, error: Exception, *, also: Sequence[_Reading] = ()) -> None:
        """Handle a lost connection: its partitions are fetched again, from their current leaders."""
        line = self._lines.pop(broker, None)
        if line is not None:
            self._cluster.release(line.connection)
        for one in [*(line.asked if line is not None else ()), *also]:
            self._fail(one, error)

    def _discover(self) -> None:
        """Start to read partitions that were added to the topic, from their first offset."""
        for partition in self._watched.discover(self._any_cursor()):
            cursor = Cursor(topic=self._watched.topic, partition=partition, position=0, end=None)
            self._readings[partition] = self._reading(cursor)

    def _reading(self, cursor: Cursor) -> _Reading:
        return _Reading(
            cursor=cursor, retry=RetryTimer(self._settings.retry_ms, monotonic=self._clock)
        )
