"""Transactions seen from outside their producer."""

from collections.abc import Iterator
from uuid import uuid4

import pyarrow as pa
import pytest

import respool
from respool.client.arrow.writing.prepared import PreparedTransaction
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.partition_queue import ProducerIdentity
from respool.client.kafka.producer_ids import fence_producer, new_producer_id
from respool.client.kafka.transactions import (
    ONGOING,
    TransactionOutcome,
    describe_transactions,
    list_transactions,
    open_transactions,
    outcome_by,
    write_abort_marker,
)
from support.broker_process import BrokerProcess
from support.topics import Topics
from support.waiting import wait_until

OURS = PreparedTransaction(transactional_id="job-7", producer_id=40, epoch=3)


@pytest.fixture(scope="module")
def cluster(broker: BrokerProcess) -> Iterator[Cluster]:
    with Cluster(broker.address, retry_ms=5_000) as made:
        yield made


@pytest.mark.parametrize(
    ("epoch", "state", "found"),
    [
        (3, "Ongoing", TransactionOutcome.OPEN),
        (3, "Empty", TransactionOutcome.OPEN),
        (3, "CompleteCommit", TransactionOutcome.COMMITTED),
        (4, "PrepareCommit", TransactionOutcome.COMMITTED),
        (4, "CompleteCommit", TransactionOutcome.COMMITTED),
        (4, "PrepareAbort", TransactionOutcome.ABORTED),
        (4, "CompleteAbort", TransactionOutcome.ABORTED),
        # The next one has begun, and says nothing of ours.
        (4, "Ongoing", TransactionOutcome.UNKNOWN),
        (5, "CompleteCommit", TransactionOutcome.UNKNOWN),
        (2, "CompleteCommit", TransactionOutcome.UNKNOWN),
        (5, "Empty", TransactionOutcome.UNKNOWN),
    ],
)
def test_its_coordinator_s_state_tells_what_became_of_it(
    epoch: int, state: str, found: TransactionOutcome
) -> None:
    assert outcome_by(OURS, ProducerIdentity(40, epoch), state) is found


def test_of_another_producer_nothing_is_told() -> None:
    assert outcome_by(OURS, ProducerIdentity(41, 4), "CompleteCommit") is TransactionOutcome.UNKNOWN


def test_every_producer_id_is_new(cluster: Cluster) -> None:
    one, other = new_producer_id(cluster), new_producer_id(cluster)
    assert one.producer_id != other.producer_id
    assert one.epoch == other.epoch == 0


def test_an_open_transaction_is_listed_described_and_fenced(
    broker: BrokerProcess, cluster: Cluster, topics: Topics
) -> None:
    topic, name = topics.new("open"), f"job-{uuid4()}"
    with respool.ArrowProducer(bootstrap=broker.address, transactional_id=name) as producer:
        producer.begin()
        producer.write(pa.table({"value": ["a"]}), topic)
        producer.flush()
        (listed,) = (one for one in list_transactions(cluster) if one.transactional_id == name)
        assert listed.state == ONGOING
        assert list_transactions(cluster, producer_ids=[listed.producer_id]) == [listed]
        assert listed not in list_transactions(cluster, states=["Empty"])
        assert listed not in list_transactions(cluster, open_longer_than_ms=60_000)
        described = describe_transactions(cluster, [name, "nobody"])
        assert list(described) == [name]
        assert described[name].is_open
        assert described[name].partitions == ((topic, 0),)
        assert described[name].started_ms is not None
        (write,), unasked = open_transactions(cluster, [(topic, 0)])
        assert unasked == {}
        assert (write.place, write.start_offset) == ((topic, 0), 0)
        assert write.producer_id == listed.producer_id
        fenced = fence_producer(cluster, name, timeout_ms=described[name].timeout_ms)
        assert fenced.producer_id == listed.producer_id
        wait_until(lambda: not open_transactions(cluster, [(topic, 0)])[0], "the marker written")
        assert not describe_transactions(cluster, [name])[name].is_open


def test_a_transaction_is_aborted_in_one_partition(
    broker: BrokerProcess, cluster: Cluster, topics: Topics
) -> None:
    topic, name = topics.new("hanging"), f"job-{uuid4()}"
    with respool.ArrowProducer(bootstrap=broker.address, transactional_id=name) as producer:
        producer.begin()
        producer.write(pa.table({"value": ["a"]}), topic)
        producer.flush()
        (write,), _ = open_transactions(cluster, [(topic, 0)])
        write_abort_marker(cluster, write)
        assert open_transactions(cluster, [(topic, 0)]) == ([], {})
