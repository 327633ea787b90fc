"""Transactions seen from outside their producer."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from kio.schema.errors import ErrorCode

import respool
from respool.client.arrow.prepared import PreparedTransaction
from respool.client.kafka.cluster import Cluster
from respool.client.kafka.errors import BrokerRefused, BrokerUnreachable
from respool.client.kafka.partition_queue import ProducerIdentity
from respool.client.kafka.producer_ids import fence_producer, new_producer_id
from respool.client.kafka.transactions import (
    ONGOING,
    OpenTransaction,
    TransactionOutcome,
    describe_transactions,
    list_transactions,
    open_transactions,
    outcome_by,
    write_abort_marker,
)
from respool.wire.api_table import Api
from support.broker_process import BrokerProcess
from support.scripted_cluster import BROKERS, ONE, TWO, ScriptedCluster
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


# -- with scripted brokers: which broker is asked for what, and what its errors become ---------------------------------


def listed(*names: str, code: ErrorCode = ErrorCode.none) -> Any:
    states = [
        SimpleNamespace(transactional_id=name, transaction_state="Ongoing", producer_id=number)
        for number, name in enumerate(names)
    ]
    return SimpleNamespace(error_code=code, transaction_states=states)


def found_at(broker: int) -> Any:
    host, port = BROKERS[broker]
    return SimpleNamespace(node_id=broker, host=host, port=port, error_code=ErrorCode.none)


def producers_of(
    number: int, producers: Sequence[Any] = (), *, code: ErrorCode = ErrorCode.none
) -> Any:
    partition = SimpleNamespace(partition_index=number, error_code=code, active_producers=producers)
    return SimpleNamespace(topics=[SimpleNamespace(name="rides", partitions=[partition])])


def initialised(code: ErrorCode = ErrorCode.none) -> Any:
    return SimpleNamespace(error_code=code, producer_id=7, producer_epoch=5)


def marked(code: ErrorCode = ErrorCode.none) -> Any:
    partition = SimpleNamespace(error_code=code)
    topic = SimpleNamespace(partitions=[partition])
    return SimpleNamespace(markers=[SimpleNamespace(topics=[topic])])


def write_in(partition: int, *, coordinator_epoch: int = -1) -> OpenTransaction:
    return OpenTransaction(
        topic="rides",
        partition=partition,
        producer_id=7,
        producer_epoch=3,
        start_offset=40,
        last_ms=0,
        coordinator_epoch=coordinator_epoch,
    )


def test_every_broker_lists_the_transactions_it_coordinates() -> None:
    brokers = ScriptedCluster(listed("b"), listed("c", "a"))
    found = list_transactions(brokers, states=[ONGOING])
    assert [one.transactional_id for one in found] == ["a", "b", "c"]
    assert [one.address for one in brokers.asked] == [ONE, TWO]
    assert [one.fields["state_filters"] for one in brokers.asked] == [[ONGOING]] * 2
    # A broker of the oldest version is enough.
    assert {one.versions.oldest for one in brokers.asked} == {0}


def test_only_a_search_by_age_needs_a_newer_broker() -> None:
    brokers = ScriptedCluster(listed())
    list_transactions(brokers, open_longer_than_ms=600_000)
    assert len(brokers.asked) == 2
    for one in brokers.asked:
        assert (one.versions, one.fields["duration_filter"]) == ((1, 1), 600_000)


def test_a_coordinator_that_is_loading_is_waited_for() -> None:
    loading = listed(code=ErrorCode.coordinator_load_in_progress)
    brokers = ScriptedCluster(loading, listed("bank"), listed())
    assert [one.transactional_id for one in list_transactions(brokers)] == ["bank"]
    assert brokers.now > 0


def test_but_not_for_ever() -> None:
    brokers = ScriptedCluster(listed(code=ErrorCode.coordinator_load_in_progress), retry_ms=10_000)
    with pytest.raises(BrokerRefused, match="COORDINATOR_LOAD_IN_PROGRESS"):
        list_transactions(brokers)
    assert 10 <= brokers.now < 11


def test_a_coordinator_that_is_loading_is_waited_for_when_it_describes() -> None:
    def described(code: ErrorCode) -> Any:
        state = SimpleNamespace(
            error_code=code,
            transactional_id="bank",
            transaction_state=ONGOING,
            producer_id=7,
            producer_epoch=3,
            transaction_timeout=timedelta(minutes=1),
            transaction_start_time=None,
            topics=[],
        )
        return SimpleNamespace(transaction_states=[state])

    loading = described(ErrorCode.coordinator_load_in_progress)
    brokers = ScriptedCluster(found_at(1), loading, described(ErrorCode.none))
    assert describe_transactions(brokers, ["bank"])["bank"].timeout_ms == 60_000
    forever = ScriptedCluster(found_at(1), loading, retry_ms=10_000)
    with pytest.raises(BrokerRefused, match="COORDINATOR_LOAD_IN_PROGRESS"):
        describe_transactions(forever, ["bank"])
    assert 10 <= forever.now < 11


def test_where_there_never_was_a_transaction_nothing_is_asked_that_would_make_their_topic() -> None:
    brokers = ScriptedCluster()
    del brokers.topics["__transaction_state"]
    assert describe_transactions(brokers, ["bank"]) == {}
    assert brokers.asked == []


def test_the_coordinator_is_looked_for_again_when_it_has_moved() -> None:
    moved = initialised(ErrorCode.not_coordinator)
    brokers = ScriptedCluster(found_at(1), moved, found_at(2), initialised())
    assert fence_producer(brokers, "bank", timeout_ms=60_000).epoch == 5
    inits = [one for one in brokers.asked if one.api == Api.INIT_PRODUCER_ID]
    assert [one.address for one in inits] == [ONE, TWO]
    # As a new producer, so that the old one is fenced.
    assert inits[0].fields["producer_id"] == inits[0].fields["producer_epoch"] == -1
    assert inits[0].fields["transaction_timeout"] == 60_000


def test_a_timeout_that_is_too_long_by_now_does_not_keep_an_operator_from_aborting() -> None:
    too_long = initialised(ErrorCode.invalid_transaction_timeout)
    brokers = ScriptedCluster(found_at(1), too_long, found_at(1), initialised())
    assert fence_producer(brokers, "bank", timeout_ms=60_000).epoch == 5
    assert brokers.asked[-1].fields["transaction_timeout"] == 1


def test_other_refusals_are_told_at_once() -> None:
    denied = initialised(ErrorCode.transactional_id_authorization_failed)
    brokers = ScriptedCluster(found_at(1), denied)
    with pytest.raises(BrokerRefused, match="'bank' failed: TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        fence_producer(brokers, "bank", timeout_ms=60_000)
    assert brokers.now == 0


def test_partitions_are_asked_where_they_are_led_and_those_that_do_not_answer_are_named() -> None:
    producers = [
        SimpleNamespace(
            producer_id=7,
            producer_epoch=3,
            current_txn_start_offset=start_offset,
            last_timestamp=0,
            coordinator_epoch=-1,
        )
        for start_offset in (-1, 40)
    ]
    brokers = ScriptedCluster(
        producers_of(0, code=ErrorCode.kafka_storage_error), producers_of(1, producers)
    )
    found, unasked = open_transactions(brokers, [("rides", number) for number in range(3)])
    assert found == [write_in(1)]
    assert unasked == {
        ("rides", 0): "KAFKA_STORAGE_ERROR",
        ("rides", 2): "it has no leader",
    }
    assert [(one.address, one.fields["topics"]) for one in brokers.asked] == [
        (ONE, [{"name": "rides", "partition_indexes": [0]}]),
        (TWO, [{"name": "rides", "partition_indexes": [1]}]),
    ]


def test_partitions_of_a_topic_that_was_deleted_meanwhile_are_named_and_the_others_asked() -> None:
    brokers = ScriptedCluster(producers_of(0))
    places = [("fares", 0), ("rides", 0), ("rides", 9)]
    found, unasked = open_transactions(brokers, places)
    assert found == []
    assert unasked.keys() == {("fares", 0), ("rides", 9)}
    assert [one.fields["topics"] for one in brokers.asked] == [
        [{"name": "rides", "partition_indexes": [0]}]
    ]
    assert brokers.now == 0


def test_a_marker_goes_to_the_leader_with_the_producer_s_epoch() -> None:
    brokers = ScriptedCluster(marked())
    write_abort_marker(brokers, write_in(1))
    (asked,) = brokers.asked
    (marker,) = asked.fields["markers"]
    assert (asked.address, marker["producer_epoch"], marker["coordinator_epoch"]) == (TWO, 3, 0)
    assert marker["transaction_result"] is False


def test_a_partition_that_nobody_leads_cannot_be_written_and_is_not_waited_for() -> None:
    brokers = ScriptedCluster(marked())
    with pytest.raises(BrokerUnreachable, match="rides/2 has no leader"):
        write_abort_marker(brokers, write_in(2, coordinator_epoch=0))
    assert brokers.asked == []
    assert brokers.now == 0
