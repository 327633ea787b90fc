"""Batches with given sequences: each in once and in order, whatever happens on the way."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self, cast

import pytest

from client.fake_broker import HANG, LOSE_ANSWER, LOSE_REQUEST, TOPIC, FakeBroker, values_of
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.codes import Code
from respool.client.kafka.errors import BrokerRefused
from respool.client.kafka.partition_queue import TRANSACTIONAL
from respool.client.kafka.sequenced_writer import Acknowledged, SequencedWriter, WriteRefused
from respool.records.build import NewRecord, build_batch

PLACE = (TOPIC, 0)


def batch(sequence: int, *values: bytes, producer_id: int = 7) -> bytes:
    return build_batch(
        [NewRecord(key=None, value=one, timestamp_ms=1) for one in values],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )


@contextmanager
def writing(broker: FakeBroker) -> Iterator[SequencedWriter]:
    with Cluster(broker.address, retry_ms=5_000) as cluster:
        writer = SequencedWriter(cluster)
        yield writer
        writer.close()


def test_batches_are_acknowledged_in_order_with_their_offsets() -> None:
    with FakeBroker() as broker, writing(broker) as writer:
        for number in range(12):
            writer.add(PLACE, batch(2 * number, b"%d" % number, b"x"), token=number)
        assert writer.pending == 12
        found = writer.flush(limit_ms=10_000)
        assert found == [Acknowledged(PLACE, number, 2 * number) for number in range(12)]
        assert writer.pending == 0
        assert writer.run(seconds=0) == []


def test_two_producers_write_to_one_partition() -> None:
    with FakeBroker() as broker, writing(broker) as writer:
        for number in range(3):
            writer.add(PLACE, batch(number, b"a"), token="a")
            writer.add(PLACE, batch(number, b"b", producer_id=8), token="b")
        found = writer.flush(limit_ms=10_000)
        assert sorted(str(one.token) for one in found) == ["a"] * 3 + ["b"] * 3


@pytest.mark.parametrize(
    "last_error", [LOSE_ANSWER, LOSE_REQUEST, Code.not_leader_or_follower, 7, 19]
)
def test_what_had_no_reply_or_a_transient_one_is_in_once(last_error: str | int) -> None:
    with FakeBroker() as broker, writing(broker) as writer:
        broker.script(last_error)
        for number in range(8):
            writer.add(PLACE, batch(number, b"%d" % number))
        writer.flush(limit_ms=10_000)
        assert values_of(broker.partitions[0].records) == list(range(8))


def test_a_broker_that_hangs_with_its_connection_open_counts_as_lost() -> None:
    with (
        FakeBroker() as broker,
        Cluster(broker.address, request_timeout_ms=200, retry_ms=5_000) as cluster,
    ):
        writer = SequencedWriter(cluster)
        broker.script(HANG)
        writer.add(PLACE, batch(0, b"41"))
        assert writer.flush(limit_ms=60_000) == [Acknowledged(PLACE, None, 0)]
        assert values_of(broker.partitions[0].records) == [41]
        assert [one.base_sequence for one in broker.produced] == [0, 0]
        writer.close()


class LeaderlessCluster:
    """A partition without a leader, and a clock that moves when somebody sleeps."""

    request_timeout_ms = 30_000

    def __init__(self) -> None:
        self.now_s = 0.0
        self.refreshes = 0

    def topic(self, name: str) -> Self:
        return self

    def leader_of(self, partition: int) -> None:
        return None

    def refresh(self, name: str) -> None:
        self.refreshes += 1

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_metadata_of_a_partition_without_a_leader_is_requested_with_a_backoff() -> None:
    cluster = LeaderlessCluster()
    writer = SequencedWriter(cast(Cluster, cluster), clock=lambda: cluster.now_s)
    writer.add(PLACE, batch(0, b"a"))
    assert writer.run(seconds=60.0) == []
    assert str(writer.last_error) == f"{TOPIC}/0 has no leader"
    # About one a second after the first few; at intervals of 20 ms it would be 3,000.
    assert 50 <= cluster.refreshes <= 80


def test_a_sequence_that_the_broker_does_not_expect_is_refused_with_its_token() -> None:
    with FakeBroker() as broker, writing(broker) as writer:
        writer.add(PLACE, batch(0, b"41"))
        writer.flush(limit_ms=10_000)
        writer.add(PLACE, batch(1, b"x"), token="first")
        writer.add(PLACE, batch(2, b"x"), token="second")
        broker.script(Code.out_of_order_sequence_number)
        with pytest.raises(WriteRefused, match="OUT_OF_ORDER_SEQUENCE_NUMBER") as told:
            writer.flush(limit_ms=10_000)
        assert told.value.token == "first"
        assert told.value.place == PLACE
        assert values_of(broker.partitions[0].records) == [41]


def test_sequences_that_do_not_follow_are_a_mistake_of_the_caller() -> None:
    with FakeBroker() as broker, writing(broker) as writer:
        writer.add(PLACE, batch(0, b"a"))
        with pytest.raises(AssertionError, match="1 is next"):
            writer.add(PLACE, batch(5, b"b"))


def test_a_broker_that_stays_away_is_told_when_the_time_is_over() -> None:
    with FakeBroker() as broker, Cluster(broker.address, retry_ms=200) as cluster:
        cluster.topic(TOPIC)
        writer = SequencedWriter(cluster, policy=TRANSACTIONAL)
        broker.script(*[19] * 100)
        writer.add(PLACE, batch(0, b"a"))
        assert writer.run(seconds=0.05) == []
        assert writer.last_error is not None
        with pytest.raises(BrokerRefused, match="NOT_ENOUGH_REPLICAS"):
            writer.flush(limit_ms=100)
        writer.close()
