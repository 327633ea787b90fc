"""A topic, and a group of its own that retries; what is in its retry topic, its dead letters and its commits."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import count
from typing import Any

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

import respool
from respool.client.messages.retry import retry_topics
from respool.model.retry.failure_headers import FailureRecord
from respool.model.retry.group_topics import dead_letter_topic, retry_topic
from respool.records.build import NewRecord, build_batch
from respool.testing import Broker
from support.confluent_client import ConfluentClient
from support.message import Received
from support.raw_client import RawClient
from support.topics import Topics
from support.waiting import wait_until

# Long enough to be a delay, short enough to wait for.
SOON = timedelta(milliseconds=1)
_numbers = count()


class Boom(Exception):
    """What a handler raises."""


class OddName(str):
    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        return b"\xff\xfe"


class RetryStory:
    def __init__(self, broker: Broker, topics: Topics, *, partitions: int = 1) -> None:
        self.broker = broker
        self.topics = topics
        self.group = f"billing-{next(_numbers)}"
        self.topic = topics.new("rides", partitions=partitions)
        self.partitions = partitions

    @property
    def retry_topic(self) -> str:
        return retry_topic(self.group)

    @property
    def letters_topic(self) -> str:
        return dead_letter_topic(self.group)

    def send(self, *values: bytes | None, **fields: Any) -> None:
        with respool.Producer(self.broker.bootstrap) as producer:
            for value in values:
                producer.send(self.topic, value, **fields)

    def arguments(self, **given: Any) -> dict[str, Any]:
        options = {"delays": (SOON, SOON)} | given.pop("options", {})
        return {
            "group": self.group,
            "bootstrap": self.broker.bootstrap,
            "commit_every_ms": 0,
            "retry": respool.Retry(**options),
            **given,
        }

    def consumer(self, **given: Any) -> respool.Consumer:
        return respool.Consumer(self.topic, **self.arguments(**given))

    def handle(
        self,
        consumer: respool.Consumer,
        act: Callable[[respool.Message], object],
        *,
        until: Callable[[], object],
        what: str = "the messages were handled",
    ) -> None:
        """Handle what comes until the condition holds, and what is not acknowledged by then is."""

        def one() -> object:
            message = consumer.poll(0.2)
            if message is not None:
                with consumer.handling(message):
                    act(message)
            return until()

        wait_until(one, what)

    def fail_once(self, **given: Any) -> None:
        """A consumer handles one message, in vain, and ends."""
        failed: list[respool.Message] = []

        def act(message: respool.Message) -> None:
            failed.append(message)
            fail(message)

        with self.consumer(**given) as consumer:
            self.handle(consumer, act, until=lambda: failed)

    def read(self, topic: str) -> list[Received]:
        places = [(topic, number) for number in range(self.partitions)]
        found = ConfluentClient().read(self.broker.bootstrap, places)
        return [one for place in places for one in found[place]]

    def letters(self) -> list[Received]:
        return self.read(self.letters_topic)

    def committed(self, topic: str | None = None) -> list[int]:
        asker = KafkaConsumer(
            {"bootstrap.servers": self.broker.bootstrap, "group.id": self.group, "log_level": 0}
        )
        try:
            places = [TopicPartition(topic or self.topic, n) for n in range(self.partitions)]
            return [one.offset for one in asker.committed(places, timeout=10)]
        finally:
            asker.close()

    @property
    def delay_configs(self) -> dict[str, Any]:
        """Of a retry topic that a test creates."""
        configs = retry_topics.RETRY_CONFIGS
        return {name.replace(".", "_"): value for name, value in configs.items()}

    def delete_records(self) -> None:
        end = TopicPartition(self.topic, 0, len(self.read(self.topic)))
        self.topics.admin.delete_records([end])[end].result(60)

    def alter(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self.topics.admin.incremental_alter_configs([resource])[resource].result(60)

    def send_with_odd_header(self, value: bytes) -> None:
        """With a header whose name is no text, as no client sends it."""
        headers = ((OddName("xx"), b"v"),)
        record = NewRecord(key=None, value=value, timestamp_ms=0, headers=headers)
        with RawClient(self.broker.bootstrap) as client:
            client.produce(self.topic, build_batch([record]))

    def create_topics(self) -> None:
        """As somebody else would, so that no member of the group has been there."""
        self.topics.create(self.retry_topic, **self.delay_configs)
        self.topics.create(self.letters_topic)

    def put_into_retry_topic(self, value: bytes, **failure: Any) -> None:
        """As a dead letter that is put back."""
        record = FailureRecord(
            **{
                "topic": self.topic,
                "partition": 0,
                "offset": 0,
                "group": self.group,
                "deliveries": 0,
                **failure,
            }
        )
        with respool.Producer(self.broker.bootstrap) as producer:
            producer.send(self.retry_topic, value, headers=record.to_headers())

    @contextmanager
    def retries_unanswered(self) -> Iterator[None]:
        """Nothing that is sent to the retry topic or the dead letters is acknowledged."""
        with ExitStack() as stack:
            for topic in (self.retry_topic, self.letters_topic):
                stack.enter_context(self.broker.faults.delay_replies("Produce", topic=topic))
            yield

    def stop_the_clock_of(self, consumer: respool.Consumer, now_s: list[float]) -> None:
        retries = consumer._reader.retries
        assert retries is not None
        retries._now = lambda: now_s[0]


def header(message: Received, name: str) -> bytes | None:
    found = [value for key, value in message.headers if key == name]
    assert len(found) <= 1, f"{name} stands {len(found)} times"
    return found[0] if found else None


def fail(message: respool.Message) -> None:
    raise Boom(f"not {message.value!r}")
