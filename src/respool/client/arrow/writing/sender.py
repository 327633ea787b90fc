"""Sends batches to one broker: one thread sends requests, another receives the replies.

Requests are pipelined: while replies wait for the broker's disk, the next batches are already in flight. When a
connection is lost, all batches without a reply return to their queues, which decide about retries.
"""

from collections import deque
from threading import Thread

from respool.client.arrow.writing.delivery import Delivery, Place
from respool.client.arrow.writing.producer_stamps import stamped
from respool.client.kafka.codes import Code
from respool.client.kafka.connection import Connection
from respool.client.kafka.errors import (
    BrokerUnreachable,
    ClientClosed,
    ClientError,
    ConnectionLost,
    ProtocolBroken,
    VersionUnsupported,
)
from respool.client.kafka.partition_queue import ProducerBatch, QueueFailure
from respool.client.kafka.produce_request import answers_of, produce_body
from respool.client.kafka.retries import now_ms
from respool.wire.api_table import Api


class BrokerSender:
    def __init__(self, delivery: Delivery, broker: int) -> None:
        self._delivery = delivery
        self._broker = broker
        self._line: _LeaderConnection | None = None
        self._thread = Thread(target=self._run, name=f"respool-send-{broker}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def interrupt(self) -> None:
        """Wake it, whatever it waits for; `is_stopping` is already set."""
        line = self._line
        if line is not None:
            line.connection.interrupt()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            while (load := self._next_load()) is not None:
                self._send(load)
        except BaseException as error:
            self._delivery.crash(error)
            raise
        finally:
            self._end_line()

    def _next_load(self) -> list[tuple[Place, ProducerBatch]] | None:
        delivery = self._delivery
        with delivery.changed:
            while not delivery.is_stopping:
                line = self._line
                if line is None or line.has_room:
                    load = delivery.take_for(self._broker, now_ms())
                    if load:
                        return load
                due_ms = delivery.next_due_ms(self._broker)
                wait_s = None if due_ms is None else max(0.001, (due_ms - now_ms()) / 1000)
                delivery.changed.wait(wait_s)
        return None

    def _send(self, load: list[tuple[Place, ProducerBatch]]) -> None:
        delivery, settings = self._delivery, self._delivery.settings
        try:
            line = self._open_line()
        except VersionUnsupported as error:
            with delivery.changed:
                delivery.on_impossible(load, QueueFailure(Code.unsupported_version, str(error)))
            return
        except ClientError as error:
            # Including TLS and login errors, for example while certificates are renewed: another broker may lead soon,
            # and after the delivery timeout this error is reported.
            with delivery.changed:
                delivery.on_lost(load, str(error), was_sent=False)
            return
        batches: dict[str, list[tuple[int, memoryview]]] = {}
        is_transactional = settings.transactional_id is not None
        for (topic, partition), batch in load:
            data = stamped(batch, is_transactional=is_transactional)
            batches.setdefault(topic, []).append((partition, data))
        parts = produce_body(
            batches,
            acks=settings.acks,
            timeout_ms=settings.request_timeout_ms,
            transactional_id=settings.transactional_id,
        )
        is_answered = settings.acks != 0
        begun = False

        def on_begin() -> None:
            nonlocal begun
            if is_answered:
                with delivery.changed:
                    if line.is_dead:
                        # The receiving thread has ended, so it would not return this load to its queues.
                        raise ConnectionLost(line.why_dead)
                    line.awaiting.append(load)
                    delivery.changed.notify_all()
            begun = True

        try:
            line.connection.send_parts(
                Api.PRODUCE, line.version, parts, has_reply=is_answered, on_begin=on_begin
            )
        except (BrokerUnreachable, ClientClosed) as error:
            line.connection.interrupt()
            if begun and is_answered:
                # The receiving thread sees the error too, and returns all loads to their queues.
                return
            with delivery.changed:
                delivery.on_lost(load, str(error), was_sent=begun)
            return
        if not is_answered:
            with delivery.changed:
                for place, batch in load:
                    delivery.on_sent_unacknowledged(place, batch)

    def _open_line(self) -> "_LeaderConnection":
        line = self._line
        # Brokers close idle connections.
        if line is not None and not line.is_dead and line.connection.is_fresh:
            return line
        self._end_line()
        delivery = self._delivery
        connection = delivery.cluster.connect(self._broker)
        try:
            version = connection.version(Api.PRODUCE, delivery.settings.produce_versions)
        except ClientError:
            delivery.cluster.release(connection)
            raise
        self._line = _LeaderConnection(delivery, connection, version)
        self._line.start()
        return self._line

    def _end_line(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.connection.interrupt()
            line.end()
            self._delivery.cluster.release(line.connection)


class _LeaderConnection:
    """A connection and the loads in flight on it, oldest first."""

    def __init__(self, delivery: Delivery, connection: Connection, version: int) -> None:
        self._delivery = delivery
        self.connection = connection
        self.version = version
        # Guarded by the delivery's lock.
        self.awaiting: deque[list[tuple[Place, ProducerBatch]]] = deque()
        self.is_dead = False
        self.why_dead = ""
        self._thread = Thread(target=self._run, name="respool-answers", daemon=True)

    @property
    def has_room(self) -> bool:
        return len(self.awaiting) < self._delivery.settings.requests_in_flight_max

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """After an interrupt: wait until all batches are returned to their queues."""
        with self._delivery.changed:
            self.is_dead = True
            self._delivery.changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        try:
            while self._wait_for_something():
                self._take_answer()
        except (BrokerUnreachable, ClientClosed) as error:
            self._die(str(error))
        except BaseException as error:
            self._die(str(error))
            self._delivery.crash(error)
            raise
        else:
            self._die("the connection was closed")

    def _wait_for_something(self) -> bool:
        with self._delivery.changed:
            while not self.awaiting:
                if self.is_dead:
                    return False
                self._delivery.changed.wait()
        return True

    def _take_answer(self) -> None:
        delivery = self._delivery
        reply = self.connection.receive_reply(wait_ms=delivery.settings.request_timeout_ms)
        answers = {(one.topic, one.partition): one for one in answers_of(reply)}
        with delivery.changed:
            load = self.awaiting[0]
            missing = [place for place, _ in load if place not in answers]
            if missing:
                raise ProtocolBroken(f"the broker did not answer for {missing[0]}")
            self.awaiting.popleft()
            for place, batch in load:
                delivery.on_answer(place, batch, answers[place])

    def _die(self, why: str) -> None:
        self.connection.interrupt()
        with self._delivery.changed:
            self.is_dead = True
            self.why_dead = why
            while self.awaiting:
                self._delivery.on_lost(self.awaiting.popleft(), why, was_sent=True)
            self._delivery.changed.notify_all()
