"""SyncGroup, in every version."""

import asyncio

import pytest

from broker.group_client import (
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    REBALANCE_IN_PROGRESS,
    UNKNOWN_MEMBER_ID,
    Member,
    begin_to_load,
    settled,
    start_with_groups,
)
from broker.running_broker import RunningBroker, StartBroker
from broker.wire_client import versions
from respool.wire.api_table import Api

VERSIONS = versions(Api.SYNC_GROUP)
every_version = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_groups(start_broker)


@every_version
def test_everyone_gets_the_share_the_leader_brings(broker: RunningBroker, version: int) -> None:
    members = settled(broker, "drivers", 3)

    async def again() -> None:
        await asyncio.gather(*(one.join() for one in members))
        replies = await asyncio.gather(*(one.sync(version) for one in members))
        assert [one.error_code for one in replies] == [0, 0, 0]

    broker.run(again())

    for member in members:
        assert member.assignment == b"share of " + member.member_id.encode()


@pytest.mark.parametrize("version", VERSIONS[5:])
def test_from_version_5_the_chosen_protocol_is_told(broker: RunningBroker, version: int) -> None:
    (member,) = settled(broker, "drivers", 1)

    reply = broker.run(member.sync(version))

    assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize("version", VERSIONS[5:])
@pytest.mark.parametrize("name", ["protocol_type", "protocol_name"])
def test_from_version_5_another_protocol_than_the_groups_is_refused(
    broker: RunningBroker, version: int, name: str
) -> None:
    (member,) = settled(broker, "drivers", 1)

    reply = broker.run(member.sync(version, **{name: "another"}))

    assert reply.error_code == INCONSISTENT_GROUP_PROTOCOL


@every_version
def test_who_is_not_in_the_group_gets_nothing(broker: RunningBroker, version: int) -> None:
    (member,) = settled(broker, "drivers", 1)

    def sync(**changes: object) -> tuple[int, bytes]:
        reply = broker.run(Member(broker).sync(version, **changes))
        return reply.error_code, reply.assignment

    assert sync() == (UNKNOWN_MEMBER_ID, b"")
    assert sync(group_id="nobody") == (UNKNOWN_MEMBER_ID, b"")
    assert sync(group_id="") == (INVALID_GROUP_ID, b"")
    stale = {"member_id": member.member_id, "generation_id": member.generation - 1}
    assert sync(**stale) == (ILLEGAL_GENERATION, b"")
    assert member.heartbeat() == 0


@every_version
def test_a_member_that_waits_learns_when_the_group_shares_out_again(
    broker: RunningBroker, version: int
) -> None:
    members = settled(broker, "drivers", 2)

    async def again() -> int:
        await asyncio.gather(*(one.join() for one in members))
        (follower,) = [one for one in members if not one.is_leader]
        waiting = asyncio.ensure_future(follower.sync(version))
        newcomer = asyncio.ensure_future(Member(broker).join())
        reply = await waiting
        newcomer.cancel()
        return int(reply.error_code)

    assert broker.run(again()) == REBALANCE_IN_PROGRESS


@every_version
def test_while_the_groups_are_loaded_clients_are_told_to_join_again(
    broker: RunningBroker, version: int
) -> None:
    """Some of them do not know that groups are loaded here, and raise."""
    (member,) = settled(broker, "drivers", 1)
    begin_to_load(broker)

    assert broker.run(member.sync(version)).error_code == REBALANCE_IN_PROGRESS
