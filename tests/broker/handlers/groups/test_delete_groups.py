"""DeleteGroups, in every version."""

import pytest

from broker.group_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_ID_NOT_FOUND,
    NON_EMPTY_GROUP,
    begin_to_load,
    commit,
    committed,
    restart,
    settled,
    start_with_groups,
)
from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

MESSAGES_VERSION = 3

every_version = pytest.mark.parametrize("version", versions(Api.DELETE_GROUPS))


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker)
    broker.create_topic("rides")
    return broker


def ask(broker: RunningBroker, version: int, *group_ids: str) -> list[tuple[str, int]]:
    reply = broker.ask(Api.DELETE_GROUPS, version, groups_names=group_ids)
    if version >= MESSAGES_VERSION:
        assert all((one.error_message is None) == (one.error_code == 0) for one in reply.results)
    return [(one.group_id, one.error_code) for one in reply.results]


@every_version
@pytest.mark.parametrize("crash", [False, True])
def test_a_deleted_group_and_its_offsets_stay_deleted(
    broker: RunningBroker, version: int, crash: bool
) -> None:
    (member,) = settled(broker, "drivers", 1)
    member.commit(("rides", 0, 1))
    member.leave()
    commit(broker, "readers", ("rides", 0, 1))

    assert ask(broker, version, "drivers", "readers") == [("drivers", 0), ("readers", 0)]

    restart(broker, crash=crash)
    assert broker.ask(Api.LIST_GROUPS, 5).groups == ()
    assert committed(broker, "readers") == {}


@every_version
def test_each_group_on_its_own(broker: RunningBroker, version: int) -> None:
    (member,) = settled(broker, "drivers", 1)
    commit(broker, "readers", ("rides", 0, 1))

    assert ask(broker, version, "drivers", "nobody", "readers", "readers") == [
        ("drivers", NON_EMPTY_GROUP),
        ("nobody", GROUP_ID_NOT_FOUND),
        ("readers", 0),
    ]
    assert member.heartbeat() == 0


@every_version
def test_while_the_groups_are_loaded_clients_are_told_to_ask_again(
    broker: RunningBroker, version: int
) -> None:
    begin_to_load(broker)

    assert ask(broker, version, "drivers") == [("drivers", COORDINATOR_LOAD_IN_PROGRESS)]
