"""ListGroups, in every version."""

from typing import Any

import pytest

from broker.group_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    Member,
    begin_to_load,
    commit,
    settled,
    start_with_groups,
)
from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.LIST_GROUPS)
every_version = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker)
    broker.create_topic("rides")
    return broker


def ask(broker: RunningBroker, version: int, **filters: Any) -> dict[str, Any]:
    reply = broker.ask(Api.LIST_GROUPS, version, **filters)
    assert reply.error_code == 0
    found = {one.group_id: one for one in reply.groups}
    assert len(found) == len(reply.groups)
    return found


@every_version
def test_groups_of_all_coordinators_are_listed(broker: RunningBroker, version: int) -> None:
    for number in range(7):
        commit(broker, f"group {number}", ("rides", 0, 1))
    settled(broker, "drivers", 1)
    broker.run(Member(broker, "joining").join())

    groups = ask(broker, version)

    assert groups.keys() == {f"group {number}" for number in range(7)} | {"drivers", "joining"}
    assert groups["drivers"].protocol_type == "consumer"
    assert groups["group 3"].protocol_type == ""
    if version >= 4:
        assert groups["drivers"].group_state == "Stable"
        assert groups["joining"].group_state == "CompletingRebalance"
        assert groups["group 3"].group_state == "Empty"
    if version >= 5:
        assert groups["drivers"].group_type == "classic"


@pytest.mark.parametrize("version", VERSIONS[4:])
def test_from_version_4_one_may_ask_for_some_states(broker: RunningBroker, version: int) -> None:
    commit(broker, "readers", ("rides", 0, 1))
    settled(broker, "drivers", 1)

    assert ask(broker, version, states_filter=["Empty"]).keys() == {"readers"}
    assert ask(broker, version, states_filter=["empty", "STABLE"]).keys() == {"readers", "drivers"}
    assert ask(broker, version, states_filter=["Asleep"]).keys() == set()


@pytest.mark.parametrize("version", VERSIONS[5:])
def test_from_version_5_one_may_ask_for_some_types(broker: RunningBroker, version: int) -> None:
    settled(broker, "drivers", 1)

    assert ask(broker, version, types_filter=["Classic"]).keys() == {"drivers"}
    assert ask(broker, version, types_filter=["consumer", "share"]).keys() == set()


@every_version
def test_before_there_were_groups_there_are_none(
    running_broker: RunningBroker, version: int
) -> None:
    assert ask(running_broker, version) == {}


@every_version
def test_half_a_list_is_not_given_out(broker: RunningBroker, version: int) -> None:
    commit(broker, "readers", ("rides", 0, 1))
    begin_to_load(broker)

    reply = broker.ask(Api.LIST_GROUPS, version)

    assert reply.error_code == COORDINATOR_LOAD_IN_PROGRESS
    assert not reply.groups
