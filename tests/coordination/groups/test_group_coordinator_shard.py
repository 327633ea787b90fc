import logging
from dataclasses import replace

import pytest

from coordination.group_world import (
    DELAY_MS,
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    GroupWorld,
    error_of,
)
from respool.coordination.decision import CoordinatorRecord
from respool.coordination.groups.group_records import read_group_value, write_group_value
from respool.coordination.groups.group_requests import GroupState
from respool.coordination.groups.offset_records import offset_key_prefix
from respool.coordination.record_bytes import CoordinatorRecordDamaged
from respool.model.coordinator_errors import (
    IllegalGeneration,
    UnknownMemberId,
    UnstableOffsetCommit,
)
from respool.model.ids import ProducerId

# --- the coordinator is lost and starts again


def test_members_of_a_stable_group_notice_nothing() -> None:
    world = GroupWorld()
    ids = world.new_members(3)
    before = world.describe()
    world.reload()
    assert world.describe() == before
    assert all(world.heartbeat(one, 1).error is None for one in ids)
    assert world.state is GroupState.STABLE


def test_sessions_begin_anew() -> None:
    world = GroupWorld()
    ids = world.new_members(2)
    world.advance(SESSION_MS // 2)
    world.reload()
    world.advance(SESSION_MS - 1)
    assert all(world.heartbeat(one, 1).error is None for one in ids)
    world.advance(SESSION_MS)
    assert world.state is GroupState.EMPTY


def test_a_rebalance_under_way_is_forgotten_and_done_again() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    assert [reply.generation for reply in world.rejoin(one, two)] == [2, 2]
    world.reload()
    assert world.state is GroupState.STABLE
    assert error_of(world.synced(world.sync(two, 2))) is IllegalGeneration
    assert [reply.generation for reply in world.rejoin(one, two)] == [2, 2]


def test_members_that_came_with_the_rebalance_under_way_join_again_as_new_ones() -> None:
    world = GroupWorld()
    ticket = world.join(requires_known_member_id=False)
    world.advance(DELAY_MS)
    new = world.joined(ticket).member_id
    world.reload()
    assert error_of(world.synced(world.sync(new, 1))) is UnknownMemberId
    assert error_of(world.joined(world.join(new))) is UnknownMemberId


def test_loading_takes_the_last_record_of_each_group() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    world.leave(two)
    world.rejoin(one)
    world.sync(one, 2, shares={one: b"all"})
    world.reload()
    (member,) = world.describe().members
    assert (member.member_id, member.assignment) == (one, b"all")
    assert world.heartbeat(one, 2).error is None


def test_a_loaded_member_may_bring_its_other_protocols_again() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    world.reload()
    reply = world.rejoin(one, two)[0]
    assert (reply.generation, reply.protocol_name) == (2, "range")


def test_a_record_whose_leader_is_no_member_is_led_by_the_first() -> None:
    world = GroupWorld()
    one, two = world.new_members(2)
    record = world.log[-1]
    assert record.value is not None
    stored = replace(read_group_value(record.value), leader="gone")
    world.log[-1] = CoordinatorRecord(key=record.key, value=write_group_value(stored))
    world.reload()
    assert world.joined(world.join(two)).leader == one


# --- records


def test_records_of_unknown_kinds_are_skipped_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = GroupWorld()
    unknown = CoordinatorRecord(key=b"\0\x63" + b"whatever", value=b"whatever")
    with caplog.at_level(logging.WARNING):
        world.shard.replay(unknown)
        world.shard.replay(unknown)
    assert [record.getMessage() for record in caplog.records] == [
        "records of kind 99 are unknown here and skipped"
    ]


@pytest.mark.parametrize(
    "record",
    [
        CoordinatorRecord(key=b"", value=b""),
        CoordinatorRecord(key=b"\0\2", value=None),
        CoordinatorRecord(key=b"\0\2\0\1g", value=b"\0\3"),
        CoordinatorRecord(key=offset_key_prefix("g", "t"), value=b"\0\3"),
        CoordinatorRecord(key=offset_key_prefix("g", "t"), value=None),
    ],
)
def test_a_damaged_record_stops_the_loading(record: CoordinatorRecord) -> None:
    world = GroupWorld()
    world.commit(1)
    with pytest.raises(CoordinatorRecordDamaged):
        world.shard.replay(record)
    assert world.committed() == 1


def test_a_groups_tombstone_takes_it_out() -> None:
    world = GroupWorld()
    world.leave(*world.new_members(1))
    world.shard.replay(CoordinatorRecord(key=world.log[-1].key, value=None))
    assert world.state is GroupState.DEAD


def test_offsets_of_deleted_topics_go() -> None:
    world = GroupWorld()
    world.commit(1, topic=TOPIC)
    world.commit(1, topic="other")
    world.carry_out(world.shard.on_topics_deleted([TOPIC], now_ms=world.now_ms))
    assert (world.committed(), world.committed(topic="other")) == (-1, 1)
    world.reload()
    assert world.committed() == -1


def test_records_of_a_transaction_wait_for_its_end() -> None:
    world = GroupWorld()
    world.commit(1)
    world.commit(9)
    record = world.log.pop()
    world.reload()
    world.shard.replay(record, producer_id=ProducerId(4))
    assert world.committed() == 1
    assert type(world.fetch(require_stable=True).error) is UnstableOffsetCommit
    world.shard.replay_end_transaction(ProducerId(4), is_committed=True)
    assert world.fetch(require_stable=True).offset == 9


# --- timers


def test_a_group_has_one_timer_and_none_when_it_is_gone() -> None:
    world = GroupWorld()
    ids = world.new_members(3)
    assert [key for key in world.timers if GROUP in key] == [("classic group", GROUP)]
    world.leave(*ids)
    world.advance(REBALANCE_MS)
    assert not [key for key in world.timers if GROUP in key]


def test_a_timer_of_a_group_that_is_gone_does_nothing() -> None:
    world = GroupWorld()
    decision = world.shard.on_timer(("classic group", "nobody"), now_ms=world.now_ms)
    assert decision == type(decision)()


def test_groups_do_not_know_each_other() -> None:
    world = GroupWorld()
    (one,) = world.new_members(1)
    assert error_of(world.heartbeat(one, 1, group_id="other")) is UnknownMemberId
    world.commit(1, member_id=one, generation=1)
    assert world.committed(group_id="other") == -1
