"""TxnOffsetCommit: which producers may commit for a group (KIP-447), and when it counts."""

from typing import Any

import pytest

from coordination.group_world import GROUP, SESSION_MS, TOPIC, error_of
from coordination.txn_group_world import ONE, TWO, TxnGroupWorld
from respool.coordination.decision import RecordsProducer
from respool.coordination.groups.group_requests import (
    GroupState,
    OffsetToCommit,
    TopicToCommit,
    TxnOffsetCommit,
)
from respool.model.coordinator_errors import (
    FencedInstanceId,
    IllegalGeneration,
    InvalidGroupId,
    OffsetMetadataTooLarge,
    UnknownMemberId,
    UnstableOffsetCommit,
)
from respool.model.ids import Offset

RELOADED = pytest.mark.parametrize("is_reloaded", [False, True])


# --- when it counts


@RELOADED
@pytest.mark.parametrize(("is_commit", "offset"), [(True, 7), (False, 3)])
def test_an_offset_counts_when_the_transaction_is_committed(
    is_commit: bool, offset: int, is_reloaded: bool
) -> None:
    world = TxnGroupWorld()
    world.commit(3)
    assert world.commit_in(ONE, 7) is None
    if is_reloaded:
        world.reload()
    assert world.committed() == 3
    assert error_of(world.fetch(require_stable=True)) is UnstableOffsetCommit
    world.mark(ONE, is_commit=is_commit)
    if is_reloaded:
        world.reload()
    assert world.committed() == offset
    assert world.fetch(require_stable=True).offset == offset


def test_the_records_are_part_of_the_producers_transaction() -> None:
    world = TxnGroupWorld()
    world.commit_in(ONE, 7, producer_epoch=5)
    assert world.last_producer == RecordsProducer(producer_id=ONE, producer_epoch=5)


def test_what_is_refused_is_no_part_of_a_transaction() -> None:
    world = TxnGroupWorld()
    world.commit_in(ONE, 7, generation=5, member_id="m")
    assert world.last_producer is None
    assert world.entries == []


def test_one_transaction_ends_without_the_other() -> None:
    world = TxnGroupWorld()
    world.commit_in(ONE, 7, partition=0)
    world.commit_in(TWO, 8, partition=1)
    world.mark(TWO, is_commit=True)
    assert (world.committed(0), world.committed(1)) == (-1, 8)
    assert error_of(world.fetch(0, require_stable=True)) is UnstableOffsetCommit
    assert world.fetch(1, require_stable=True).error is None


def test_each_partition_has_its_own_result() -> None:
    world = TxnGroupWorld()
    partitions = (OffsetToCommit(0, Offset(1)), OffsetToCommit(1, Offset(2), metadata="x" * 4_097))
    request = TxnOffsetCommit(
        group_id=GROUP,
        producer_id=ONE,
        producer_epoch=0,
        topics=(TopicToCommit(TOPIC, partitions),),
    )
    results = world.now(request).topics[0].partitions
    assert [error_of(result) for result in results] == [None, OffsetMetadataTooLarge]
    world.mark(ONE, is_commit=True)
    assert (world.committed(0), world.committed(1)) == (1, -1)


# --- who may commit


def test_a_producer_that_names_no_member_may_commit_for_a_group_with_members() -> None:
    world = TxnGroupWorld()
    world.new_members(1)
    assert world.commit_in(ONE, 7) is None


def test_a_producer_may_commit_for_a_group_that_is_not_there_yet() -> None:
    world = TxnGroupWorld()
    assert world.commit_in(ONE, 7, member_id="whoever") is None


def test_a_producer_may_commit_for_a_member_of_the_generation() -> None:
    world = TxnGroupWorld()
    (one,) = world.new_members(1)
    assert world.commit_in(ONE, 7, member_id=one, generation=1) is None
    world.mark(ONE, is_commit=True)
    assert world.committed() == 7


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"generation": 0}, IllegalGeneration),
        ({"generation": 2}, IllegalGeneration),
        ({"generation": -1}, IllegalGeneration),
        ({"member_id": "nobody"}, UnknownMemberId),
        ({"member_id": ""}, UnknownMemberId),
        ({"instance_id": "i"}, UnknownMemberId),
    ],
)
def test_for_a_member_that_is_not_current_nothing_is_committed(
    fields: dict[str, Any], error: type
) -> None:
    world = TxnGroupWorld()
    (one,) = world.new_members(1)
    before = len(world.log)
    words: dict[str, Any] = {"member_id": one, "generation": 1}
    assert type(world.commit_in(ONE, 7, **(words | fields))) is error
    assert len(world.log) == before


def test_for_a_static_member_whose_place_another_took_nothing_is_committed() -> None:
    world = TxnGroupWorld()
    (one,) = world.new_static_members("i")
    assert world.commit_in(ONE, 7, member_id=one, instance_id="i", generation=1) is None
    error = world.commit_in(ONE, 7, member_id="another", instance_id="i", generation=1)
    assert type(error) is FencedInstanceId
    # Also for a producer that does not say the generation.
    error = world.commit_in(ONE, 7, member_id="another", instance_id="i")
    assert type(error) is FencedInstanceId


def test_a_member_may_commit_while_partitions_are_shared_out() -> None:
    world = TxnGroupWorld()
    (one,) = world.new_members(1)
    world.join(requires_known_member_id=False)
    world.join(one)
    assert world.state is GroupState.COMPLETING_REBALANCE
    assert world.commit_in(ONE, 7, member_id=one, generation=2) is None
    assert type(world.commit_in(ONE, 7, member_id=one, generation=1)) is IllegalGeneration


def test_committing_in_a_transaction_is_no_heartbeat() -> None:
    world = TxnGroupWorld()
    (one,) = world.new_members(1)
    world.advance(SESSION_MS - 1)
    assert world.commit_in(ONE, 7, member_id=one, generation=1) is None
    world.advance(1)
    assert type(world.commit_in(ONE, 7, member_id=one, generation=1)) is UnknownMemberId


def test_when_a_group_is_empty_whoever_names_no_generation_may_commit() -> None:
    world = TxnGroupWorld()
    (one,) = world.new_members(1)
    world.leave(one)
    assert world.commit_in(ONE, 7, member_id=one) is None
    assert type(world.commit_in(ONE, 7, member_id=one, generation=1)) is UnknownMemberId


def test_a_generation_of_a_group_that_is_not_there_is_illegal() -> None:
    world = TxnGroupWorld()
    assert type(world.commit_in(ONE, 7, member_id="m", generation=1)) is IllegalGeneration
    world.commit(3)
    assert type(world.commit_in(ONE, 7, member_id="m", generation=1)) is UnknownMemberId


def test_a_group_of_no_possible_name_is_refused() -> None:
    world = TxnGroupWorld()
    assert type(world.commit_in(ONE, 7, group_id="x" * 40_000)) is InvalidGroupId


# --- groups of the next-generation protocol


def consumer_world() -> TxnGroupWorld:
    world = TxnGroupWorld()
    world.make_topic(TOPIC, 2)
    world.consumers(1, TOPIC)
    return world


def test_a_producer_may_commit_for_a_member_at_its_epoch() -> None:
    world = consumer_world()
    epoch = world.group().members["m0"].epoch
    assert world.commit_in(ONE, 7, member_id="m0", generation=epoch) is None


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        # Producers know no stale member epochs.
        ({"generation": 0}, IllegalGeneration),
        ({"generation": 99}, IllegalGeneration),
        ({"generation": -1}, IllegalGeneration),
        ({"member_id": "nobody"}, UnknownMemberId),
        ({"member_id": "", "generation": 1}, UnknownMemberId),
        ({"member_id": "", "generation": -1, "instance_id": "taxi"}, UnknownMemberId),
    ],
)
def test_for_a_member_at_another_epoch_nothing_is_committed(
    fields: dict[str, Any], error: type
) -> None:
    world = consumer_world()
    epoch = world.group().members["m0"].epoch
    before = len(world.log)
    words: dict[str, Any] = {"member_id": "m0", "generation": epoch}
    assert type(world.commit_in(ONE, 7, **(words | fields))) is error
    assert len(world.log) == before


def test_a_producer_that_names_no_member_may_commit_for_a_consumer_group_with_members() -> None:
    """Those who speak versions 0 to 2 can name none, and some others do not (KAFKA-18060)."""
    world = consumer_world()
    assert world.commit_in(ONE, 7, member_id="", generation=-1) is None


def test_when_a_consumer_group_is_empty_whoever_names_no_generation_may_commit() -> None:
    world = consumer_world()
    epoch = world.group().members["m0"].epoch
    world.beat("m0", -1)
    assert world.commit_in(ONE, 7) is None
    assert type(world.commit_in(ONE, 7, member_id="m0", generation=epoch)) is UnknownMemberId
