"""LeaveGroup, in every version."""

from typing import Any

import pytest

from broker.group_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    INVALID_GROUP_ID,
    UNKNOWN_MEMBER_ID,
    Member,
    begin_to_load,
    settled,
    start_with_groups,
)
from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.LEAVE_GROUP)
every_version = pytest.mark.parametrize("version", VERSIONS)
several_at_once = pytest.mark.parametrize("version", VERSIONS[3:])


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_groups(start_broker)


def leave(
    broker: RunningBroker, version: int, *leaving: tuple[str, str | None], group_id: str = "drivers"
) -> Any:
    members = [
        {"member_id": member_id, "group_instance_id": instance_id, "reason": "end of shift"}
        for member_id, instance_id in leaving
    ]
    return broker.ask(
        Api.LEAVE_GROUP, version, group_id=group_id, member_id=leaving[0][0], members=members
    )


def code_of(reply: Any) -> int:
    """Of a reply about one member: it has its own place from version 3 on."""
    assert reply.error_code == 0 or not getattr(reply, "members", ())
    return int(reply.members[0].error_code if getattr(reply, "members", ()) else reply.error_code)


@every_version
def test_who_leaves_is_out_and_the_others_share_anew(broker: RunningBroker, version: int) -> None:
    stays, goes = settled(broker, "drivers", 2)

    assert code_of(leave(broker, version, (goes.member_id, None))) == 0

    assert goes.heartbeat() == UNKNOWN_MEMBER_ID
    stays.settle()
    assert stays.members == (stays.member_id,)


@every_version
def test_a_stranger_cannot_leave(broker: RunningBroker, version: int) -> None:
    (member,) = settled(broker, "drivers", 1)

    assert code_of(leave(broker, version, ("stranger", None))) == UNKNOWN_MEMBER_ID
    assert code_of(leave(broker, version, ("x", None), group_id="nobody")) == UNKNOWN_MEMBER_ID
    assert code_of(leave(broker, version, ("x", None), group_id="")) == INVALID_GROUP_ID
    assert member.heartbeat() == 0


@several_at_once
def test_an_administrator_takes_out_several_each_with_its_result(
    broker: RunningBroker, version: int
) -> None:
    dynamic, other = settled(broker, "drivers", 2)
    static = Member(broker, instance_id="cab-7")
    joining = broker.start(static.join())

    reply = leave(
        broker, version, (dynamic.member_id, None), ("stranger", None), ("", "cab-7"), ("", "cab-8")
    )

    assert reply.error_code == 0
    assert [(one.member_id, one.group_instance_id, one.error_code) for one in reply.members] == [
        (dynamic.member_id, None, 0),
        ("stranger", None, UNKNOWN_MEMBER_ID),
        ("", "cab-7", 0),
        ("", "cab-8", UNKNOWN_MEMBER_ID),
    ]
    assert broker.finish(joining).error_code == UNKNOWN_MEMBER_ID
    assert dynamic.heartbeat() == UNKNOWN_MEMBER_ID
    other.settle()
    assert other.members == (other.member_id,)


@every_version
def test_while_the_groups_are_loaded_clients_are_told_to_ask_again(
    broker: RunningBroker, version: int
) -> None:
    (member,) = settled(broker, "drivers", 1)
    begin_to_load(broker)

    reply = leave(broker, version, (member.member_id, None))

    assert reply.error_code == COORDINATOR_LOAD_IN_PROGRESS
    assert not getattr(reply, "members", ())
