from typing import Any

import pytest

from coordination.transaction_world import (
    A0,
    A1,
    FIRST_PRODUCER_ID,
    TIMEOUT_MS,
    V0,
    V1,
    V2,
    TransactionWorld,
    add_of,
    end_of,
    error_of,
    told,
    written,
)
from respool.coordination.transactions.transaction_metadata import (
    LAST_USABLE_EPOCH,
    PRODUCER_EPOCH_MAX,
)
from respool.coordination.transactions.transaction_requests import (
    EndTransactionReply,
    ProducerIdNeeded,
    TransactionState,
    TransactionVersion,
    WriteMarkers,
)
from respool.model.coordinator_errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ProducerFenced,
)
from respool.model.ids import ProducerId

P0 = ProducerId(FIRST_PRODUCER_ID)
P1 = ProducerId(FIRST_PRODUCER_ID + 1)
BOTH = pytest.mark.parametrize("is_commit", [False, True])
RELOADED = pytest.mark.parametrize("is_reloaded", [False, True])


def open_world(version: TransactionVersion = V0) -> TransactionWorld:
    world = TransactionWorld()
    world.init()
    world.add(A0, A1, version=version)
    return world


# --- all versions


@BOTH
@pytest.mark.parametrize(("version", "epoch"), [(V0, 0), (V1, 0), (V2, 1)])
def test_the_end_is_decided_then_marked_then_complete(
    version: TransactionVersion, epoch: int, is_commit: bool
) -> None:
    world = open_world(version)
    assert world.end(is_commit=is_commit, version=version).error is None
    assert world.state().name == ("PREPARE_COMMIT" if is_commit else "PREPARE_ABORT")
    assert world.effects == [
        WriteMarkers(
            transactional_id="payments-1",
            producer_id=P0,
            producer_epoch=epoch,
            is_commit=is_commit,
            partitions=(A0, A1),
            version=version,
        )
    ]
    world.write_markers()
    assert world.state().name == ("COMPLETE_COMMIT" if is_commit else "COMPLETE_ABORT")
    assert world.describe().partitions == ()
    assert world.effects == []


@pytest.mark.parametrize("version", [V0, V2])
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": "unknown"}, InvalidProducerIdMapping),
        ({"transactional_id": ""}, InvalidProducerIdMapping),
        ({"producer_id": P1}, InvalidProducerIdMapping),
        ({"producer_epoch": 0}, ProducerFenced),
        ({"producer_epoch": 2}, ProducerFenced),
        ({"producer_epoch": -1}, ProducerFenced),
    ],
)
def test_others_end_nothing(
    fields: dict[str, Any], error: type, version: TransactionVersion
) -> None:
    world = TransactionWorld()
    world.init()
    world.init()
    world.add(A0, producer_epoch=1, version=version)
    before = len(world.log)
    reply = world.end(version=version, **({"producer_epoch": 1} | fields))
    assert reply == EndTransactionReply(error=reply.error)
    assert error_of(reply) is error
    assert len(world.log) == before


@pytest.mark.parametrize("version", [V0, V2])
def test_what_was_never_begun_cannot_be_committed(version: TransactionVersion) -> None:
    world = TransactionWorld()
    world.init()
    before = len(world.log)
    assert error_of(world.end(version=version)) is InvalidTransactionState
    assert len(world.log) == before


@BOTH
@RELOADED
@pytest.mark.parametrize("version", [V0, V2])
def test_the_outcome_cannot_be_changed(
    version: TransactionVersion, is_commit: bool, is_reloaded: bool
) -> None:
    world = open_world(version)
    world.end(is_commit=is_commit, version=version)
    if is_reloaded:
        world.reload()
    for _ in range(2):
        before = world.transaction
        reply = world.end(is_commit=not is_commit, version=version)
        assert error_of(reply) is InvalidTransactionState
        assert world.transaction == before
        if world.effects:
            world.write_markers()


@BOTH
@RELOADED
@pytest.mark.parametrize("version", [V0, V2])
def test_an_end_asked_for_again_waits_for_markers_and_is_answered_as_before(
    version: TransactionVersion, is_commit: bool, is_reloaded: bool
) -> None:
    world = open_world(version)
    first = world.end(is_commit=is_commit, version=version)
    if is_reloaded:
        world.reload()
    again = world.end(is_commit=is_commit, version=version)
    assert error_of(again) is ConcurrentTransactions
    world.write_markers()
    if is_reloaded:
        world.reload()
    assert world.end(is_commit=is_commit, version=version) == first
    assert world.effects == []


# --- before version 2


@pytest.mark.parametrize("version", [V0, V1])
def test_before_version_2_the_producer_keeps_its_epoch_and_is_told_none(
    version: TransactionVersion,
) -> None:
    world = open_world()
    assert world.end(version=version) == EndTransactionReply()
    world.write_markers()
    assert world.transaction.producer_epoch == 0
    assert world.add(A0) is None


def test_before_version_2_what_was_never_begun_cannot_be_aborted() -> None:
    world = TransactionWorld()
    world.init()
    assert error_of(world.end(is_commit=False)) is InvalidTransactionState


@BOTH
def test_before_version_2_an_end_lets_no_fenced_producer_come_back(is_commit: bool) -> None:
    world = TransactionWorld()
    world.init()
    world.init()
    world.add(A0, producer_epoch=1)
    world.end(is_commit=is_commit, producer_epoch=1)
    world.write_markers()
    assert error_of(world.init(producer_id=P0, producer_epoch=0)) is ProducerFenced
    assert error_of(world.end(is_commit=is_commit, version=V2)) is ProducerFenced


# --- version 2


@BOTH
def test_in_version_2_each_end_has_the_next_epoch(is_commit: bool) -> None:
    world = open_world(V2)
    for epoch in range(1, 4):
        reply = world.end(is_commit=is_commit, version=V2, producer_epoch=epoch - 1)
        assert told(reply) == (0, epoch)
        assert world.write_markers().producer_epoch == epoch
        assert world.add(A0, version=V2, producer_epoch=epoch) is None


def test_an_end_cannot_be_repeated_once_the_next_transaction_has_begun() -> None:
    world = open_world(V2)
    world.end(version=V2)
    world.write_markers()
    world.add(A0, version=V2, producer_epoch=1)
    before = world.transaction
    assert error_of(world.end(version=V2)) is ProducerFenced
    assert world.transaction == before


def test_an_end_cannot_be_repeated_by_whom_another_has_taken_over_from() -> None:
    world = open_world(V2)
    world.end(version=V2)
    world.write_markers()
    world.init()
    assert error_of(world.end(version=V2)) is ProducerFenced


def test_going_on_after_a_lost_answer_to_the_end_tells_the_epoch_of_the_end() -> None:
    world = open_world(V2)
    world.end(version=V2)
    world.write_markers()
    assert told(world.init(producer_id=P0, producer_epoch=0)) == (0, 1)


@RELOADED
def test_an_empty_transaction_can_be_aborted_and_that_repeated(is_reloaded: bool) -> None:
    world = TransactionWorld()
    world.init()
    assert told(world.end(is_commit=False, version=V2)) == (0, 1)
    if is_reloaded:
        world.reload()
    assert world.effects == []
    assert world.state() is TransactionState.COMPLETE_ABORT
    assert told(world.end(is_commit=False, version=V2)) == (0, 1)
    assert error_of(world.end(is_commit=True, version=V2)) is InvalidTransactionState
    assert told(world.end(is_commit=False, version=V2, producer_epoch=1)) == (0, 2)


@BOTH
def test_an_empty_transaction_after_another_can_be_aborted_not_committed(is_commit: bool) -> None:
    world = open_world(V2)
    world.end(is_commit=is_commit, version=V2)
    world.write_markers()
    reply = world.end(is_commit=True, version=V2, producer_epoch=1)
    assert error_of(reply) is InvalidTransactionState
    assert told(world.end(is_commit=False, version=V2, producer_epoch=1)) == (0, 2)


def test_an_empty_transaction_is_aborted_when_the_markers_of_the_last_are_written() -> None:
    world = open_world(V2)
    world.end(version=V2)
    ticket = world.ask(end_of(is_commit=False, version=V2, producer_epoch=1))
    assert world.is_waiting(ticket)
    world.write_markers()
    assert told(world.replies[ticket]) == (0, 2)
    assert world.state() is TransactionState.COMPLETE_ABORT


# --- epochs run out


def exhausted_world() -> TransactionWorld:
    world = TransactionWorld()
    world.init()
    world.set_epoch(LAST_USABLE_EPOCH)
    return world


LAST: dict[str, Any] = {"producer_epoch": LAST_USABLE_EPOCH, "version": V2}


@BOTH
@RELOADED
def test_after_the_last_epoch_the_producer_goes_on_with_a_new_producer_id(
    is_commit: bool, is_reloaded: bool
) -> None:
    world = exhausted_world()
    world.add(A0, **LAST)
    before = world.transaction
    assert world.now(end_of(is_commit=is_commit, **LAST)) == ProducerIdNeeded()
    assert world.transaction == before
    assert told(world.end(is_commit=is_commit, **LAST)) == (1, 0)
    if is_reloaded:
        world.reload()
    assert error_of(world.end(is_commit=is_commit, **LAST)) is ConcurrentTransactions
    # It begins with the new id before the old one's markers are written.
    ticket = world.ask(add_of(A1, producer_id=P1, producer_epoch=0, version=V2))
    assert world.is_waiting(ticket)
    effect = world.write_markers()
    assert (effect.producer_id, effect.producer_epoch) == (P0, PRODUCER_EPOCH_MAX)
    assert world.replies[ticket].error is None
    assert told(world.end(producer_id=P1, version=V2)) == (1, 1)


@BOTH
@RELOADED
def test_the_new_producer_id_is_told_again(is_commit: bool, is_reloaded: bool) -> None:
    world = exhausted_world()
    world.add(A0, **LAST)
    world.end(is_commit=is_commit, **LAST)
    world.write_markers()
    if is_reloaded:
        world.reload()
    assert told(world.end(is_commit=is_commit, **LAST)) == (1, 0)
    assert error_of(world.end(is_commit=not is_commit, **LAST)) is InvalidTransactionState
    world.add(A0, producer_id=P1, producer_epoch=0, version=V2)
    assert error_of(world.end(is_commit=is_commit, **LAST)) is InvalidProducerIdMapping


def test_an_empty_transaction_with_the_last_epoch_can_be_aborted() -> None:
    world = exhausted_world()
    assert told(world.end(is_commit=False, **LAST)) == (1, 0)
    assert told(world.end(is_commit=False, **LAST)) == (1, 0)
    assert told(world.end(is_commit=False, producer_id=P1, version=V2)) == (1, 1)


def test_before_version_2_the_last_epoch_ends_as_any() -> None:
    world = exhausted_world()
    world.add(A0, producer_epoch=LAST_USABLE_EPOCH)
    assert world.end(producer_epoch=LAST_USABLE_EPOCH) == EndTransactionReply()
    world.write_markers()
    assert world.add(A0, producer_epoch=LAST_USABLE_EPOCH) is None


# --- too late


@pytest.mark.parametrize("version", [V0, V2])
@RELOADED
def test_after_the_timeout_the_producer_is_fenced_whatever_it_wants(
    version: TransactionVersion, is_reloaded: bool
) -> None:
    world = open_world(version)
    world.advance(TIMEOUT_MS)
    assert world.state() is TransactionState.PREPARE_ABORT
    for _ in range(2):
        if is_reloaded:
            world.reload()
        for is_commit in (False, True):
            reply = world.end(is_commit=is_commit, version=version)
            assert error_of(reply) is ProducerFenced
        assert type(world.add(A0, version=version)) is ProducerFenced
        reply_to_init = world.init(producer_id=P0, producer_epoch=0)
        assert error_of(reply_to_init) is ProducerFenced
        if world.effects:
            assert world.write_markers().producer_epoch == 1
    assert told(world.init()) == (0, 2)


# --- markers


def test_markers_may_be_reported_in_parts() -> None:
    world = open_world()
    world.end()
    effect = world.effects.pop()
    world.now(written(effect, A1))
    assert world.state() is TransactionState.PREPARE_COMMIT
    world.now(written(effect, A1))
    assert world.state() is TransactionState.PREPARE_COMMIT
    world.now(written(effect, A0))
    assert world.state() is TransactionState.COMPLETE_COMMIT


def test_after_a_restart_all_markers_are_asked_for_again() -> None:
    world = open_world()
    world.end()
    effect = world.effects[0]
    world.now(written(effect, A1))
    world.reload()
    assert world.effects == [effect]
    world.now(written(effect, A0))
    assert world.state() is TransactionState.PREPARE_COMMIT
    world.now(written(effect, A1))
    assert world.state() is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize(
    "fields", [{"transactional_id": "unknown"}, {"producer_id": P1}, {"producer_epoch": 5}]
)
def test_a_report_about_another_transaction_changes_nothing(fields: dict[str, Any]) -> None:
    world = open_world()
    world.end()
    report = written(world.effects[0])
    other = type(report)(
        **{name: getattr(report, name) for name in type(report).__slots__} | fields
    )
    before = len(world.log)
    assert world.now(other) is None
    assert len(world.log) == before


def test_a_report_that_comes_again_changes_nothing() -> None:
    world = open_world(V2)
    world.end(version=V2)
    effect = world.write_markers()
    before = len(world.log)
    world.now(written(effect))
    assert len(world.log) == before
    world.add(A0, version=V2, producer_epoch=1)
    world.end(version=V2, producer_epoch=1)
    world.now(written(effect))
    assert world.state() is TransactionState.PREPARE_COMMIT
