"""`Queue`: messages of topics as work for the consumers of a group, each message for one of them.

Every broker that leads partitions of this consumer has a connection with a share session. The caller's thread fetches;
a thread in the background sends heartbeats, renews the locks of messages that are held, and sends acknowledgements that
no fetch has taken along.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from respool.client.kafka.bootstrap import Bootstrap
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import code_name, refused
from respool.client.kafka.connection import Connection
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable, ClientClosed
from respool.client.kafka.security import IN_THE_CLEAR, Security
from respool.client.messages.message import as_datetime
from respool.client.queues.queue_membership import QueueMembership
from respool.client.queues.queue_message import AlreadyAcknowledged, QueueMessage
from respool.client.queues.queue_session import (
    SESSION_ERRORS,
    Acknowledgement,
    DeliveredPart,
    QueuePlace,
    QueueSession,
    SessionReply,
)
from respool.records.batch import RecordBatch
from respool.records.record import Record, read_records
from respool.records.validate import walk_batches
from respool.wire.api_table import Api

logger = logging.getLogger(__name__)

WAIT_MS = 500
FETCH_BYTES_MAX = 50 * 1024 * 1024
BATCH_BYTES_MAX = 256 * 1024 * 1024
# How often the background thread looks at what is due.
TICK_S = 0.1
# Before the first reply has said how long locks last.
_LOCK_MS = 30_000


class _BrokerReader:
    """A broker's connection and session, and the messages held through it."""

    def __init__(self, session: QueueSession) -> None:
        self.session = session
        self.connection: Connection | None = None
        # Offset -> when its lock was taken or renewed.
        self.held: dict[QueuePlace, dict[int, float]] = {}


class Queue:
    """Use it as a context manager, or call `close`: what was not accepted then goes to others at once.

    with respool.Queue("orders", group="billing") as queue:
        for message in queue:
            with message:
                bill(message.value)
    """

    def __init__(
        self,
        topics: str | Sequence[str],
        *,
        group: str,
        bootstrap: str | Bootstrap | None = None,
        max_records: int = 100,
        security: Security = IN_THE_CLEAR,
    ) -> None:
        """`max_records` is how many messages a fetch takes: this consumer holds them until it has handled them."""
        names = (topics,) if isinstance(topics, str) else tuple(topics)
        self._topics = names
        self._records_max = max(1, max_records)
        self._cluster = Cluster(bootstrap, client_id="respool-queue", security=security)
        self._member = QueueMembership(self._cluster, group=group, topics=names)
        self._group = group
        # One request at a time, except for heartbeats; taken before the next one.
        self._io = threading.RLock()
        # Guards what follows; never held during a request, so that messages can be acknowledged meanwhile.
        self._lock = threading.RLock()
        self._readers: dict[int, _BrokerReader] = {}
        self._waiting: deque[QueueMessage] = deque()
        self._lock_ms = _LOCK_MS
        self._names: dict[Any, str] = {}
        self._leaders: dict[QueuePlace, int] = {}
        self._turn = 0
        # How many acknowledgements came too late: others may have the messages.
        self.late_count = 0
        self._failure: Exception | None = None
        self._closing = threading.Event()
        self._maintenance: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[QueueMessage]:
        """Yield messages for ever; `close` in another thread ends it."""
        while not self._closing.is_set():
            message = self.receive(timeout=1.0)
            if message is not None:
                yield message

    def receive(self, timeout: float | None = None) -> QueueMessage | None:
        """Return the next message, or None if there is none within `timeout` seconds.

        Raises:
            BrokerRefused, BrokerUnreachable: the group or the topic cannot be read.
        """
        ends_at = None if timeout is None else time.monotonic() + timeout
        self._start()
        while True:
            if self._closing.is_set():
                raise ClientClosed("the queue is closed")
            if self._failure is not None:
                raise self._failure
            with self._io:
                if (message := self._next()) is not None:
                    return message
                left_ms = WAIT_MS
                if ends_at is not None:
                    left_ms = min(WAIT_MS, round((ends_at - time.monotonic()) * 1_000))
                if left_ms < 0:
                    return None
                self._fetch(left_ms)
                if (message := self._next()) is not None:
                    return message
            # Let the background thread in.
            time.sleep(0.001)

    def _next(self) -> QueueMessage | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def flush(self) -> None:
        """Send the acknowledgements so far, and wait for their results."""
        with self._io:
            for broker, reader in list(self._readers.items()):
                if reader.session.has_pending:
                    self._acknowledge(broker, reader)

    def close(self) -> None:
        """Release what is not acknowledged, and leave the group."""
        if self._closing.is_set():
            return
        self._closing.set()
        if self._maintenance is not None:
            self._maintenance.join()
        with self._io:
            for broker, reader in list(self._readers.items()):
                if reader.connection is not None and reader.session.epoch > 0:
                    self._acknowledge(broker, reader, closes=True)
                if reader.connection is not None:
                    self._cluster.release(reader.connection)
            try:
                self._member.leave()
            except (BrokerRefused, BrokerUnreachable) as error:
                logger.info("queue group %s: left without an answer: %s", self._group, error)
            self._cluster.close()

    # --- messages

    def _acknowledge_message(self, message: QueueMessage, kind: Acknowledgement) -> None:
        with self._lock:
            reader = self._holder_of(message)
            if reader is None:
                raise AlreadyAcknowledged(
                    f"{message.topic}[{message.partition}]@{message.offset} is not held any more: it was acknowledged, "
                    "or the connection to its broker was lost and others may have it"
                )
            reader.held[message.place_in_queue].pop(message.offset)
            reader.session.acknowledge(message.place_in_queue, message.offset, kind)

    def _renew_now(self, message: QueueMessage) -> None:
        with self._io:
            for broker, reader in self._readers.items():
                if message.offset in reader.held.get(message.place_in_queue, ()):
                    self._renew(broker, reader, {message.place_in_queue: [message.offset]})
                    return
        raise AlreadyAcknowledged(
            f"{message.topic}[{message.partition}]@{message.offset} is acknowledged"
        )

    def _holder_of(self, message: QueueMessage) -> _BrokerReader | None:
        return next(
            (
                one
                for one in self._readers.values()
                if message.offset in one.held.get(message.place_in_queue, ())
            ),
            None,
        )

    # --- the background thread

    def _start(self) -> None:
        if self._maintenance is not None:
            return
        self._member.beat()
        self._maintenance = threading.Thread(target=self._keep, name="respool-queue", daemon=True)
        self._maintenance.start()

    def _keep(self) -> None:
        while not self._closing.wait(TICK_S):
            try:
                if self._member.is_due():
                    self._member.beat()
                with self._io:
                    self._renew_due()
                    self.flush()
            except ClientClosed:
                return
            except BrokerUnreachable as error:
                logger.warning("queue group %s: %s", self._group, error)
            except BrokerRefused as error:
                if not error.retriable:
                    self._failure = error
                    return
                logger.warning("queue group %s: %s", self._group, error)

    def _renew_due(self) -> None:
        due_before = time.monotonic() - self._lock_ms / 2_000
        for broker, reader in list(self._readers.items()):
            with self._lock:
                due = {
                    place: [offset for offset, at in offsets.items() if at <= due_before]
                    for place, offsets in reader.held.items()
                }
            due = {place: offsets for place, offsets in due.items() if offsets}
            if due:
                self._renew(broker, reader, due)

    # --- requests

    def _fetch(self, wait_ms: int) -> None:
        """Fetch from the next broker that has partitions of this consumer."""
        by_broker = self._assigned_by_broker()
        if not by_broker:
            time.sleep(min(wait_ms, 50) / 1_000)
            return
        brokers = sorted(by_broker)
        self._turn += 1
        broker = brokers[self._turn % len(brokers)]
        wait_ms = wait_ms // len(brokers)
        with self._lock:
            reader = self._readers.setdefault(
                broker, _BrokerReader(QueueSession(self._group, self._member.member_id))
            )
            fields = reader.session.fetch_fields(
                by_broker[broker],
                records_max=self._records_max,
                wait_ms=wait_ms,
                bytes_max=FETCH_BYTES_MAX,
            )
        reply = self._request(broker, reader, Api.SHARE_FETCH, fields, wait_ms=wait_ms)
        if reply is None:
            return
        with self._lock:
            result = reader.session.on_fetched(reply)
            for part in result.parts:
                self._take(reader, part)
        self._on_result(result)
        if result.lock_ms > 0:
            self._lock_ms = result.lock_ms
        if result.errors:
            self._leaders.clear()

    def _take(self, reader: _BrokerReader, part: DeliveredPart) -> None:
        """Make messages of what was acquired; an offset without a record, such as a control batch, is a gap."""
        counts = {
            offset: one.delivery_count
            for one in part.ranges
            for offset in range(one.first, one.last + 1)
        }
        now = time.monotonic()
        held = reader.held.setdefault(part.place, {})
        for position, header in walk_batches(part.records):
            if header.is_control:
                continue
            batch = RecordBatch(header, memoryview(part.records)[position : position + header.size])
            for record in read_records(batch, limit=BATCH_BYTES_MAX):
                count = counts.pop(record.offset, None)
                if count is not None:
                    held[record.offset] = now
                    self._waiting.append(self._message(part.place, record, count))
        for offset in counts:
            reader.session.acknowledge(part.place, offset, Acknowledgement.GAP)

    def _message(self, place: QueuePlace, record: Record, delivery_count: int) -> QueueMessage:
        return QueueMessage(
            topic=self._names[place.topic_id],
            partition=place.partition,
            offset=record.offset,
            timestamp=as_datetime(record.timestamp) if record.timestamp >= 0 else None,
            key=record.key,
            value=record.value,
            headers=tuple(record.headers),
            attempt=delivery_count,
            delivery_count=delivery_count,
            place_in_queue=place,
            acknowledge=self._acknowledge_message,
            renew_now=self._renew_now,
        )

    def _acknowledge(self, broker: int, reader: _BrokerReader, *, closes: bool = False) -> None:
        if reader.session.epoch <= 0 and not closes:
            return
        with self._lock:
            fields = reader.session.acknowledge_fields(closes=closes)
        reply = self._request(broker, reader, Api.SHARE_ACKNOWLEDGE, fields)
        if reply is not None:
            with self._lock:
                result = reader.session.on_acknowledged(reply)
            self._on_result(result)

    def _renew(
        self, broker: int, reader: _BrokerReader, due: Mapping[QueuePlace, Sequence[int]]
    ) -> None:
        if reader.session.epoch <= 0:
            return
        fields = reader.session.renew_fields(due)
        reply = self._request(broker, reader, Api.SHARE_ACKNOWLEDGE, fields)
        if reply is None:
            return
        now = time.monotonic()
        with self._lock:
            result = reader.session.on_acknowledged(reply)
            for place, offsets in due.items():
                held = reader.held.get(place, {})
                held.update({offset: now for offset in offsets if offset in held})
        for code in result.refused.values():
            # If the lock has ended, the result of the acknowledgement says so.
            logger.warning(
                "queue group %s: locks were not renewed: %s", self._group, code_name(code)
            )

    def _request(
        self,
        broker: int,
        reader: _BrokerReader,
        api: Api,
        fields: dict[str, Any],
        *,
        wait_ms: int = 0,
    ) -> Any:
        """The reply; None: the session or the connection has ended, and is opened again by the next fetch."""
        try:
            connection = reader.connection
            if connection is None:
                connection = reader.connection = self._cluster.connect(broker)
            reply = connection.request(api, connection.version(api), fields, wait_ms=wait_ms)
        except BrokerUnreachable as error:
            logger.info("queue group %s: broker %d: %s", self._group, broker, error)
            self._on_lost(broker, reader)
            return None
        if reply.error_code:
            with self._lock:
                reader.session.on_session_error()
            if reply.error_code in SESSION_ERRORS:
                return None
            raise refused(f"{api.name} of queue group {self._group!r}", reply.error_code)
        return reply

    def _on_lost(self, broker: int, reader: _BrokerReader) -> None:
        """The broker gives what was held to others; messages that wait here are theirs, too."""
        if reader.connection is not None:
            self._cluster.release(reader.connection)
        with self._lock:
            lost = {(place, offset) for place, offsets in reader.held.items() for offset in offsets}
            self._waiting = deque(
                one for one in self._waiting if (one.place_in_queue, one.offset) not in lost
            )
            del self._readers[broker]
        self._leaders.clear()

    def _on_result(self, result: SessionReply) -> None:
        for place, code in result.refused.items():
            self.late_count += 1
            logger.warning(
                "queue group %s: %s[%d]: acknowledgements had no effect, others may have the messages: %s",
                self._group,
                self._names.get(place.topic_id, "?"),
                place.partition,
                code_name(code),
            )

    # --- leaders

    def _assigned_by_broker(self) -> dict[int, list[QueuePlace]]:
        assigned = self._member.assigned
        if not assigned <= self._leaders.keys():
            self._look_up_leaders()
        by_broker: dict[int, list[QueuePlace]] = {}
        for place in sorted(assigned):
            if place in self._leaders:
                by_broker.setdefault(self._leaders[place], []).append(place)
        return by_broker

    def _look_up_leaders(self) -> None:
        for topic in self._cluster.refresh_named(self._topics).values():
            if topic.id is None:
                continue
            self._names[topic.id] = topic.name
            for number, leader in topic.leaders.items():
                if leader is not None:
                    self._leaders[QueuePlace(topic.id, number)] = leader.broker
