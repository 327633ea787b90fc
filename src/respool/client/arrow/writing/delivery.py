"""Batches on their way to all brokers: the lanes, the memory they may take, and who leads which partition now.

Threads meet here, under one lock (`changed`), held for moments only:

- the caller's adds batches (`submit`) and waits for room (`reserve`) or for the end (`wait_until_settled`);
- one sender for each broker takes what may be sent and tells what became of it (`sender.py`);
- the keeper asks for metadata when a leader has moved, and gives up what is past its time (`keeper.py`).
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Condition
from typing import TypeAlias

from respool.client.arrow.errors import BufferFull
from respool.client.arrow.writing.keeper import Keeper
from respool.client.arrow.writing.sender import BrokerSender
from respool.client.arrow.writing.write_clock import retry_at_ms
from respool.client.arrow.writing.write_result import Tally, WriteResult
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code
from respool.client.kafka.errors import ClientClosed
from respool.client.kafka.metadata import TopicMetadata
from respool.client.kafka.partition_queue import Failure, Identity, Lane, Parcel, Reaction
from respool.client.kafka.produce_request import Answer
from respool.client.kafka.versions import VERSIONS, VersionRange
from respool.wire.api_table import Api

Place: TypeAlias = tuple[str, int]

ACKS_ALL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverySettings:
    acks: int = ACKS_ALL
    in_flight_max: int = 5
    # How long a broker may take to replicate a batch, and how long a batch is tried in all.
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    buffer_bytes: int = 64 * 1024 * 1024
    # Of one request; it has one batch at least.
    request_bytes_max: int = 8 * 1024 * 1024
    requests_in_flight_max: int = 32
    transactional_id: str | None = None
    produce_versions: VersionRange = VERSIONS[Api.PRODUCE]


class Delivery:
    def __init__(self, cluster: Cluster, settings: DeliverySettings) -> None:
        self.cluster = cluster
        self.settings = settings
        self.changed = Condition()
        # Who writes; None without idempotence. Set before the first batch.
        self.identity: Identity | None = None
        self.lanes: dict[Place, Lane] = {}
        # Those with something in them.
        self.active: dict[Place, Lane] = {}
        self.leaders: dict[Place, int | None] = {}
        # Where what is under way was sent to.
        self._sent_to: dict[Place, int] = {}
        # Topics whose metadata must be asked for again.
        self.stale: set[str] = set()
        self.tally = Tally()
        self.is_stopping = False
        # The last that was heard of a partition in trouble, for whoever must be told in the end.
        self._last_words: dict[Place, str] = {}
        self._senders: dict[int, BrokerSender] = {}
        self._keeper: Keeper | None = None
        self._buffered = 0

    # The caller's side.

    def submit(self, place: Place, parcel: Parcel) -> bool:
        """Send it as soon as its turn comes; False when its partition has failed, and it is counted as not in."""
        with self.changed:
            self._check_running()
            lane = self.lane_of(place)
            if lane.failure is not None:
                self._release(parcel)
                self.tally.add(place, parcel)
                return False
            lane.add(parcel)
            self.active[place] = lane
            if self._keeper is None:
                self._keeper = Keeper(self)
                self._keeper.start()
            self.changed.notify_all()
        return True

    def lane_of(self, place: Place) -> Lane:
        """With the lock held."""
        lane = self.lanes.get(place)
        if lane is None:
            lane = self.lanes[place] = Lane(
                identity=self.identity,
                in_flight_max=self.settings.in_flight_max,
                is_transactional=self.settings.transactional_id is not None,
            )
        return lane

    def reserve(self, size: int) -> None:
        """Wait until there is room for that many bytes. One batch always has room, however large.

        Raises:
            BufferFull: nothing became free within the delivery timeout.
        """
        limit = self.settings.buffer_bytes
        deadline = time.monotonic() + self.settings.delivery_timeout_ms / 1000
        with self.changed:
            while self._buffered and self._buffered + size > limit:
                self._check_running()
                left = deadline - time.monotonic()
                if left <= 0:
                    raise BufferFull(
                        f"no room for {size} bytes within {self.settings.delivery_timeout_ms} ms: "
                        f"{self._buffered} of {limit} bytes wait for brokers"
                    )
                self.changed.wait(left)
            self._buffered += size

    def free(self, size: int) -> None:
        """Give back what was reserved in vain."""
        with self.changed:
            self._buffered -= size
            self.changed.notify_all()

    @property
    def has_failed(self) -> bool:
        return any(lane.failure is not None for lane in self.lanes.values())

    @property
    def buffered_bytes(self) -> int:
        return self._buffered

    def wait_until_settled(self) -> None:
        """Return when every batch is in, or given up: the delivery timeout sees to that."""
        with self.changed:
            while self.active:
                self._check_running()
                self.changed.wait()

    def wait_until_quiet(self) -> None:
        """Return when nothing is under way."""
        with self.changed:
            while any(not lane.is_quiet for lane in self.active.values()):
                self._check_running()
                self.changed.wait()

    def take_result(self) -> tuple[WriteResult, dict[Place, Failure]]:
        """What became of all since the last time; failures are forgotten by this."""
        with self.changed:
            assert not self.active
            failures = {
                place: lane.failure
                for place, lane in self.lanes.items()
                if lane.failure is not None
            }
            for place in failures:
                self.lanes[place].clear()
            self._last_words.clear()
            result = self.tally.result(failures)
            self.tally = Tally()
        return result, failures

    def give_up(self, failure: Failure) -> None:
        """Drop all that is not under way."""
        with self.changed:
            for place in list(self.active):
                self._react(place, self.lanes[place].fail(failure))

    def go_on_as(self, identity: Identity) -> None:
        """Write under another id or epoch from now on; nothing may be on its way."""
        with self.changed:
            assert not self.active
            self.identity = identity
            self.lanes.clear()

    def stop(self) -> None:
        """End all threads; what is on its way is not waited for."""
        with self.changed:
            self.is_stopping = True
            senders = list(self._senders.values())
            self.changed.notify_all()
        for sender in senders:
            sender.interrupt()
        for sender in senders:
            sender.join()
        if self._keeper is not None:
            self._keeper.join()

    # The senders' side; all with the lock held.

    def take_for(self, broker: int, now_ms: int) -> list[tuple[Place, Parcel]]:
        """What may be sent to this broker now: one batch for each partition, as many as one request may have."""
        load: list[tuple[Place, Parcel]] = []
        size = 0
        for place, lane in self._lanes_for(broker):
            if size >= self.settings.request_bytes_max:
                break
            parcel = lane.take(now_ms)
            if parcel is None:
                continue
            self._sent_to[place] = broker
            load.append((place, parcel))
            size += parcel.size
            # Next time others come first.
            self.active[place] = self.active.pop(place)
        return load

    def next_due_ms(self, broker: int) -> int | None:
        due = [lane.due_at_ms() for _, lane in self._lanes_for(broker)]
        return min((one for one in due if one is not None), default=None)

    def on_answer(self, place: Place, parcel: Parcel, answer: Answer) -> None:
        lane = self.lanes[place]
        if not answer.code:
            self._react(place, lane.on_taken(parcel, answer.base_offset))
            return
        message = (
            answer.message
            if answer.row is None
            else f"{answer.message} (row {answer.row} of a batch)"
        )
        self._last_words[place] = message
        self._react(
            place,
            lane.on_refused(parcel, answer.code, message, retry_at_ms=retry_at_ms(parcel.tries)),
        )

    def on_taken_unasked(self, place: Place, parcel: Parcel) -> None:
        """With acks=0 nobody says more than that it was sent."""
        self._react(place, self.lanes[place].on_taken(parcel, -1))

    def on_lost(self, load: Iterable[tuple[Place, Parcel]], why: str, *, was_sent: bool) -> None:
        for place, parcel in load:
            lane = self.lanes[place]
            self._last_words[place] = why
            at_ms = retry_at_ms(parcel.tries)
            told = lane.on_lost if was_sent else lane.on_unsent
            self._react(place, told(parcel, retry_at_ms=at_ms))

    def on_impossible(self, load: Iterable[tuple[Place, Parcel]], failure: Failure) -> None:
        """What was taken cannot be sent, now or ever."""
        for place, parcel in load:
            lane = self.lanes[place]
            self._react(place, lane.on_unsent(parcel, retry_at_ms=0))
            self._react(place, lane.fail(failure))

    # The keeper's side; with the lock held.

    def expire(self, now_ms: int) -> None:
        limit = self.settings.delivery_timeout_ms
        for place in list(self.active):
            words = self._last_words.get(place, "no broker took it")
            failure = Failure(
                Code.request_timed_out, f"not acknowledged within {limit} ms; at last: {words}"
            )
            self._react(place, self.lanes[place].expire(now_ms, failure))

    def on_metadata(self, topic: TopicMetadata) -> None:
        self.stale.discard(topic.name)
        for partition, leader in topic.leaders.items():
            broker = None if leader is None else leader.broker
            self.leaders[topic.name, partition] = broker
            if broker is not None and broker not in self._senders and not self.is_stopping:
                sender = self._senders[broker] = BrokerSender(self, broker)
                sender.start()
            if broker is None:
                self._last_words.setdefault((topic.name, partition), "nobody leads the partition")
                self.stale.add(topic.name)
        self.changed.notify_all()

    def on_no_metadata(self, topic: str, why: str) -> None:
        for place in self.active:
            if place[0] == topic:
                self._last_words[place] = why

    def crash(self, error: BaseException) -> None:
        """A thread of ours ended by a mistake: nobody shall wait for it for ever."""
        with self.changed:
            self._crash = error
            self.is_stopping = True
            self.changed.notify_all()

    # Inside.

    _crash: BaseException | None = None

    def _lanes_for(self, broker: int) -> list[tuple[Place, Lane]]:
        """Those whose batches this broker may get now."""
        return [
            (place, lane)
            for place, lane in self.active.items()
            if self.leaders.get(place) == broker and self._may_go_to(broker, place, lane)
        ]

    def _may_go_to(self, broker: int, place: Place, lane: Lane) -> bool:
        # A new leader that has nothing of this producer takes any sequence (1), so what follows must not overtake
        # what the leader before has yet to answer (2): refused there, it would come after it (3).
        return lane.is_quiet or lane.identity is None or self._sent_to.get(place) == broker

    def _react(self, place: Place, reaction: Reaction) -> None:
        for parcel in reaction.settled:
            self._release(parcel)
            self.tally.add(place, parcel)
        if self.lanes[place].is_empty:
            self.active.pop(place, None)
        if reaction.wants_metadata:
            self.stale.add(place[0])
        self.changed.notify_all()

    def _release(self, parcel: Parcel) -> None:
        self._buffered -= parcel.size
        parcel.data = None

    def _check_running(self) -> None:
        if self._crash is not None:
            raise RuntimeError(
                "a thread of the producer ended by a mistake of ours"
            ) from self._crash
        if self.is_stopping:
            raise ClientClosed("the producer is closed")
