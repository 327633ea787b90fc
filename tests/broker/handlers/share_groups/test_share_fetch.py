"""ShareFetch and ShareAcknowledge: what a member is given, keeps and loses, and every wrong request."""

from typing import Any
from uuid import UUID

import pytest

from broker.group_client import start_with_groups
from broker.handlers.share_groups.share_client import ShareMember
from broker.running_broker import RunningBroker, StartBroker

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


def test_records_go_to_one_member_and_are_gone_once_accepted(
    broker: RunningBroker, one: ShareMember
) -> None:
    produce(broker)
    assert one.take() == [(0, 4, 1)]
    assert other(one).take() == []
    assert one.take((0, 4, ACCEPT)) == []
    produce(broker)
    assert one.take() == [(5, 9, 1)]


def test_released_records_come_again_with_their_count(
    broker: RunningBroker, one: ShareMember
) -> None:
    produce(broker)
    one.take()
    assert one.take((0, 4, (ACCEPT, RELEASE, RELEASE, ACCEPT, REJECT))) == [(1, 2, 2)]


def test_a_lost_connection_releases_what_its_members_hold(
    broker: RunningBroker, one: ShareMember
) -> None:
    produce(broker)
    assert one.take() == [(0, 4, 1)]

    async def lose() -> None:
        broker.broker.shares.on_disconnected(None)

    broker.run(lose())
    assert other(one).take() == [(0, 4, 2)]
    assert one.fetch().error_code == SESSION_NOT_FOUND


def test_a_group_without_state_is_told_so(broker: RunningBroker) -> None:
    produce(broker)
    stranger = ShareMember(broker, group="nobody")
    answer = stranger.fetch(max_wait=60_000).responses[0].partitions[0]
    assert answer.error_code == GROUP_ID_NOT_FOUND
    late = stranger.fetch((0, 1, ACCEPT), max_wait=60_000).responses[0].partitions[0]
    assert (late.error_code, late.acknowledge_error_code) == (
        GROUP_ID_NOT_FOUND,
        GROUP_ID_NOT_FOUND,
    )


def test_a_topic_that_nobody_knows_spoils_no_other(broker: RunningBroker, one: ShareMember) -> None:
    produce(broker)
    unknown = {
        "topic_id": UUID(int=99),
        "partitions": [{"partition_index": 0, "acknowledgement_batches": []}],
    }
    missing = {
        "topic_id": one.topic_id,
        "partitions": [
            {"partition_index": 7, "acknowledgement_batches": []},
            {"partition_index": 0, "acknowledgement_batches": []},
        ],
    }
    reply = one.fetch(topics=[unknown, missing])
    codes = {
        (topic.topic_id, part.partition_index): part.error_code
        for topic in reply.responses
        for part in topic.partitions
    }
    assert codes == {
        (UUID(int=99), 0): UNKNOWN_TOPIC_ID,
        (one.topic_id, 7): UNKNOWN_TOPIC_OR_PARTITION,
        (one.topic_id, 0): 0,
    }


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": ""}, INVALID_REQUEST),
        ({"member_id": "x" * 37}, INVALID_REQUEST),
        ({"group_id": None}, INVALID_REQUEST),
        ({"group_id": ""}, INVALID_REQUEST),
        ({"share_session_epoch": 7}, INVALID_SESSION_EPOCH),
        ({"share_session_epoch": -2}, INVALID_SESSION_EPOCH),
        ({"member_id": "stranger"}, SESSION_NOT_FOUND),
        ({"member_id": "stranger", "share_session_epoch": -1}, SESSION_NOT_FOUND),
        ({"share_acquire_mode": 2}, INVALID_REQUEST),
        ({"share_acquire_mode": -1}, INVALID_REQUEST),
        ({"is_renew_ack": True}, INVALID_REQUEST),
    ],
)
def test_wrong_requests_are_refused_as_a_whole(
    broker: RunningBroker, one: ShareMember, fields: dict[str, Any], code: int
) -> None:
    produce(broker)
    one.take(max_records=0)
    assert one.fetch(**fields).error_code == code


def test_a_session_is_not_opened_with_acknowledgements_and_the_old_one_stays(
    broker: RunningBroker, one: ShareMember
) -> None:
    produce(broker)
    one.take()
    assert one.fetch((0, 4, ACCEPT), share_session_epoch=0).error_code == INVALID_REQUEST
    one.epoch = 1
    assert one.take((0, 4, ACCEPT)) == []
    assert one.acknowledge((0, 4, ACCEPT), share_session_epoch=0).error_code == (
        INVALID_SESSION_EPOCH
    )


def test_there_are_only_so_many_sessions(start_broker: StartBroker) -> None:
    broker = start_with_groups(start_broker, group_share_max_share_sessions=1)
    broker.create_topic("orders")
    one = ShareMember(broker)
    one.join()
    assert one.fetch().error_code == 0
    assert other(one).fetch().error_code == SESSION_LIMIT_REACHED


def test_no_records_are_asked_for_and_none_come(broker: RunningBroker, one: ShareMember) -> None:
    produce(broker)
    assert one.take(max_records=0, max_wait=60_000) == []
    assert one.take(max_records=-3, max_wait=60_000) == []
    assert one.take(max_bytes=0, max_wait=60_000) == []
    assert one.take(batch_size=-1) == [(0, 4, 1)]


def test_a_deleted_topic_is_unknown_and_its_successor_begins_anew(
    broker: RunningBroker, one: ShareMember
) -> None:
    produce(broker)
    one.take()
    broker.run(broker.broker.topics.delete("orders"))
    broker.create_topic("orders")
    answer = one.fetch().responses[0].partitions[0]
    assert answer.error_code == UNKNOWN_TOPIC_ID
