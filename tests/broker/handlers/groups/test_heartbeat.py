"""Heartbeat, in every version."""

import pytest

from broker.group_client import (
    FENCED_INSTANCE_ID,
    ILLEGAL_GENERATION,
    INVALID_GROUP_ID,
    NOT_COORDINATOR,
    REBALANCE_IN_PROGRESS,
    SESSION_TIMEOUT_MS,
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

VERSIONS = versions(Api.HEARTBEAT)
every_version = pytest.mark.parametrize("version", VERSIONS)


@pytest.fixture
def broker(start_broker: StartBroker) -> RunningBroker:
    return start_with_groups(start_broker)


@every_version
def test_a_member_stays_while_its_heart_beats(broker: RunningBroker, version: int) -> None:
    (member,) = settled(broker, "drivers", 1)

    for _ in range(5):
        let_pass(broker, SESSION_TIMEOUT_MS - 1)
        assert member.heartbeat(version) == 0
    let_pass(broker, SESSION_TIMEOUT_MS)
    assert member.heartbeat(version) == UNKNOWN_MEMBER_ID


@every_version
def test_members_learn_by_it_that_they_must_join_again(broker: RunningBroker, version: int) -> None:
    (member,) = settled(broker, "drivers", 1)

    newcomer = broker.start(Member(broker).join())

    assert member.heartbeat(version) == REBALANCE_IN_PROGRESS
    member.leave()
    assert broker.finish(newcomer).error_code == 0


@every_version
def test_it_is_for_members_of_the_current_generation(broker: RunningBroker, version: int) -> None:
    (member,) = settled(broker, "drivers", 1)

    assert member.heartbeat(version, generation_id=7) == ILLEGAL_GENERATION
    assert member.heartbeat(version, member_id="nobody") == UNKNOWN_MEMBER_ID
    assert member.heartbeat(version, group_id="nobody") == UNKNOWN_MEMBER_ID
    assert member.heartbeat(version, group_id="") == INVALID_GROUP_ID


@pytest.mark.parametrize("version", VERSIONS[3:])
def test_a_static_member_that_was_replaced_is_fenced(broker: RunningBroker, version: int) -> None:
    first = Member(broker, instance_id="cab-7")
    first.settle()
    Member(broker, instance_id="cab-7").settle()

    assert first.heartbeat(version) == FENCED_INSTANCE_ID


@every_version
def test_while_the_groups_are_loaded_all_is_taken_to_be_well(
    broker: RunningBroker, version: int
) -> None:
    """aiokafka gave up at any other answer: it stopped its heartbeats, and raised."""
    (member,) = settled(broker, "drivers", 1)
    begin_to_load(broker)

    assert member.heartbeat(version) == 0


@every_version
def test_before_anybody_looked_for_the_coordinator_there_is_none(
    running_broker: RunningBroker, version: int
) -> None:
    assert Member(running_broker).heartbeat(version) == NOT_COORDINATOR


@every_version
def test_nobody_is_told_of_what_is_not_safe_yet(broker: RunningBroker, version: int) -> None:
    (member,) = settled(broker, "drivers", 1)
    broker.offload.hold()
    # Its assignment is written anew, and is not on the disk.
    again = broker.start(member.join_and_sync())
    beat = broker.start(
        broker.answer(
            Api.HEARTBEAT,
            version,
            group_id="drivers",
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=None,
        )
    )
    assert not beat.done()

    broker.run(_release(broker))

    assert broker.finish(beat).error_code == 0
    broker.finish(again)


async def _release(broker: RunningBroker) -> None:
    broker.offload.release()
