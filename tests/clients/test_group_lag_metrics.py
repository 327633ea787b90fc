"""Lag in messages and seconds, beside what a client computes of the records themselves."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from respool.testing import Broker
from support.exposition import Series, scrape, value

INTERVAL_S = 5


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"metrics_listen": "127.0.0.1:0", "metrics_lag_interval_ms": INTERVAL_S * 1000}
    with Broker(settings=settings, topics={"rides": 2}) as running:
        yield running


class World:
    """A producer that says the times, and a group that is wherever it is put."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._producer = Producer({"bootstrap.servers": broker.bootstrap})
        self._group = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "billing",
                "enable.auto.commit": False,
            }
        )
        # Reads records without a group that commits.
        self._witness = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "witness",
                "enable.auto.commit": False,
            }
        )

    def close(self) -> None:
        self._group.close()
        self._witness.close()

    def produce(self, partition: int, count: int, *, apart_s: int) -> None:
        """One record a batch, each made `apart_s` after the one before; the broker's time goes on with them."""
        for _ in range(count):
            self._producer.produce(
                "rides", b"x", partition=partition, timestamp=self.broker.clock.now_ms
            )
            self._producer.flush()
            self.broker.clock.advance(seconds=apart_s)

    def commit(self, partition: int, offset: int) -> None:
        place = TopicPartition("rides", partition, offset)
        self._group.commit(offsets=[place], asynchronous=False)

    def scrape(self, *, after_s: int = INTERVAL_S) -> Series:
        self.broker.clock.advance(seconds=after_s)
        assert self.broker.metrics_url is not None
        return scrape(self.broker.metrics_url)

    def compare(self, partition: int) -> tuple[float, float]:
        """What the broker tells: messages and seconds; both as a client computes them."""
        place = TopicPartition("rides", partition)
        (committed,) = self._group.committed([place], timeout=60)
        labels = {"group": "billing", "topic": "rides", "partition": str(partition)}
        told = None
        # A coordinator that has just started loads its log first.
        while told != committed.offset:
            self.broker.clock.advance(seconds=INTERVAL_S)
            # The broker's clock goes on during the scrape: the age lies between those before and after it.
            before_ms = self.broker.clock.now_ms
            series = self.scrape(after_s=0)
            after_ms = self.broker.clock.now_ms
            told = value(series, "respool_group_committed_offset", **labels)
        messages = value(series, "respool_group_lag_messages", **labels)
        seconds = value(series, "respool_group_lag_seconds", **labels)
        self._wait_for_leader(partition)
        low, high = self._witness.get_watermark_offsets(place, timeout=30)
        begin = max(committed.offset, low)
        assert messages is not None
        assert messages == high - begin
        assert seconds is not None
        if begin == high:
            assert seconds == 0
        else:
            self._witness.assign([TopicPartition("rides", partition, begin)])
            (first,) = self._witness.consume(1, timeout=30)
            assert first.offset() == begin
            made_ms = first.timestamp()[1]
            assert before_ms - made_ms <= seconds * 1000 <= after_ms - made_ms
        return messages, seconds

    def _wait_for_leader(self, partition: int) -> None:
        """librdkafka fails a watermark query if the metadata it cached, of a starting broker, has no leader."""
        topic = None
        while topic is None or topic.partitions[partition].leader < 0:
            topic = self._witness.list_topics("rides", timeout=30).topics["rides"]


@pytest.fixture
def world(broker: Broker) -> Iterator[World]:
    made = World(broker)
    yield made
    made.close()


def test_lag_of_a_group_that_stops_resumes_and_rewinds_is_what_the_records_say(
    world: World,
) -> None:
    world.produce(0, 10, apart_s=60)
    world.commit(0, 10)
    assert world.compare(0) == (0, 0)

    # It stops, and the world goes on.
    world.produce(0, 5, apart_s=60)
    messages, seconds = world.compare(0)
    assert messages == 5
    assert seconds >= 5 * 60
    world.broker.clock.advance(hours=1)
    assert world.compare(0)[1] > 3600 + 5 * 60

    # It resumes, and catches up in two steps.
    world.commit(0, 13)
    messages, seconds = world.compare(0)
    assert messages == 2
    assert seconds >= 3600 + 2 * 60
    world.commit(0, 15)
    assert world.compare(0) == (0, 0)

    # It rewinds to records that were written long before.
    world.commit(0, 2)
    messages, seconds = world.compare(0)
    assert messages == 13
    assert seconds >= 3600 + 13 * 60
    # The other partition has no position, and so no lag.
    labels = {"group": "billing", "topic": "rides", "partition": "1"}
    assert value(world.scrape(), "respool_group_lag_seconds", **labels) is None


def test_lag_is_the_same_after_a_restart(world: World) -> None:
    world.produce(1, 4, apart_s=60)
    world.commit(1, 1)
    before = world.compare(1)
    world.broker.stop()
    world.broker.start()
    after = world.compare(1)
    assert after[0] == before[0] == 3
    assert after[1] >= before[1] + INTERVAL_S


def test_records_that_retention_took_are_no_lag(world: World) -> None:
    topic = world.broker.create_topic("short", retention_ms=3_600_000, segment_ms=60_000)
    producer = Producer({"bootstrap.servers": world.broker.bootstrap})
    producer.produce(topic, b"old", timestamp=world.broker.clock.now_ms)
    producer.flush()
    world._group.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    world.broker.clock.advance(hours=2)
    labels = {"group": "billing", "topic": topic, "partition": "0"}
    producer.produce(topic, b"new", timestamp=world.broker.clock.now_ms)
    producer.flush()
    world.broker.clock.advance(minutes=2)
    series = world.scrape()
    assert value(series, "respool_partition_log_start_offset", topic=topic, partition="0") == 1
    assert value(series, "respool_group_lag_messages", **labels) == 1
    seconds = value(series, "respool_group_lag_seconds", **labels)
    assert seconds is not None
    # The old one is two hours old.
    assert 120 <= seconds < 7200


def test_a_record_from_the_future_makes_no_lag_in_seconds(world: World) -> None:
    producer = Producer({"bootstrap.servers": world.broker.bootstrap})
    future = world.broker.clock.now_ms + 3_000_000
    producer.produce("rides", b"x", partition=0, timestamp=future)
    producer.flush()
    world.commit(0, 0)
    labels = {"group": "billing", "topic": "rides", "partition": "0"}
    series = world.scrape()
    assert value(series, "respool_group_lag_messages", **labels) == 1
    assert value(series, "respool_group_lag_seconds", **labels) == 0


def test_topics_tell_their_traffic_size_and_oldest_record(world: World) -> None:
    world.produce(0, 3, apart_s=60)
    world.produce(1, 2, apart_s=0)
    world._witness.assign([TopicPartition("rides", 0, 1)])
    assert len(world._witness.consume(2, timeout=30)) == 2
    series = world.scrape()
    assert value(series, "respool_topic_messages_in_total", topic="rides") == 5
    assert value(series, "respool_topic_messages_out_total", topic="rides") == 2
    bytes_in = value(series, "respool_topic_bytes_in_total", topic="rides")
    assert bytes_in == value(series, "respool_topic_size_bytes", topic="rides")
    bytes_out = value(series, "respool_topic_bytes_out_total", topic="rides")
    assert bytes_in is not None
    assert bytes_out == bytes_in * 2 / 5
    age = value(series, "respool_topic_oldest_record_age_seconds", topic="rides")
    assert age is not None
    assert age >= 3 * 60 + INTERVAL_S
    assert value(series, "respool_partition_high_watermark", topic="rides", partition="0") == 3
