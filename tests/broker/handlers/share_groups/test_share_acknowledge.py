"""Acknowledgements without a fetch, and those that are wrong."""

from typing import Any

import pytest

from broker.group_client import restart, start_with_groups
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


@pytest.mark.parametrize("crash", [False, True])
def test_what_was_accepted_and_answered_does_not_come_again(
    broker: RunningBroker, one: ShareMember, *, crash: bool
) -> None:
    produce(broker, 10)
    assert one.take(max_records=10) == [(0, 9, 1)]
    reply = one.acknowledge((0, 1, ACCEPT), (4, 6, ACCEPT), (7, 7, REJECT))
    assert reply.responses[0].partitions[0].error_code == 0
    restart(broker, crash=crash)
    assert other(one).take() == [(2, 3, 1), (8, 9, 1)]


def test_closing_releases_what_is_not_acknowledged(broker: RunningBroker, one: ShareMember) -> None:
    produce(broker)
    one.take()
    reply = one.acknowledge((0, 1, ACCEPT), share_session_epoch=-1)
    assert reply.error_code == 0
    assert reply.responses[0].partitions[0].error_code == 0
    assert other(one).take() == [(2, 4, 2)]


@pytest.mark.parametrize(
    "batches",
    [
        [(3, 2, ACCEPT)],
        [(0, 4, ())],
        [(0, 4, (ACCEPT, ACCEPT))],
        [(0, 0, 5)],
        [(0, 0, -1)],
        [(0, 0, RENEW)],
        [(2, 3, ACCEPT), (3, 4, ACCEPT)],
        [(0, 5, ACCEPT)],
        [(0, 1, ACCEPT), (4, 2**62, RELEASE)],
    ],
)
def test_wrong_acknowledgements_fail_alone_and_change_nothing(
    broker: RunningBroker, one: ShareMember, batches: list[Any]
) -> None:
    produce(broker)
    one.take()
    answer = one.fetch(*batches).responses[0].partitions[0]
    assert (answer.error_code, answer.acknowledge_error_code) == (0, INVALID_REQUEST)
    # The session goes on, and all is held as before.
    assert one.take((0, 4, ACCEPT)) == []


def test_nobody_acknowledges_what_another_holds(broker: RunningBroker, one: ShareMember) -> None:
    produce(broker)
    one.take()
    two = other(one)
    two.take()
    answer = two.fetch((0, 4, ACCEPT)).responses[0].partitions[0]
    assert answer.acknowledge_error_code == INVALID_RECORD_STATE
    assert one.take((0, 4, ACCEPT)) == []
    # A retry of what is accepted.
    assert one.take((0, 4, ACCEPT)) == []
