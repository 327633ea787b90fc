"""A flood of unique messages from several producers, and the account of what was acknowledged.

Every value names its producer, its partition and its number there: `0:2:17 xxxx…`. So whoever reads a partition back
can say of each value whether it was sent, by whom, and in which order.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, Message

from support.confluent_client import producer
from support.message import Place, Received
from support.waiting import wait_until

PADDING = b"x" * 80
FLUSH_S = 60.0


@dataclass(slots=True)
class Account:
    """What one producer sent and what was acknowledged, per partition, as the numbers in the values."""

    sent: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    acknowledged: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    errors: list[KafkaError] = field(default_factory=list)

    def count_acknowledged(self) -> int:
        return sum(map(len, self.acknowledged.values()))


class FloodProducer:
    """One librdkafka producer that sends as fast as it may, until told to stop."""

    def __init__(
        self,
        name: int,
        address: str,
        topic: str,
        partitions: int,
        *,
        rest_s: float = 0.005,
        **settings: Any,
    ):
        """`rest_s`: how long it rests after each fifty messages."""
        self._rest_s = rest_s
        self.account = Account()
        self._name = name
        self._topic = topic
        self._partitions = partitions
        self._stopping = threading.Event()
        self._producer = producer(
            address,
            **{
                "enable_idempotence": True,
                "message_timeout_ms": 0,
                "reconnect_backoff_ms": 10,
                "reconnect_backoff_max_ms": 50,
                "retry_backoff_ms": 10,
                "linger_ms": 1,
                "batch_num_messages": 50,
                "queue_buffering_max_messages": 1000,
                **settings,
            },
        )
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, seconds: float = FLUSH_S) -> int:
        """Send no more, wait for what is under way; return how many messages got no answer."""
        self._stopping.set()
        self._thread.join()
        return int(self._producer.flush(seconds))

    def _run(self) -> None:
        turn = 0
        while not self._stopping.is_set():
            partition = turn % self._partitions
            number = self.account.sent[partition]
            try:
                self._producer.produce(
                    self._topic,
                    b"%d:%d:%d %s" % (self._name, partition, number, PADDING),
                    partition=partition,
                    on_delivery=self._on_delivery,
                )
            except BufferError:
                # The broker is behind, or away: this is what bounds the flood.
                self._producer.poll(0.005)
                continue
            self.account.sent[partition] += 1
            turn += 1
            # A short rest now and then: it is the moments of the kills that count, not the bytes.
            self._rest() if turn % 50 == 0 else self._producer.poll(0)

    def _rest(self) -> None:
        """`poll` returns at the first answer that comes, and would not let it rest."""
        end = time.monotonic() + self._rest_s
        while (left := end - time.monotonic()) > 0:
            self._producer.poll(left)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.account.errors.append(error)
            return
        value = message.value()
        assert value is not None
        _, partition, number = parse(value)
        self.account.acknowledged[partition].append(number)


class Flood:
    """Several producers at once. Use it as a context: leaving it waits for the last answers."""

    def __init__(
        self, address: str, topic: str, *, partitions: int, producers: Iterable[Mapping[str, Any]]
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        self.producers = [
            FloodProducer(name, address, topic, partitions, **settings)
            for name, settings in enumerate(producers)
        ]

    def __enter__(self) -> Self:
        for one in self.producers:
            one.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        seconds = FLUSH_S if error is None else 0
        unanswered = [one.stop(seconds=seconds) for one in self.producers]
        if error is None:
            assert not any(unanswered), f"{unanswered} messages got no answer"

    @property
    def places(self) -> list[Place]:
        return [(self.topic, number) for number in range(self.partitions)]

    def wait_for_acknowledgements(self, count: int) -> None:
        """Return when every producer has got that many more than it had."""
        goals = [one.account.count_acknowledged() + count for one in self.producers]
        for one, goal in zip(self.producers, goals, strict=True):
            wait_until(
                lambda one=one, goal=goal: one.account.count_acknowledged() >= goal,  # type: ignore[misc]
                f"producer {one._name} gets {count} more acknowledgements",
                seconds=60,
            )

    def check(self, received: Mapping[Place, list[Received]], *, exactly_once: bool = True) -> None:
        """All that was acknowledged is there, once, in each producer's order, and nothing else."""
        for place, messages in received.items():
            offsets = [one.offset for one in messages]
            assert offsets == list(range(len(offsets))), f"{place} has gaps in its offsets"
            found: dict[int, list[int]] = defaultdict(list)
            for message in messages:
                assert message.value is not None
                name, partition, number = parse(message.value)
                assert partition == place[1], f"{message.value[:20]!r} is in {place}"
                found[name].append(number)
            for name, one in enumerate(self.producers):
                self._check_one(place, one.account, found.pop(name, []), exactly_once)
            assert not found, f"values of unknown producers {sorted(found)} in {place}"

    def _check_one(
        self, place: Place, account: Account, found: list[int], exactly_once: bool
    ) -> None:
        acknowledged = account.acknowledged[place[1]]
        lost = sorted(set(acknowledged) - set(found))
        assert not lost, f"{place}: {len(lost)} acknowledged messages are lost, first {lost[:5]}"
        unknown = sorted(number for number in found if number >= account.sent[place[1]])
        assert not unknown, f"{place}: {unknown[:5]} were never sent"
        if exactly_once:
            assert found == sorted(set(found)), f"{place}: duplicates, or not in order"


def parse(value: bytes) -> tuple[int, int, int]:
    """Producer, partition, number; any other form is damage."""
    names, _, padding = value.partition(b" ")
    assert padding == PADDING, f"damaged value {value[:40]!r}"
    name, partition, number = map(int, names.split(b":"))
    return name, partition, number
