"""A source and a target topic in memory, with a network that delays, drops and breaks; for tests of replays.

The target checks batches by the broker's own rules (`log/producers/`). A connection holds requests that were sent and
not carried out yet; when its client is killed they stay, and may still be carried out much later, or never. What is
appended becomes readable a little later, as it does while a disk syncs.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from respool.client.kafka import sequenced_writer
from respool.client.kafka.codes import Code
from respool.client.kafka.errors import BrokerUnreachable
from respool.client.kafka.list_offsets import Isolation
from respool.client.kafka.metadata import PartitionLeader, TopicMetadata
from respool.log.producers.producer_states import ProducerStates
from respool.model.errors import OutOfOrderSequence
from respool.model.ids import Offset
from respool.records.batch import RecordBatch, read_header
from respool.records.record import Record, read_records
from respool.replay.copy_plan import Span
from respool.replay.copy_position import Origin, origin_of
from respool.replay.record_reader import Fetched

SOURCE, TARGET = "rides", "copy"
HOUR_MS = 3_600_000
BATCH_LIMIT = 1 << 20

# What a Produce request carries: topic -> (partition, batch).
Batches = Mapping[str, list[tuple[int, bytes]]]


class Killed(BaseException):
    """The process that ran the replay is gone. Nothing catches it."""


class TargetPartition:
    def __init__(self) -> None:
        self.records: list[Record] = []
        self.readable = 0
        self._producers = ProducerStates(expiration_ms=24 * HOUR_MS)

    def append(self, data: bytes) -> tuple[int, int]:
        """As a broker does it: (error code, base offset)."""
        batch = RecordBatch(read_header(data), data)
        try:
            duplicate = self._producers.check(batch.header)
        except OutOfOrderSequence as error:
            return error.code, -1
        if duplicate is not None:
            return 0, duplicate.base_offset
        base_offset = len(self.records)
        self._producers.update(batch.header, base_offset=Offset(base_offset))
        for record in read_records(batch, limit=BATCH_LIMIT):
            self.records.append(replace(record, offset=Offset(len(self.records))))
        return 0, base_offset


class World:
    """Both topics, and the random source of what happens to them."""

    request_timeout_ms = 30_000

    def __init__(self, source: dict[int, list[Record]], *, targets: int, rng: Random) -> None:
        self.source = source
        self.target = {number: TargetPartition() for number in range(targets)}
        self.rng = rng
        self.connections: list[Connection] = []
        # The next run is killed after this many of its steps; None: never.
        self.steps_left: int | None = None
        # Requests are refused now and then, and connections break.
        self.is_troubled = False
        # What a test plants: partition -> the first offset of the source that is left.
        self.source_starts: dict[int, int] = {}
        self.connect: Callable[[int], Connection] = lambda broker: Connection(self)

    # What `Cluster` offers to the writer.

    def topic(self, name: str) -> TopicMetadata:
        return self.describe_topic(None, name)

    def refresh(self, name: str) -> TopicMetadata:
        assert name == TARGET
        return self.topic(name)

    def sleep(self, seconds: float) -> None:
        self.step()

    def release(self, connection: "Connection") -> None:
        connection.is_orphan = True

    # What `replay/topic_lookup.py` asks of it.

    def describe_topic(self, _cluster: object, name: str) -> TopicMetadata:
        numbers = list(self.source if name == SOURCE else self.target)
        leaders = dict.fromkeys(numbers, PartitionLeader(broker=1, epoch=0))
        return TopicMetadata(name=name, id=None, leaders=leaders)

    def held_spans(
        self,
        _cluster: object,
        name: str,
        partitions: Iterable[int],
        *,
        isolation: Isolation = "read_committed",
    ) -> dict[int, Span]:
        check_isolation(name, isolation)
        return {number: self.held(name, number) for number in partitions}

    def held(self, name: str, number: int) -> Span:
        if name == TARGET:
            return Span(0, self.target[number].readable)
        log = self.source[number]
        end = int(log[-1].offset) + 1 if log else 0
        return Span(self.source_starts.get(number, 0), end)

    # Chance.

    def step(self) -> None:
        """Something happens elsewhere, and this process may be killed."""
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise Killed
        for partition in self.target.values():
            behind = len(partition.records) - partition.readable
            if behind and self.rng.random() < 0.5:
                partition.readable += self.rng.randint(1, behind)
        for connection in self.connections:
            if connection.is_orphan and self.rng.random() < 0.2:
                connection.carry_out_one()

    def end_life(self) -> None:
        """The process is killed: what it has sent is still on its way."""
        for connection in self.connections:
            connection.is_orphan = True

    def deliver_all(self) -> None:
        """Everything in flight arrives."""
        for connection in self.connections:
            while connection.is_orphan and connection.pipe:
                connection.carry_out_one()
        for partition in self.target.values():
            partition.readable = len(partition.records)

    def read(self, topic: str, number: int) -> Sequence[Record]:
        if topic == SOURCE:
            return self.source[number]
        return self.target[number].records[: self.target[number].readable]

    def origins(self, target: int, replay_id: str) -> list[Origin]:
        found = [origin_of(record, replay_id) for record in self.target[target].records]
        return [origin for origin in found if origin is not None]


def check_isolation(topic: str, isolation: Isolation) -> None:
    """An open transaction of another producer hides copies from a reader of the target with read_committed."""
    assert isolation == ("read_committed" if topic == SOURCE else "read_uncommitted")


def answered(number: int, code: Code, offset: int) -> Any:
    """A reply to Produce."""
    answer = SimpleNamespace(
        index=number, error_code=code, base_offset=offset, error_message=None, record_errors=()
    )
    return SimpleNamespace(responses=(SimpleNamespace(name=TARGET, partition_responses=(answer,)),))


@contextmanager
def served_by_the_world() -> Iterator[None]:
    """Requests of the writer are handed to the world's connections as they are, and retries wait for nothing."""
    with (
        patch.object(sequenced_writer, "produce_body", lambda batches, **_fields: [batches]),
        patch.object(
            sequenced_writer, "BACKOFF", SimpleNamespace(first=0, delay=lambda attempts: 0)
        ),
    ):
        yield


class Connection:
    """In place of the client core's connection."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.world.step()
        if self.world.is_troubled and self.world.rng.random() < 0.3:
            raise BrokerUnreachable("nobody is there")
        self.pipe: deque[Batches] = deque()
        self._replies: deque[Any] = deque()
        self.is_orphan = False
        self._is_broken = False
        self.world.connections.append(self)

    @property
    def is_fresh(self) -> bool:
        return not self._is_broken

    def version(self, _api: object, _versions: object) -> int:
        return 12

    def send_parts(self, _api: object, _version: int, parts: list[Batches]) -> None:
        self.world.step()
        self._maybe_break()
        self.pipe += parts

    def has_reply(self, seconds: float) -> bool:
        self.world.step()
        while self.pipe and self.world.rng.random() < 0.6:
            self.carry_out_one()
        return bool(self._replies)

    def receive_reply(self) -> Any:
        self._maybe_break()
        return self._replies.popleft()

    def carry_out_one(self) -> None:
        """The broker takes the oldest request."""
        if not self.pipe:
            return
        batches = self.pipe.popleft()
        if self.is_orphan and self.world.rng.random() < 0.3:
            # The connection's end was noticed first.
            self.pipe.clear()
            return
        ((number, data),) = batches[TARGET]
        if self.world.is_troubled and self.world.rng.random() < 0.1:
            code, offset = Code.kafka_storage_error, -1
        else:
            code, offset = self.append(number, data)
        self._replies.append(answered(number, code, offset))

    def append(self, number: int, data: bytes) -> tuple[Code, int]:
        code, offset = self.world.target[number].append(data)
        return Code(code), offset

    def _maybe_break(self) -> None:
        if self.world.is_troubled and self.world.rng.random() < 0.05:
            self._is_broken = True
        if self._is_broken:
            raise BrokerUnreachable("the connection broke")


class Reader:
    """In place of `RecordRangeReader`."""

    def __init__(
        self,
        world: World,
        topic: str,
        spans: Mapping[int, Span],
        *,
        isolation: Isolation = "read_committed",
        on_note: object = None,
    ) -> None:
        check_isolation(topic, isolation)
        self._world = world
        self._topic = topic
        self._positions = {number: span.start for number, span in spans.items()}
        self._spans = spans
        self._held: set[int] = set()

    @property
    def undone(self) -> list[int]:
        return [n for n, span in self._spans.items() if self._positions[n] < span.stop]

    @property
    def is_done(self) -> bool:
        return not self.undone

    def batches(self) -> Iterator[Fetched]:
        while not self.is_done:
            yield self.read(seconds=0)

    def read(self, *, seconds: float) -> Fetched:
        self._world.step()
        undone = [number for number in self.undone if number not in self._held]
        if not undone:
            return []
        number = self._world.rng.choice(undone)
        position, stop = self._positions[number], self._spans[number].stop
        log = [one for one in self._world.read(self._topic, number) if one.offset >= position]
        count = self._world.rng.randint(1, 7)
        taken = log[:count]
        end = self._world.held(self._topic, number).stop
        self._positions[number] = int(taken[-1].offset) + 1 if len(log) > count else end
        records = [one for one in taken if one.offset < stop]
        return [(number, records)] if records else []

    def hold(self, partition: int) -> None:
        self._held.add(partition)

    def release(self, partition: int) -> None:
        self._held.discard(partition)

    def close(self) -> None:
        pass
