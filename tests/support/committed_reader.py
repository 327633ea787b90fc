"""All that is committed in topics, partition by partition, read on as a test goes."""

from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from support.waiting import wait_until


class CommittedReader:
    """Use it as a context. Messages of aborted and of open transactions are not in `messages`."""

    def __init__(self, bootstrap: str, topics: Sequence[str], *, partitions: int) -> None:
        # By topic and partition, in the order of the log.
        self.messages: dict[tuple[str, int], list[Message]] = defaultdict(list)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "only-to-read",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.assign(
            [
                TopicPartition(topic, number, OFFSET_BEGINNING)
                for topic in topics
                for number in range(partitions)
            ]
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._consumer.close()

    def read_until(self, topic: str, count: int, *, seconds: float) -> None:
        """Until there are so many in a topic, or more."""
        wait_until(
            lambda: self._read_on().count(topic) >= count,
            f"{count} messages in {topic}",
            seconds=seconds,
            every_s=0,
        )

    def count(self, topic: str) -> int:
        return sum(len(found) for (name, _), found in self.messages.items() if name == topic)

    def values(self, topic: str, partition: int) -> list[bytes]:
        return [bytes(one.value() or b"") for one in self.messages[topic, partition]]

    def _read_on(self) -> Self:
        for one in self._consumer.consume(1_000, timeout=0.05):
            if one.error() is None:
                self.messages[str(one.topic()), int(one.partition() or 0)].append(one)
        return self
