"""OffsetFetch, in every version."""

from typing import Any

import pytest

from broker.group_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    begin_to_load,
    commit,
    committed,
    restart,
    start_with_groups,
)
from broker.running_broker import RunningBroker, StartBroker
from broker.transaction_client import OFFSETS_TOPIC
from broker.wire_client import versions
from respool.broker.coordinators import runtimes
from respool.wire.api_table import Api

NOT_COORDINATOR, UNKNOWN_TOPIC_ID = 16, 100
NOTHING = -1

VERSIONS = versions(Api.OFFSET_FETCH)
every_version = pytest.mark.parametrize("version", VERSIONS)
one_group = pytest.mark.parametrize("version", [one for one in VERSIONS if one < 8])
by_name = pytest.mark.parametrize("version", [one for one in VERSIONS if one < 10])
by_id = pytest.mark.parametrize("version", [one for one in VERSIONS if one >= 10])
several_groups = pytest.mark.parametrize("version", [one for one in VERSIONS if one >= 8])


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker)
    broker.create_topic("rides", partitions=3)
    broker.create_topic("fares")
    return broker


def ask(
    broker: RunningBroker, version: int, group_id: str, wanted: dict[str, list[int]] | None
) -> Any:
    """The reply's part about the one group asked for."""
    topics = (
        None
        if wanted is None
        else [
            {
                **(broker.topic_ref(name) if version >= 8 else {"name": name}),
                "partition_indexes": numbers,
            }
            for name, numbers in wanted.items()
        ]
    )
    group = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": topics}
    if version >= 8:
        reply = broker.ask(Api.OFFSET_FETCH, version, groups=[group], require_stable=False)
        (found,) = reply.groups
        assert found.group_id == group_id
        return found
    return broker.ask(
        Api.OFFSET_FETCH, version, group_id=group_id, topics=topics, require_stable=False
    )


def offsets(broker: RunningBroker, group: Any) -> dict[tuple[str, int], int]:
    found = {}
    for topic in group.topics:
        for one in topic.partitions:
            assert one.error_code == 0
            found[broker.topic_name(topic), one.partition_index] = one.committed_offset
    return found


@by_name
def test_what_was_committed_and_nothing_for_the_rest(broker: RunningBroker, version: int) -> None:
    commit(broker, "drivers", ("rides", 0, 7), ("rides", 1, 8))
    commit(broker, "others", ("rides", 2, 9))

    found = ask(broker, version, "drivers", {"rides": [1, 2], "nowhere": [0], "fares": []})

    assert offsets(broker, found) == {
        ("rides", 1): 8,
        ("rides", 2): NOTHING,
        ("nowhere", 0): NOTHING,
    }
    assert [topic.name for topic in found.topics] == ["rides", "nowhere", "fares"]
    assert getattr(found, "error_code", 0) == 0


@by_id
def test_by_id_a_topic_that_does_not_exist_is_told(broker: RunningBroker, version: int) -> None:
    commit(broker, "drivers", ("rides", 0, 7), ("rides", 1, 8), ("fares", 0, 9))
    wanted = [
        {**broker.topic_ref("rides"), "partition_indexes": [1, 2]},
        {**broker.topic_ref("nowhere"), "partition_indexes": [0, 1]},
        {"topic_id": None, "partition_indexes": [0]},
        {**broker.topic_ref("fares"), "partition_indexes": [0]},
    ]
    group = {"group_id": "drivers", "member_id": None, "member_epoch": -1, "topics": wanted}

    (found,) = broker.ask(Api.OFFSET_FETCH, version, groups=[group], require_stable=False).groups

    assert found.error_code == 0
    assert [one.topic_id for one in found.topics] == [one["topic_id"] for one in wanted]
    assert [
        [(one.partition_index, one.committed_offset, one.error_code) for one in topic.partitions]
        for topic in found.topics
    ] == [
        [(1, 8, 0), (2, NOTHING, 0)],
        [(0, NOTHING, UNKNOWN_TOPIC_ID), (1, NOTHING, UNKNOWN_TOPIC_ID)],
        [(0, NOTHING, UNKNOWN_TOPIC_ID)],
        [(0, 9, 0)],
    ]


@by_id
@pytest.mark.parametrize("crash", [False, True])
def test_a_consumer_that_knew_the_topic_before_it_was_recreated_is_told(
    broker: RunningBroker, version: int, crash: bool
) -> None:
    commit(broker, "drivers", ("rides", 0, 7))
    old = {**broker.topic_ref("rides"), "partition_indexes": [0]}
    broker.broker.topics.on_changed = lambda: None
    broker.run(broker.broker.topics.delete("rides"))
    broker.create_topic("rides")
    restart(broker, crash=crash)

    new = {**broker.topic_ref("rides"), "partition_indexes": [0]}
    group = {"group_id": "drivers", "member_id": None, "member_epoch": -1, "topics": [old, new]}
    (found,) = broker.ask(Api.OFFSET_FETCH, version, groups=[group], require_stable=False).groups

    told = [topic.partitions[0] for topic in found.topics]
    assert [(one.committed_offset, one.error_code) for one in told] == [
        (NOTHING, UNKNOWN_TOPIC_ID),
        (NOTHING, 0),
    ]


@every_version
def test_a_group_nobody_knows_has_committed_nothing(broker: RunningBroker, version: int) -> None:
    assert offsets(broker, ask(broker, version, "nobody", {"rides": [0]})) == {
        ("rides", 0): NOTHING
    }


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_from_version_2_null_asks_for_all_there_is(broker: RunningBroker, version: int) -> None:
    commit(broker, "drivers", ("rides", 0, 7), ("rides", 2, 8), ("fares", 0, 9))

    assert offsets(broker, ask(broker, version, "drivers", None)) == {
        ("rides", 0): 7,
        ("rides", 2): 8,
        ("fares", 0): 9,
    }
    assert offsets(broker, ask(broker, version, "nobody", None)) == {}


@several_groups
def test_several_groups_are_answered_in_the_order_asked_though_others_look_after_them(
    broker: RunningBroker, version: int
) -> None:
    group_ids = [f"group {number}" for number in range(9)]
    for number, group_id in enumerate(group_ids):
        commit(broker, group_id, ("rides", 0, number))
    asked = [
        {
            "group_id": group_id,
            "member_id": None,
            "member_epoch": -1,
            "topics": [{**broker.topic_ref("rides"), "partition_indexes": [0]}],
        }
        for group_id in group_ids
    ]
    assert len({broker.broker.groups.runtimes.partition_of(one) for one in group_ids}) == 3

    reply = broker.ask(Api.OFFSET_FETCH, version, groups=asked, require_stable=True)

    assert [one.group_id for one in reply.groups] == group_ids
    assert [one.topics[0].partitions[0].committed_offset for one in reply.groups] == list(range(9))


@every_version
def test_offsets_of_a_deleted_topic_do_not_serve_a_new_one_of_its_name(
    broker: RunningBroker, version: int
) -> None:
    commit(broker, "drivers", ("rides", 0, 7))
    broker.run(broker.broker.topics.delete("rides"))
    broker.create_topic("rides")

    assert offsets(broker, ask(broker, version, "drivers", {"rides": [0]})) == {
        ("rides", 0): NOTHING
    }


def test_not_even_when_the_groups_could_not_be_told_that_it_was_deleted(
    broker: RunningBroker,
) -> None:
    commit(broker, "drivers", ("rides", 0, 7))
    broker.broker.topics.on_changed = lambda: None
    broker.run(broker.broker.topics.delete("rides"))
    assert committed(broker, "drivers") == {("rides", 0): 7}

    broker.create_topic("rides")

    assert committed(broker, "drivers") == {("rides", 0): NOTHING}
    commit(broker, "drivers", ("rides", 0, 1))
    assert committed(broker, "drivers") == {("rides", 0): 1}


@pytest.fixture
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for a coordinator that does not begin to serve."""
    monkeypatch.setattr(runtimes, "ABOUT_TO_SERVE_S", 0)


@several_groups
@pytest.mark.usefixtures("_no_patience")
def test_while_the_groups_are_loaded_clients_are_told_to_ask_again(
    broker: RunningBroker, version: int
) -> None:
    begin_to_load(broker)

    found = ask(broker, version, "drivers", {"rides": [0, 1]})

    assert found.error_code == COORDINATOR_LOAD_IN_PROGRESS
    assert not found.topics


@one_group
@pytest.mark.usefixtures("_no_patience")
def test_of_one_group_they_are_told_so_of_each_partition_too(
    broker: RunningBroker, version: int
) -> None:
    """aiokafka looks nowhere else: it took that for nothing committed, and went on at the end."""
    begin_to_load(broker)

    found = ask(broker, version, "drivers", {"rides": [0, 1], "fares": [0]})

    assert version < 2 or found.error_code == COORDINATOR_LOAD_IN_PROGRESS
    assert [
        (topic.name, one.partition_index, one.committed_offset, one.error_code)
        for topic in found.topics
        for one in topic.partitions
    ] == [
        ("rides", 0, NOTHING, COORDINATOR_LOAD_IN_PROGRESS),
        ("rides", 1, NOTHING, COORDINATOR_LOAD_IN_PROGRESS),
        ("fares", 0, NOTHING, COORDINATOR_LOAD_IN_PROGRESS),
    ]


@every_version
def test_of_a_coordinator_that_is_not_available_clients_hear_that_it_is_not_here(
    broker: RunningBroker, version: int
) -> None:
    """They take the other word for fatal, in reply to this request."""
    number = broker.broker.groups.runtimes.partition_of("drivers")
    broker.take_offline(OFFSETS_TOPIC, number)

    found = ask(broker, version, "drivers", {"rides": [0]})

    told = found.topics[0].partitions[0] if version == 1 else found
    assert told.error_code == NOT_COORDINATOR


def test_before_anybody_looked_for_the_coordinator_there_is_none(
    running_broker: RunningBroker,
) -> None:
    found = ask(running_broker, 9, "drivers", {"rides": [0]})

    assert found.error_code == NOT_COORDINATOR
