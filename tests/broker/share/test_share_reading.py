"""What of the log a member of a share group is sent."""

import pytest

from broker.group_client import restart, start_with_groups
from broker.handlers.share_groups.share_client import ShareMember, acquired, offsets_of
from broker.running_broker import RunningBroker, StartBroker
from respool.records.build import NewRecord, build_batch
from respool.wire.api_table import Api

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER = 6
INVALID_REQUEST = 42
GROUP_ID_NOT_FOUND = 69
UNKNOWN_TOPIC_ID = 100
INVALID_RECORD_STATE = 121
SESSION_NOT_FOUND = 122
INVALID_SESSION_EPOCH = 123
SESSION_LIMIT_REACHED = 133


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker, share_coordinator_state_topic_partitions=2)
    broker.create_topic("orders")
    broker.set_for_group("billing", {"share.auto.offset.reset": "earliest"})
    return broker


@pytest.fixture
def one(broker: RunningBroker) -> ShareMember:
    member = ShareMember(broker)
    member.join()
    return member


def produce(broker: RunningBroker, count: int = 5) -> None:
    broker.produce("orders", values=tuple(b"%d" % one for one in range(count)))


def other(one: ShareMember) -> ShareMember:
    return ShareMember(one.broker, name="two")


def test_a_record_limit_is_exact_and_the_whole_batch_is_sent(
    broker: RunningBroker, one: ShareMember
) -> None:
    produce(broker, 20)
    reply = one.fetch(max_records=7, share_acquire_mode=1)
    answer = reply.responses[0].partitions[0]
    assert acquired(answer) == [(0, 6, 1)]
    assert offsets_of(answer.records) == list(range(20))


def test_records_that_came_back_and_new_ones_share_an_answer(
    broker: RunningBroker, one: ShareMember
) -> None:
    for _ in range(10):
        produce(broker, 2)
    one.take()
    two = other(one)
    two.take()
    answer = one.fetch((0, 3, ACCEPT), (4, 5, RELEASE), (6, 9, ACCEPT), (10, 11, RELEASE))
    answer = answer.responses[0].partitions[0]
    assert acquired(answer) == [(4, 5, 2), (10, 11, 2)]
    # Only the batches that it may have.
    assert offsets_of(answer.records) == [4, 5, 10, 11]


def test_records_are_read_from_the_disk(broker: RunningBroker, one: ShareMember) -> None:
    for _ in range(20):
        produce(broker)
    broker.forget_tails()
    assert one.take(max_records=30) == [(0, 29, 1)]


def test_records_of_a_view_are_those_that_it_shows(broker: RunningBroker) -> None:
    broker.create_view("odd", of="orders", where="header.kind != 'even'")
    produce(broker)
    member = ShareMember(broker, topic="odd", group="billing")
    member.join()
    assert member.take() == [(0, 4, 1)]
    assert member.take((0, 4, ACCEPT)) == []


def test_records_of_a_key_come_one_after_the_other(broker: RunningBroker) -> None:
    broker.set_for_group(
        "billing", {"share.auto.offset.reset": "earliest", "respool.share.order": "key"}
    )
    now_ms = broker.clock.now_ms()
    keys = (b"a", b"a", b"b", None, b"a")
    batch = build_batch([NewRecord(key=key, value=b"v", timestamp_ms=now_ms) for key in keys])
    reply = broker.ask(
        Api.PRODUCE,
        9,
        transactional_id=None,
        acks=-1,
        timeout=1000,
        topic_data=[{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}],
    )
    assert reply.responses[0].partition_responses[0].error_code == 0
    member = ShareMember(broker)
    member.join()
    assert member.take() == [(0, 0, 1), (2, 3, 1)]
    assert other(member).take() == []
    assert member.take((0, 0, ACCEPT)) == [(1, 1, 1)]
    restart(broker, crash=True)
    again = ShareMember(broker, name="again")
    # What was unfinished comes again, and still in order.
    assert again.take() == [(1, 3, 1)]
