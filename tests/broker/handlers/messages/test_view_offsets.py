"""Offsets of a view are its parent's; nobody writes to a view, and nothing is deleted by it."""

from typing import Any

import pytest

from broker.running_broker import EARLIEST, LATEST, RunningBroker, StartBroker
from broker.transaction_client import start_with_transactions
from broker.wire_client import versions
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import Api

POLICY_VIOLATION = 44
OPERATION_NOT_ATTEMPTED = 55
MAX_TIMESTAMP, EARLIEST_LOCAL = -3, -4


@pytest.fixture
def broker(running_broker: RunningBroker) -> RunningBroker:
    running_broker.create_topic("rides", partitions=2)
    running_broker.create_view("paid", of="rides", where="tag = 'paid'")
    for _ in range(3):
        running_broker.produce("rides", 1)
        running_broker.clock.advance(1_000)
    return running_broker


def list_offset(broker: RunningBroker, topic: str, at: int, version: int) -> Any:
    wish = {"partition_index": 1, "current_leader_epoch": -1, "timestamp": at}
    reply = broker.ask(
        Api.LIST_OFFSETS,
        version,
        replica_id=-1,
        isolation_level=0,
        topics=[{"name": topic, "partitions": [wish]}],
        timeout=1000,
    )
    return reply.topics[0].partitions[0]


@pytest.mark.parametrize("version", versions(Api.LIST_OFFSETS))
def test_every_offset_is_the_parents(broker: RunningBroker, version: int) -> None:
    second = broker.clock.now_ms() - 2_000
    for at in (LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, second, second + 60_000):
        if at == EARLIEST_LOCAL and version < 8:
            continue
        of_view = list_offset(broker, "paid", at, version)
        assert of_view.error_code == 0
        assert of_view == list_offset(broker, "rides", at, version)
    assert list_offset(broker, "paid", LATEST, version).offset == 3
    assert list_offset(broker, "paid", second, version).offset == 1


@pytest.mark.parametrize("version", versions(Api.OFFSET_FOR_LEADER_EPOCH))
def test_the_end_of_a_leader_epoch_is_the_parents(broker: RunningBroker, version: int) -> None:
    wish = {"partition": 1, "current_leader_epoch": -1, "leader_epoch": 0}
    topics = [{"topic": name, "partitions": [wish]} for name in ("rides", "paid")]
    reply = broker.ask(Api.OFFSET_FOR_LEADER_EPOCH, version, replica_id=-1, topics=topics)
    of_parent, of_view = (one.partitions[0] for one in reply.topics)
    assert of_view == of_parent
    assert (of_view.error_code, of_view.end_offset) == (0, 3)


@pytest.mark.parametrize("version", versions(Api.PRODUCE))
def test_nobody_writes_to_a_view(broker: RunningBroker, version: int) -> None:
    records = build_batch([NewRecord(value=b"v", timestamp_ms=broker.clock.now_ms())])
    reply = broker.ask(
        Api.PRODUCE,
        version,
        transactional_id=None,
        acks=-1,
        timeout=1000,
        topic_data=[
            {**broker.topic_ref(name), "partition_data": [{"index": 1, "records": records}]}
            for name in ("paid", "rides")
        ],
    )
    answers = {broker.topic_name(one): one.partition_responses[0] for one in reply.responses}
    assert answers["paid"].error_code == POLICY_VIOLATION
    if version >= 8:
        assert (
            answers["paid"].error_message == "'paid' is a view of 'rides': write to 'rides' instead"
        )
    # What is in the same request for others is written.
    assert (answers["rides"].error_code, answers["rides"].base_offset) == (0, 3)


def test_a_view_takes_no_part_in_transactions_but_its_producer_does(
    start_broker: StartBroker,
) -> None:
    broker = start_with_transactions(start_broker)
    broker.create_view("paid", of="rides", where="tag = 'paid'")
    producer = broker.ask(
        Api.INIT_PRODUCER_ID,
        4,
        transactional_id="copier",
        transaction_timeout=60_000,
        producer_id=-1,
        producer_epoch=-1,
    )
    assert producer.error_code == 0

    def add(*names: str) -> dict[str, int]:
        reply = broker.ask(
            Api.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id="copier",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[{"name": name, "partitions": [0]} for name in names],
        )
        return {
            one.name: one.results_by_partition[0].partition_error_code
            for one in reply.results_by_topic_v3_and_below
        }

    assert add("paid", "rides") == {"paid": POLICY_VIOLATION, "rides": OPERATION_NOT_ATTEMPTED}
    assert add("rides") == {"rides": 0}


def test_nothing_is_deleted_by_a_view(broker: RunningBroker) -> None:
    wish = {"partition_index": 1, "offset": 2}
    reply = broker.ask(
        Api.DELETE_RECORDS,
        2,
        topics=[{"name": "paid", "partitions": [wish]}],
        timeout=1000,
    )
    assert reply.topics[0].partitions[0].error_code == POLICY_VIOLATION
    assert broker.offset("rides", 1, at=EARLIEST) == 0


def test_records_deleted_from_the_parent_are_gone_from_the_view(broker: RunningBroker) -> None:
    wish = {"partition_index": 1, "offset": 2}
    broker.ask(
        Api.DELETE_RECORDS, 2, topics=[{"name": "rides", "partitions": [wish]}], timeout=1000
    )
    assert broker.offset("paid", 1, at=EARLIEST) == 2
