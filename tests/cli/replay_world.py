"""A source and a target topic in memory, with a network that delays, drops and breaks; for tests of replays.

The target judges batches by the broker's own rules (`log/producers/producer_states.py`). A connection holds requests
that were sent and not carried out yet; when its client is killed they stay, and may still be carried out much later, or
never. What is appended becomes readable a little later, as it does while a disk syncs.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from respool.cli.consume_range import Cursor, all_done
from respool.cli.errors import BrokerUnreachable
from respool.cli.interrupts import CtrlC
from respool.cli.isolation import Isolation
from respool.cli.kafka import OffsetRange, TopicInfo
from respool.cli.message_format import ReadMessage
from respool.cli.replay_position import Origin, origin_of
from respool.log.producers.producer_states import ProducerStates
from respool.model.errors import OutOfOrderSequence
from respool.model.ids import Offset
from respool.records.batch import RecordBatch, read_header
from respool.records.record import read_records

SOURCE, TARGET = "rides", "copy"
HOUR_MS = 3_600_000
BATCH_LIMIT = 1 << 20


class Killed(BaseException):
    """The process that ran the replay is gone. Nothing catches it."""


class TargetPartition:
    def __init__(self) -> None:
        self.messages: list[ReadMessage] = []
        self.readable = 0
        self._producers = ProducerStates(expiration_ms=24 * HOUR_MS)

    def append(self, partition: int, data: bytes) -> tuple[int, int]:
        """As a broker does it: (error code, base offset)."""
        batch = RecordBatch(read_header(data), data)
        try:
            duplicate = self._producers.check(batch.header)
        except OutOfOrderSequence as error:
            return error.code, -1
        if duplicate is not None:
            return 0, duplicate.base_offset
        base_offset = len(self.messages)
        self._producers.update(batch.header, base_offset=Offset(base_offset))
        for record in read_records(batch, limit=BATCH_LIMIT):
            self.messages.append(
                ReadMessage(
                    topic=TARGET,
                    partition=partition,
                    offset=len(self.messages),
                    timestamp_ms=record.timestamp,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                )
            )
        return 0, base_offset


class World:
    """Both topics, and chance."""

    def __init__(self, source: dict[int, list[ReadMessage]], *, targets: int, rng: Random) -> None:
        self.source = source
        self.target = {number: TargetPartition() for number in range(targets)}
        self.rng = rng
        self.connections: list[Connection] = []
        # The next run is killed after so many of its steps; None: never.
        self.steps_left: int | None = None
        # Whether requests are refused for a while and connections break.
        self.is_troubled = False

    # What `Cluster` offers.

    broker = "world"

    def topic(self, name: str) -> TopicInfo:
        numbers: Iterable[int] = self.source if name == SOURCE else self.target
        return TopicInfo(name=name, leaders=dict.fromkeys(numbers, 1))

    def addresses(self) -> dict[int, tuple[str, int]]:
        return {1: ("world", 9092)}

    def ranges(
        self, topics: Iterable[TopicInfo], **_isolation: object
    ) -> dict[tuple[str, int], OffsetRange]:
        found = {}
        for topic in topics:
            for number in topic.leaders:
                if topic.name == SOURCE:
                    log = self.source[number]
                    end = log[-1].offset + 1 if log else 0
                else:
                    end = self.target[number].readable
                found[topic.name, number] = OffsetRange(start=0, end=end)
        return found

    # Chance.

    def step(self) -> None:
        """Something happens elsewhere, and this process may be killed."""
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise Killed
        for partition in self.target.values():
            behind = len(partition.messages) - partition.readable
            if behind and self.rng.random() < 0.5:
                partition.readable += self.rng.randint(1, behind)
        for connection in self.connections:
            if connection.is_orphan and self.rng.random() < 0.2:
                connection.carry_out_one()

    def end_life(self) -> None:
        """The process is killed: what it has sent is on its way still."""
        for connection in self.connections:
            connection.is_orphan = True

    def settle(self) -> None:
        """Everything under way arrives."""
        for connection in self.connections:
            while connection.is_orphan and connection.pipe:
                connection.carry_out_one()
        for partition in self.target.values():
            partition.readable = len(partition.messages)

    def read(self, topic: str, number: int) -> Sequence[ReadMessage]:
        if topic == SOURCE:
            return self.source[number]
        return self.target[number].messages[: self.target[number].readable]

    def origins(self, target: int, replay_id: str) -> list[Origin]:
        found = [origin_of(message, replay_id) for message in self.target[target].messages]
        return [origin for origin in found if origin is not None]


class Connection:
    """Stands for `BrokerSocket`."""

    world: World

    def __init__(self, host: str, port: int) -> None:
        self.world.step()
        if self.world.is_troubled and self.world.rng.random() < 0.3:
            raise BrokerUnreachable("nobody is there")
        self.pipe: deque[Any] = deque()
        self._replies: deque[Any] = deque()
        self.is_orphan = False
        self._is_broken = False
        self.world.connections.append(self)

    def send(self, *questions: Any) -> None:
        self.world.step()
        self._maybe_break()
        self.pipe.extend(questions)

    def can_receive(self, seconds: float) -> bool:
        self.world.step()
        while self.pipe and self.world.rng.random() < 0.6:
            self.carry_out_one()
        return bool(self._replies)

    def receive(self) -> Any:
        self._maybe_break()
        return self._replies.popleft()

    def close(self) -> None:
        self.is_orphan = True

    def carry_out_one(self) -> None:
        """The broker takes the oldest request."""
        if not self.pipe:
            return
        question = self.pipe.popleft()
        if self.is_orphan and self.world.rng.random() < 0.3:
            # The connection's end was noticed first.
            self.pipe.clear()
            return
        (topic,) = question.fields["topic_data"]
        (partition,) = topic["partition_data"]
        if self.world.is_troubled and self.world.rng.random() < 0.1:
            code, offset = 56, -1
        else:
            number = partition["index"]
            code, offset = self.world.target[number].append(number, partition["records"])
        answer = SimpleNamespace(error_code=code, base_offset=offset)
        topic_answer = SimpleNamespace(partition_responses=(answer,))
        self._replies.append(SimpleNamespace(responses=(topic_answer,)))

    def _maybe_break(self) -> None:
        if self.world.is_troubled and self.world.rng.random() < 0.05:
            self._is_broken = True
        if self._is_broken:
            raise BrokerUnreachable("the connection broke")


class Reader:
    """Stands for `TopicReader`."""

    def __init__(
        self,
        world: World,
        topic: str,
        cursors: dict[int, Cursor],
        *,
        follow: bool,
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> None:
        # Somebody else's open transaction may hide copies from whoever looks at the target for less than everything.
        assert isolation is not (
            Isolation.READ_UNCOMMITTED if topic == SOURCE else Isolation.READ_COMMITTED
        )
        assert not follow
        self._world = world
        self._topic = topic
        self._cursors = cursors
        self._held: set[int] = set()

    def batches(self, messages_max: int | None, ctrl_c: CtrlC) -> Iterator[list[ReadMessage]]:
        while not all_done(self._cursors):
            yield self.read(100)

    def read(self, messages_max: int, *, seconds: float = 0.0) -> list[ReadMessage]:
        self._world.step()
        undone = [
            number
            for number, cursor in self._cursors.items()
            if not cursor.is_done and number not in self._held
        ]
        if not undone:
            return []
        number = self._world.rng.choice(undone)
        cursor = self._cursors[number]
        log = [
            each for each in self._world.read(self._topic, number) if each.offset >= cursor.position
        ]
        count = self._world.rng.randint(1, messages_max)
        shown = [each for each in log[:count] if cursor.on_message(each.offset, each.timestamp_ms)]
        if len(log) <= count:
            ranges = self._world.ranges([self._world.topic(self._topic)])
            cursor.on_end(ranges[self._topic, number].end)
        return shown

    def hold(self, partition: int) -> None:
        self._held.add(partition)

    def go_on(self, partition: int) -> None:
        self._held.discard(partition)

    def close(self) -> None:
        pass
