"""Sending: every field arrives, nothing is lost in silence, and bad input says what would be right."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import KafkaException

import respool
from respool.client.messages.errors import (
    BadArgument,
    BrokerUnreachable,
    ClientClosed,
    DeliveryFailed,
    NoTransaction,
    SettingContradicts,
    UnknownTopic,
)
from respool.client.messages.message import Data
from support.broker_process import BrokerProcess
from support.confluent_client import ConfluentClient
from support.topics import Topics

pytestmark = [pytest.mark.clients, pytest.mark.xdist_group("messages-producer")]
NOBODY = "127.0.0.1:1"


@pytest.fixture
def topic(topics: Topics) -> str:
    return topics.new("sent")


def read(broker: BrokerProcess, topic: str) -> list[Any]:
    return ConfluentClient().read(broker.address, [(topic, 0)])[topic, 0]


def test_every_field_of_a_message_arrives(broker: BrokerProcess, topic: str) -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    headers: dict[str, Data] = {"a": b"1", "b": "två"}
    with respool.Producer(broker.address) as producer:
        producer.send(topic, b"value", b"key", timestamp=when, headers=headers)
        producer.send(topic, None, b"", headers=[("a", b"1"), ("a", None)])
        producer.send(topic, "text", timestamp=1_000)
        producer.send(topic, bytearray(b"x"), memoryview(b"y"))
    first, second, third, fourth = read(broker, topic)
    assert (first.value, first.key) == (b"value", b"key")
    assert first.timestamp_ms == round(when.timestamp() * 1000)
    assert first.headers == (("a", b"1"), ("b", "två".encode()))
    assert (second.value, second.key) == (None, b"")
    assert second.headers == (("a", b"1"), ("a", None))
    assert (third.value, third.key, third.timestamp_ms) == (b"text", None, 1_000)
    assert (fourth.value, fourth.key) == (b"x", b"y")


@pytest.mark.parametrize("pace", ["latency", "balanced", "throughput"])
@pytest.mark.parametrize("delivery", ["at-most-once", "at-least-once"])
def test_more_than_the_buffer_holds_arrives_once_and_in_order(
    broker: BrokerProcess, topic: str, pace: Any, delivery: Any
) -> None:
    small = {"queue.buffering.max.messages": 100}
    with respool.Producer(
        broker.address, delivery=delivery, pace=pace, compression="lz4", settings=small
    ) as producer:
        for number in range(600):
            producer.send(topic, b"%d" % number)
    assert [one.value for one in read(broker, topic)] == [b"%d" % n for n in range(600)]


def test_a_receipt_says_where_it_lies_and_acks_0_cannot(broker: BrokerProcess, topic: str) -> None:
    with respool.Producer(broker.address) as producer:
        receipts = [producer.send_and_wait(topic, b"") for _ in range(2)]
    assert receipts == [respool.Receipt(topic=topic, partition=0, offset=n) for n in range(2)]
    with respool.Producer(broker.address, delivery="at-most-once") as producer:
        assert producer.send_and_wait(topic, b"").offset is None


# -- nothing is lost in silence

_TOO_MUCH = b"x" * 2_000


@pytest.mark.parametrize("way", ["send", "flush", "close"])
def test_what_was_not_delivered_raises_once_at_whatever_comes_next(
    broker: BrokerProcess, topics: Topics, way: str
) -> None:
    topic = topics.new("small", max_message_bytes=1_000)
    producer = respool.Producer(broker.address, pace="latency")
    producer.send(topic, _TOO_MUCH, b"k")
    acts: dict[str, Callable[[], None]] = {
        "send": lambda: _send_when_librdkafka_knows(producer, topic),
        "flush": producer.flush,
        "close": producer.close,
    }
    with pytest.raises(
        DeliveryFailed, match=rf"1 message not confirmed: {topic}/0 key b'k'"
    ) as told:
        acts[way]()
    assert told.value.count == 1
    assert isinstance(told.value.__cause__, KafkaException)
    producer.close()


def _send_when_librdkafka_knows(producer: respool.Producer, topic: str) -> None:
    producer.kafka.flush(10)
    producer.send(topic, b"small")


def test_who_waits_for_a_message_is_told_and_nobody_else(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("small", max_message_bytes=1_000)
    with respool.Producer(broker.address) as producer:
        with pytest.raises(DeliveryFailed, match="not confirmed"):
            producer.send_and_wait(topic, _TOO_MUCH)
        assert producer.send_and_wait(topic, b"small").offset == 0


def test_a_message_larger_than_the_client_sends_is_refused_at_once(
    broker: BrokerProcess, topic: str
) -> None:
    with (
        respool.Producer(broker.address, settings={"message.max.bytes": 1_000}) as producer,
        pytest.raises(DeliveryFailed, match="It was not sent"),
    ):
        producer.send(topic, _TOO_MUCH)


def test_an_error_in_the_block_is_seen_and_not_what_closing_found(
    broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.new("small", max_message_bytes=1_000)

    def send_and_fail() -> None:
        with respool.Producer(broker.address) as producer:
            producer.send(topic, _TOO_MUCH)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as seen:
        send_and_fail()
    assert "1 message not confirmed" in "".join(seen.value.__notes__)


def test_what_is_not_confirmed_in_time_is_counted(tmp_path_factory: pytest.TempPathFactory) -> None:
    with BrokerProcess(tmp_path_factory.mktemp("gone") / "data") as broker:
        topic = Topics(broker.address).new("gone")
        # Long enough for a busy machine: none of it may be given up before `flush` has looked.
        producer = respool.Producer(broker.address, settings={"delivery.timeout.ms": 5_000})
        producer.send_and_wait(topic, b"")
        broker.kill()
        producer.send(topic, b"1")
        producer.send(topic, b"2")
        with pytest.raises(DeliveryFailed, match=r"2 messages not confirmed.*still being sent"):
            producer.flush(0.0)
        with pytest.raises(DeliveryFailed, match=r"2 messages not confirmed: .*TIMED_OUT"):
            producer.close()
        broker.start()


# -- bad input


def test_a_topic_that_is_not_there_is_said_at_once_with_one_that_is(
    broker: BrokerProcess, topic: str
) -> None:
    with respool.Producer(broker.address) as producer:
        with pytest.raises(UnknownTopic, match=f"'{topic}x'.*did you mean.*{topic}"):
            producer.send(topic + "x", b"")
        for no_name in ("", None, 3):
            with pytest.raises(BadArgument, match="a topic is a name"):
                producer.send(no_name, b"")  # type: ignore[arg-type]
        with pytest.raises(BadArgument, match=r"no topic can have this name: .*'rides/new' has"):
            producer.send("rides/new", b"")
    assert topic + "x" not in Topics(broker.address).admin.list_topics(timeout=10).topics


def test_nobody_at_the_address_is_said() -> None:
    with (
        respool.Producer(NOBODY) as producer,
        pytest.raises(BrokerUnreachable, match=f"no broker at {NOBODY}, from bootstrap "),
    ):
        producer.counts.learn("rides", seconds=0.3)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"value": 3}, "value is bytes or text, not int"),
        ({"value": {"a": 1}}, "serialise it first"),
        ({"key": 1.5}, "key is bytes or text, not float"),
        ({"headers": {"a": 3}}, "header 'a' is bytes or text"),
        ({"headers": ["a"]}, "pairs of a name and a value"),
        ({"timestamp": datetime(2026, 1, 1)}, "no time zone"),  # noqa: DTZ001 - that is the mistake
        ({"timestamp": 0}, "after 1970"),
        ({"timestamp": "now"}, "after 1970"),
    ],
)
def test_a_message_that_cannot_be_is_not_sent(
    broker: BrokerProcess, topic: str, arguments: dict[str, Any], why: str
) -> None:
    with respool.Producer(broker.address) as producer, pytest.raises(BadArgument, match=why):
        producer.send(topic, **arguments)
    assert read(broker, topic) == []


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"delivery": "twice"}, "delivery is one of"),
        ({"pace": "fast"}, "pace is one of"),
        ({"partitioner": "sticky"}, "partitioner is"),
        ({"delivery": "exactly-once"}, "needs transactional_id="),
        ({"transactional_id": "a"}, "is for delivery='exactly-once'"),
        ({"compression": "rar"}, "librdkafka refuses a setting.*compression"),
        ({"settings": {"lingers.ms": 3}}, "No such configuration property"),
    ],
)
def test_a_wrong_argument_says_what_would_be_right(arguments: dict[str, Any], why: str) -> None:
    with pytest.raises(BadArgument, match=why):
        respool.Producer(NOBODY, **arguments)


def test_a_setting_against_the_guarantee_is_refused() -> None:
    with pytest.raises(SettingContradicts, match="acks=0"):
        respool.Producer(NOBODY, settings={"acks": 0})


def test_a_closed_producer_stays_closed_and_may_be_closed_twice(
    broker: BrokerProcess, topic: str
) -> None:
    producer = respool.Producer(broker.address)
    producer.send(topic, b"")
    producer.close()
    producer.close()
    for act in (lambda: producer.send(topic, b""), producer.flush, producer.transaction):
        with pytest.raises(ClientClosed, match="was closed"):
            act()
    assert len(read(broker, topic)) == 1


def test_transactions_are_for_exactly_once() -> None:
    with respool.Producer(NOBODY) as producer, pytest.raises(NoTransaction, match="at-least-once"):
        producer.transaction()
