"""A consumer in a group, as a process of its own: one that can be killed, and that tells all it does.

The test's side is `GroupMember`. The process's side (`main`) reads with one of the clients, commits what it has read
after each poll, and writes one line of JSON per event:

- {"assigned": [[topic, partition], …]}     all it has, when that has changed
- {"read": [topic, partition, [offsets]]}   what it got, before it commits it
- {"committed": {"topic/partition": next}}  what the broker has confirmed
- {"refused": "…"}                          a commit that was not taken, such as in a rebalance
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from support.confluent_client import Deliveries, producer
from support.message import Place
from support.waiting import wait_until

# The shortest a broker allows by default.
SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_MS = 500
STOP_SECONDS_MAX = 60.0
# For brokers: less waiting than by default, and few files.
GROUP_SETTINGS = {
    "offsets_topic_partitions": 4,
    "group_initial_rebalance_delay_ms": 200,
    "group_consumer_session_timeout_ms": SESSION_TIMEOUT_MS,
    "group_consumer_heartbeat_interval_ms": HEARTBEAT_MS,
}


class GroupMember:
    """Use it as a context; at the end it is stopped, if it still runs."""

    def __init__(
        self, client: str, address: str, group: str, topics: Iterable[str], **options: Any
    ) -> None:
        """Options: `strategy`, `instance_id`, `protocol` ("consumer" for KIP-848), `commits` (True)."""
        self.name = f"{client} in {group}"
        wish = {
            "client": client,
            "address": address,
            "group": group,
            "topics": list(topics),
            **options,
        }
        self.events: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.group_member", json.dumps(wish)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        )
        self._errors = b""
        self._readers = [
            threading.Thread(target=self._read_events),
            threading.Thread(target=self._read_errors),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(f"{self.name}: {self.events[-6:]} {self._errors[-2000:].decode()}")
        if self._process.poll() is None:
            self.stop() if error is None else self.kill()

    @property
    def assignment(self) -> set[Place]:
        """What it has now, as far as it has told."""
        told = [event["assigned"] for event in list(self.events) if "assigned" in event]
        return {(topic, number) for topic, number in told[-1]} if told else set()

    @property
    def assignments(self) -> int:
        """How often what it has changed."""
        return sum("assigned" in event for event in list(self.events))

    @property
    def read(self) -> dict[Place, list[int]]:
        """The offsets it got, in the order it got them."""
        found: dict[Place, list[int]] = {}
        for event in list(self.events):
            if "read" in event:
                topic, number, offsets = event["read"]
                found.setdefault((topic, number), []).extend(offsets)
        return found

    @property
    def committed(self) -> dict[Place, int]:
        """The offset to go on from, by partition, that the broker confirmed last."""
        found = {}
        for event in list(self.events):
            for place, offset in event.get("committed", {}).items():
                topic, _, number = place.rpartition("/")
                found[topic, int(number)] = offset
        return found

    def stop(self) -> None:
        """Have it leave its group in order."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            code = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"{self.name} did not end: {self._errors[-2000:].decode()}"
            ) from None
        self._join_readers()
        assert code == 0, f"{self.name} failed: {self._errors[-2000:].decode()}"

    def kill(self) -> None:
        """It vanishes without a word."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._join_readers()

    def _join_readers(self) -> None:
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # A line may be cut off when the process is killed.
            if line.endswith(b"\n"):
                self.events.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors += line


def fill(address: str, places: Iterable[Place], count: int) -> None:
    """Write so many messages to each place, by one producer."""
    sender, told = producer(address), Deliveries()
    for topic, number in places:
        for _ in range(count):
            sender.produce(topic, b"m", partition=number, on_delivery=told)
    assert not sender.flush(STOP_SECONDS_MAX)
    assert not told.errors


def wait_until_shared(
    members: Iterable[GroupMember], places: Iterable[Place], *, each: int, seconds: float = 60.0
) -> None:
    """Return when every place has exactly one owner among the members, and each owns so many."""
    members, wanted = list(members), sorted(places)

    def is_shared() -> bool:
        shares = [one.assignment for one in members]
        return sorted(place for share in shares for place in share) == wanted and all(
            len(share) == each for share in shares
        )

    shares = [(one.name, sorted(one.assignment)) for one in members]
    wait_until(
        is_shared, f"{len(wanted)} partitions, {each} each; at first {shares}", seconds=seconds
    )


def main() -> None:
    wish = json.loads(sys.argv[1])
    stopping = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=watch, daemon=True).start()
    _LOOPS[wish["client"]](wish, stopping)


def tell(**event: Any) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


class Assignment:
    """Tells when what the member has is not what it was."""

    def __init__(self) -> None:
        self._told: set[Place] | None = None

    def tell(self, places: Iterable[Any]) -> None:
        now = {(one.topic, one.partition) for one in places}
        if now != self._told and (now or self._told):
            self._told = now
            tell(assigned=sorted(now))


def _text(place: Any) -> str:
    return f"{place.topic}/{place.partition}"


def _confluent(wish: dict[str, Any], stopping: threading.Event) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings = {
        "bootstrap.servers": wish["address"],
        "group.id": wish["group"],
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 100,
        "topic.metadata.refresh.interval.ms": 1_000,
        "reconnect.backoff.max.ms": 500,
        "log_level": 0,
    }
    if wish.get("instance_id"):
        settings["group.instance.id"] = wish["instance_id"]
    if wish.get("protocol") == "consumer":
        settings["group.protocol"] = "consumer"
        if wish.get("strategy"):
            settings["group.remote.assignor"] = wish["strategy"]
    else:
        settings |= {
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": wish.get("strategy", "range"),
        }
    consumer = Consumer(settings)
    consumer.subscribe(wish["topics"])
    assignment = Assignment()
    while not stopping.is_set():
        messages = [one for one in consumer.consume(100, 0.1) if one.error() is None]
        assignment.tell(consumer.assignment())
        found: dict[Place, list[int]] = {}
        for one in messages:
            found.setdefault((one.topic(), one.partition()), []).append(one.offset())
        for place, offsets in found.items():
            tell(read=[*place, offsets])
        if found and wish.get("commits", True):
            try:
                done = consumer.commit(
                    offsets=[TopicPartition(*place, max(got) + 1) for place, got in found.items()],
                    asynchronous=False,
                )
            except KafkaException as error:
                tell(refused=str(error))
            else:
                tell(committed={_text(one): one.offset for one in done if one.error is None})
    consumer.close()


def _kafka_python(wish: dict[str, Any], stopping: threading.Event) -> None:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata

    strategies = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    consumer = KafkaConsumer(
        *wish["topics"],
        bootstrap_servers=wish["address"],
        group_id=wish["group"],
        group_instance_id=wish.get("instance_id"),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=100,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        reconnect_backoff_max_ms=500,
        partition_assignment_strategy=[strategies[wish.get("strategy", "range")]],
    )
    assignment = Assignment()
    while not stopping.is_set():
        found = consumer.poll(timeout_ms=100)
        assignment.tell(consumer.assignment())
        for place, records in found.items():
            tell(read=[*place, [one.offset for one in records]])
        if found and wish.get("commits", True):
            offsets = {place: records[-1].offset + 1 for place, records in found.items()}
            try:
                consumer.commit(
                    {place: OffsetAndMetadata(one, "", -1) for place, one in offsets.items()}
                )
            except KafkaError as error:
                tell(refused=repr(error))
            else:
                tell(committed={_text(place): one for place, one in offsets.items()})
    consumer.close()


def _aiokafka(wish: dict[str, Any], stopping: threading.Event) -> None:
    import asyncio

    from aiokafka import AIOKafkaConsumer
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    strategies = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            *wish["topics"],
            bootstrap_servers=wish["address"],
            group_id=wish["group"],
            group_instance_id=wish.get("instance_id"),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[strategies[wish.get("strategy", "range")]],
        )
        await consumer.start()
        assignment = Assignment()
        while not stopping.is_set():
            found = await consumer.getmany(timeout_ms=100)
            assignment.tell(consumer.assignment())
            for place, records in found.items():
                tell(read=[*place, [one.offset for one in records]])
            if found and wish.get("commits", True):
                offsets = {place: records[-1].offset + 1 for place, records in found.items()}
                try:
                    await consumer.commit(offsets)
                except KafkaError as error:
                    tell(refused=repr(error))
                else:
                    tell(committed={_text(place): one for place, one in offsets.items()})
        await consumer.stop()

    asyncio.run(run())


_LOOPS: dict[str, Callable[[dict[str, Any], threading.Event], None]] = {
    "confluent": _confluent,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
}

if __name__ == "__main__":
    main()
