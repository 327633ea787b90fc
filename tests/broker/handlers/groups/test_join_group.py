"""JoinGroup, in every version."""

from typing import Any

import pytest

from broker.group_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    FENCED_INSTANCE_ID,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    Member,
    begin_to_load,
    let_pass,
    settled,
    start_with_groups,
)
from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.JOIN_GROUP)
every_version = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_groups(start_broker)


def join(broker: RunningBroker, version: int, member: Member | None = None, **changes: Any) -> Any:
    return broker.run((member or Member(broker)).join(version=version, **changes))


def join_once(broker: RunningBroker, version: int, **changes: Any) -> Any:
    """Without coming back with the id given."""
    return broker.run(Member(broker)._join(version=version, **changes))


@every_version
def test_the_first_member_leads_and_is_told_who_is_in(broker: RunningBroker, version: int) -> None:
    member = Member(broker, protocols=("sticky", "range"), topics=b"what I read")

    reply = join(broker, version, member)

    assert reply.error_code == 0
    assert reply.generation_id == 1
    assert reply.protocol_name == "sticky"
    assert reply.leader == reply.member_id == member.member_id
    (told,) = reply.members
    assert (told.member_id, told.metadata) == (member.member_id, b"what I read")
    assert getattr(reply, "protocol_type", "consumer") == "consumer"
    assert not getattr(reply, "skip_assignment", False)


@pytest.mark.parametrize("version", VERSIONS[4:])
def test_from_version_4_a_new_member_is_told_its_id_first(
    broker: RunningBroker, version: int
) -> None:
    reply = join_once(broker, version)

    assert reply.error_code == MEMBER_ID_REQUIRED
    assert reply.member_id.startswith("tester-")
    assert reply.generation_id == -1
    assert not reply.members


@pytest.mark.parametrize("version", VERSIONS[:4])
def test_before_version_4_a_new_member_is_in_at_once(broker: RunningBroker, version: int) -> None:
    assert join_once(broker, version).error_code == 0


@pytest.mark.parametrize("version", VERSIONS[5:])
def test_a_static_member_is_in_at_once_and_its_name_is_told_to_the_leader(
    broker: RunningBroker, version: int
) -> None:
    reply = join_once(broker, version, group_instance_id="cab-7")

    assert reply.error_code == 0
    assert [one.group_instance_id for one in reply.members] == ["cab-7"]


@pytest.mark.parametrize("version", VERSIONS[5:])
def test_a_static_member_that_was_replaced_is_fenced(broker: RunningBroker, version: int) -> None:
    first = Member(broker, instance_id="cab-7")
    first.settle()
    Member(broker, instance_id="cab-7").settle()

    reply = join(broker, version, first)

    assert reply.error_code == FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", VERSIONS[5:])
def test_a_static_leader_that_comes_back_need_not_share_out_again(
    broker: RunningBroker, version: int
) -> None:
    first = Member(broker, instance_id="cab-7")
    first.settle()

    reply = join_once(broker, version, group_instance_id="cab-7")

    assert reply.error_code == 0
    assert reply.generation_id == first.generation
    if version >= 9:
        # KIP-814
        assert reply.skip_assignment
        assert reply.leader == reply.member_id
        assert [one.group_instance_id for one in reply.members] == ["cab-7"]
    else:
        # It must not lead, or it would share out a group that is settled.
        assert reply.leader != reply.member_id
        assert not reply.members


def test_version_0_takes_the_session_timeout_for_the_rebalance_timeout(
    broker: RunningBroker,
) -> None:
    first = Member(broker)
    join(broker, 0, first, session_timeout=7_000)
    broker.run(first.sync(0))

    second = broker.start(Member(broker).join(version=0, session_timeout=7_000))
    let_pass(broker, 6_999)
    # The first one is there, but does not come to join again.
    assert first.heartbeat(0) == REBALANCE_IN_PROGRESS
    assert not second.done()
    let_pass(broker, 1)

    assert broker.finish(second).error_code == 0
    assert first.heartbeat(0) == UNKNOWN_MEMBER_ID


@every_version
@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
def test_a_session_timeout_outside_of_what_is_allowed_is_refused(
    broker: RunningBroker, version: int, timeout_ms: int
) -> None:
    reply = join(broker, version, session_timeout=timeout_ms)

    assert reply.error_code == INVALID_SESSION_TIMEOUT
    assert reply.protocol_name == (None if version >= 7 else "")
    assert reply.generation_id == -1


@every_version
def test_an_empty_group_id_is_refused(broker: RunningBroker, version: int) -> None:
    assert join(broker, version, group_id="").error_code == INVALID_GROUP_ID


@every_version
@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocols": [{"name": "unheard of", "metadata": b""}]},
        {"protocols": []},
    ],
)
def test_a_member_that_has_nothing_in_common_with_the_group_is_refused(
    broker: RunningBroker, version: int, changes: dict[str, Any]
) -> None:
    (settled_member,) = settled(broker, "drivers", 1)

    reply = join(broker, version, **changes)

    assert reply.error_code == INCONSISTENT_GROUP_PROTOCOL
    assert settled_member.heartbeat() == 0


@every_version
def test_while_the_groups_are_loaded_clients_are_told_to_ask_again(
    broker: RunningBroker, version: int
) -> None:
    begin_to_load(broker)

    reply = join_once(broker, version, member_id="I was here")

    assert reply.error_code == COORDINATOR_LOAD_IN_PROGRESS
    assert reply.member_id == "I was here"
    assert reply.protocol_name == (None if version >= 7 else "")


@every_version
def test_before_anybody_looked_for_the_coordinator_there_is_none(
    running_broker: RunningBroker, version: int
) -> None:
    assert join_once(running_broker, version).error_code == NOT_COORDINATOR


@pytest.mark.parametrize("group_id", ["g" * 32_000, "größer 🦉", "nul\0byte", " ", "../../etc"])
def test_a_group_id_may_be_any_text(broker: RunningBroker, group_id: str) -> None:
    member = Member(broker, group_id)

    member.settle()

    assert member.heartbeat() == 0
