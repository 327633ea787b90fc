"""ConsumerGroupDescribe (KIP-848), in every version."""

from typing import Any

import pytest

from broker.group_client import (
    COORDINATOR_LOAD_IN_PROGRESS,
    GROUP_ID_NOT_FOUND,
    begin_to_load,
    settled,
    start_with_groups,
)
from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.CONSUMER_GROUP_DESCRIBE)
every_version = pytest.mark.parametrize("version", VERSIONS)
# read, delete, describe
MAY_ALL = 3_400
NOT_ASKED = -(2**31)
CONSUMER_MEMBER = 1


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    broker = start_with_groups(start_broker)
    broker.create_topic("rides", partitions=2)
    return broker


def join(broker: RunningBroker, group_id: str) -> None:
    reply = broker.ask(
        Api.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id=group_id,
        member_id="cab",
        member_epoch=0,
        instance_id="cab-7",
        rack_id="north",
        rebalance_timeout=30_000,
        subscribed_topic_names=["rides"],
        server_assignor="range",
        topic_partitions=[],
    )
    assert reply.error_code == 0


def ask(broker: RunningBroker, version: int, *group_ids: str, operations: bool = False) -> Any:
    return broker.ask(
        Api.CONSUMER_GROUP_DESCRIBE,
        version,
        group_ids=group_ids,
        include_authorized_operations=operations,
    ).groups


@every_version
def test_members_what_they_have_and_shall_have(broker: RunningBroker, version: int) -> None:
    join(broker, "drivers")

    (group,) = ask(broker, version, "drivers")

    assert (group.error_code, group.error_message, group.group_state) == (0, None, "Stable")
    assert (group.group_epoch, group.assignment_epoch, group.assignor_name) == (1, 1, "range")
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id) == ("cab", "cab-7", "north")
    assert (member.member_epoch, member.client_id) == (1, "tester")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (("rides",), None)
    for assignment in (member.assignment, member.target_assignment):
        (share,) = assignment.topic_partitions
        assert share.topic_id == broker.broker.image.topics["rides"].id
        assert (share.topic_name, share.partitions) == ("rides", (0, 1))
    assert getattr(member, "member_type", CONSUMER_MEMBER) == CONSUMER_MEMBER


@every_version
def test_every_group_asked_for_is_answered_in_order(broker: RunningBroker, version: int) -> None:
    """librdkafka ends its process otherwise."""
    join(broker, "drivers")
    settled(broker, "classic", 1)
    asked = [*(f"group {number}" for number in range(5)), "drivers", "classic", "drivers", ""]

    groups = ask(broker, version, *asked)

    assert [one.group_id for one in groups] == asked
    missing = GROUP_ID_NOT_FOUND
    assert [one.error_code for one in groups] == [*[missing] * 5, 0, missing, 0, missing]
    assert all(bool(one.error_message) == bool(one.error_code) for one in groups)


@every_version
def test_one_may_ask_what_one_may_do(broker: RunningBroker, version: int) -> None:
    join(broker, "drivers")

    assert ask(broker, version, "drivers")[0].authorized_operations == NOT_ASKED
    assert ask(broker, version, "drivers", operations=True)[0].authorized_operations == MAY_ALL
    assert ask(broker, version, "nobody", operations=True)[0].authorized_operations == NOT_ASKED


@every_version
def test_while_the_groups_are_loaded_clients_are_told_to_ask_again(
    broker: RunningBroker, version: int
) -> None:
    begin_to_load(broker)

    groups = ask(broker, version, "drivers", "others")

    assert [one.error_code for one in groups] == [COORDINATOR_LOAD_IN_PROGRESS] * 2
