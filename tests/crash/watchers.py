"""Readers that look on while a cluster is hurt, and remember what they saw: it must be what is there in the end."""

import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from support.message import Place, Received

# An offset and a checksum of the value there.
Seen = tuple[int, int]
QUICK = {"reconnect.backoff.max.ms": 200, "fetch.wait.max.ms": 100, "log_level": 0}


def _seen(message: Any) -> Seen:
    return message.offset(), zlib.crc32(message.value() or b"")


class Watcher:
    """Reads partitions from their beginning to their end, read_committed, without a group."""

    def __init__(self, address: str, places: Iterable[Place]) -> None:
        self.seen: dict[Place, list[Seen]] = {place: [] for place in places}
        self.errors: list[KafkaError] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "watcher",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                **QUICK,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))

    def check(self, received: Mapping[Place, Sequence[Received]]) -> None:
        """All it saw is the beginning of what is there. Raises AssertionError."""
        assert not self.errors, f"a reader was told {self.errors[0]}"
        for place, seen in self.seen.items():
            there = [(one.offset, zlib.crc32(one.value or b"")) for one in received[place]]
            for before, now in zip(seen, there, strict=False):
                assert before == now, f"{place}: a reader saw {before}, and {now} is there"
            assert len(seen) <= len(there), f"{place}: a reader saw more than is there"

    def _run(self) -> None:
        self._consumer.assign([TopicPartition(*place, 0) for place in self.seen])
        while not self._stopping.is_set():
            for message in self._consumer.consume(1_000, 0.1):
                error = message.error()
                if error is None:
                    self.seen[message.topic(), message.partition()].append(_seen(message))
                elif not error.retriable() and error.code() not in PASSING:
                    self.errors.append(error)


# What librdkafka tells of a cluster in trouble while it goes on by itself.
PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
}


class GroupReader:
    """One member of a group that commits what it has read, and may read again what it has not committed."""

    def __init__(self, address: str, topics: Sequence[str]) -> None:
        self.seen: dict[Place, dict[int, int]] = {}
        self.committed: dict[Place, int] = {}
        self._topics = list(topics)
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "lookers-on",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                **QUICK,
            }
        )
        self.doubts: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    @property
    def count(self) -> int:
        return sum(map(len, self.seen.values()))

    def check(self, received: Mapping[Place, Sequence[Received]]) -> None:
        """All it saw is there, and it saw all below what it committed. Raises AssertionError."""
        assert not self.doubts, self.doubts[0]
        for place, seen in self.seen.items():
            there = {one.offset: zlib.crc32(one.value or b"") for one in received[place]}
            wrong = [one for one in seen.items() if there.get(one[0]) != one[1]]
            assert not wrong, f"{place}: a member saw {wrong[:3]}, which is not there"
            missed = [
                one for one in there if one < self.committed.get(place, 0) and one not in seen
            ]
            assert not missed, f"{place}: committed over {len(missed)} messages, first {missed[:3]}"

    def _run(self) -> None:
        self._consumer.subscribe(self._topics)
        while not self._stopping.is_set():
            ends: dict[Place, int] = {}
            for message in self._consumer.consume(500, 0.1):
                if message.error() is not None:
                    continue
                place = message.topic(), message.partition()
                offset, value = _seen(message)
                known = self.seen.setdefault(place, {}).setdefault(offset, value)
                if known != value:
                    self.doubts.append(f"{place}: another value at offset {offset} than before")
                ends[place] = offset + 1
            if ends:
                self._commit(ends)

    def _commit(self, ends: Mapping[Place, int]) -> None:
        offsets = [TopicPartition(*place, end) for place, end in ends.items()]
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            # It is out of the group, or nobody answers: it will read them again.
            return
        for one in done:
            if one.error is None:
                self.committed[one.topic, one.partition] = one.offset
