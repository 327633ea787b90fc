"""DescribeGroups, in every version."""

from typing import Any

import pytest

from broker.group_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_ID_NOT_FOUND,
    Member,
    begin_to_load,
    commit,
    settled,
    start_with_groups,
)
from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.DESCRIBE_GROUPS)
every_version = pytest.mark.parametrize("version", VERSIONS)
# read, delete, describe
MAY_ALL = 3_400
NOT_ASKED = -(2**31)


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker)
    broker.create_topic("rides")
    return broker


def ask(broker: RunningBroker, version: int, *group_ids: str, operations: bool = False) -> Any:
    return broker.ask(
        Api.DESCRIBE_GROUPS, version, groups=group_ids, include_authorized_operations=operations
    ).groups


@every_version
def test_members_and_who_has_what(broker: RunningBroker, version: int) -> None:
    members = settled(broker, "drivers", 2, topics=b"what I read")

    (group,) = ask(broker, version, "drivers")

    assert (group.error_code, group.group_id, group.group_state) == (0, "drivers", "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    assert {
        (one.member_id, one.client_id, one.member_metadata, one.member_assignment)
        for one in group.members
    } == {
        (one.member_id, "tester", b"what I read", b"share of " + one.member_id.encode())
        for one in members
    }


@pytest.mark.parametrize("version", VERSIONS[4:])
def test_from_version_4_static_members_are_told_by_name(
    broker: RunningBroker, version: int
) -> None:
    Member(broker, instance_id="cab-7").settle()

    (group,) = ask(broker, version, "drivers")

    assert [one.group_instance_id for one in group.members] == ["cab-7"]


@every_version
def test_a_group_with_offsets_only_is_empty(broker: RunningBroker, version: int) -> None:
    commit(broker, "readers", ("rides", 0, 1))

    (group,) = ask(broker, version, "readers")

    assert (group.error_code, group.group_state, group.members) == (0, "Empty", ())


@every_version
def test_a_group_nobody_knows_is_dead_and_from_version_6_an_error(
    broker: RunningBroker, version: int
) -> None:
    (group,) = ask(broker, version, "nobody", operations=version >= 3)

    assert (group.group_state, group.members) == ("Dead", ())
    assert group.error_code == (GROUP_ID_NOT_FOUND if version >= 6 else 0)
    if version >= 6:
        assert "nobody" in group.error_message


@every_version
def test_every_group_asked_for_is_answered_in_order(broker: RunningBroker, version: int) -> None:
    settled(broker, "drivers", 1)
    asked = [*(f"group {number}" for number in range(5)), "drivers", "drivers", "group 0"]

    groups = ask(broker, version, *asked)

    assert [one.group_id for one in groups] == asked
    assert [one.group_state for one in groups] == ["Dead"] * 5 + ["Stable"] * 2 + ["Dead"]


@pytest.mark.parametrize("version", VERSIONS[3:])
def test_from_version_3_one_may_ask_what_one_may_do(broker: RunningBroker, version: int) -> None:
    settled(broker, "drivers", 1)

    assert ask(broker, version, "drivers")[0].authorized_operations == NOT_ASKED
    assert ask(broker, version, "drivers", operations=True)[0].authorized_operations == MAY_ALL


@every_version
def test_while_the_groups_are_loaded_clients_are_told_to_ask_again(
    broker: RunningBroker, version: int
) -> None:
    begin_to_load(broker)

    groups = ask(broker, version, "drivers", "readers", operations=version >= 3)

    assert [one.error_code for one in groups] == [COORDINATOR_LOAD_IN_PROGRESS] * 2
