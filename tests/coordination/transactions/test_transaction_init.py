import logging
from typing import Any

import pytest

from coordination.transaction_world import (
    A0,
    FIRST_PRODUCER_ID,
    ID,
    TIMEOUT_MS,
    V0,
    V2,
    TransactionWorld,
    error_of,
    init_of,
    told,
)
from respool.coordination.transactions.transaction_metadata import (
    LAST_USABLE_EPOCH,
    PRODUCER_EPOCH_MAX,
)
from respool.coordination.transactions.transaction_requests import (
    InitProducerIdReply,
    ProducerIdNeeded,
    TransactionState,
    TransactionVersion,
)
from respool.model.coordinator_errors import InvalidTransactionTimeout, ProducerFenced
from respool.model.errors import InvalidRequest
from respool.model.ids import ProducerId

P0 = ProducerId(FIRST_PRODUCER_ID)
P1 = ProducerId(FIRST_PRODUCER_ID + 1)


# --- a new producer


def test_a_new_transactional_id_needs_a_producer_id_and_nothing_is_written_without() -> None:
    world = TransactionWorld()
    assert world.now(init_of()) == ProducerIdNeeded()
    assert world.log == []
    assert told(world.init()) == (0, 0)
    assert world.describe().timeout_ms == TIMEOUT_MS


def test_each_new_producer_has_the_next_epoch_of_the_same_producer_id() -> None:
    world = TransactionWorld()
    assert [told(world.init()) for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]
    world.reload()
    assert told(world.init()) == (0, 3)


def test_a_new_producer_brings_its_own_timeout() -> None:
    world = TransactionWorld()
    world.init()
    world.init(timeout_ms=5)
    assert world.describe().timeout_ms == 5


def test_a_producer_id_that_is_not_needed_is_not_used() -> None:
    world = TransactionWorld()
    world.init()
    reply = world.now(init_of(new_producer_id=ProducerId(77)))
    assert told(reply) == (0, 1)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, InvalidRequest),
        ({"transactional_id": "x" * 40_000}, InvalidRequest),
        ({"transactional_id": "ö" * 16_384}, InvalidRequest),
        ({"timeout_ms": 0}, InvalidTransactionTimeout),
        ({"timeout_ms": -1}, InvalidTransactionTimeout),
        ({"timeout_ms": 900_001}, InvalidTransactionTimeout),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(fields: dict[str, Any], error: type) -> None:
    world = TransactionWorld()
    reply = world.now(init_of(new_producer_id=P0, **fields))
    assert error_of(reply) is error
    assert world.log == []


def test_the_longest_timeout_and_the_longest_name_are_allowed() -> None:
    world = TransactionWorld()
    assert told(world.init(timeout_ms=900_000)) == (0, 0)
    assert told(world.init("ö" * 16_383)) == (1, 0)


def test_the_operator_is_told_whose_open_transaction_a_new_producer_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = TransactionWorld()
    world.init()
    with caplog.at_level(logging.INFO):
        world.ask(init_of())
        assert not caplog.messages
        world.add(A0, producer_epoch=1)
        world.ask(init_of())
    assert caplog.messages == [
        f"{ID!r}: the transaction of producer {P0}, epoch 1 is aborted: its id was taken over"
    ]


# --- one that goes on (KIP-360)


def test_a_producer_that_goes_on_has_the_next_epoch() -> None:
    world = TransactionWorld()
    world.init()
    assert told(world.init(producer_id=P0, producer_epoch=0)) == (0, 1)


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_producer_whose_answer_was_lost_is_told_the_same_again(is_reloaded: bool) -> None:
    world = TransactionWorld()
    world.init()
    world.init(producer_id=P0, producer_epoch=0)
    if is_reloaded:
        world.reload()
    assert told(world.init(producer_id=P0, producer_epoch=0)) == (0, 1)
    assert told(world.init(producer_id=P0, producer_epoch=0)) == (0, 1)
    assert told(world.init(producer_id=P0, producer_epoch=1)) == (0, 2)


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_producer_that_another_took_over_from_is_fenced(is_reloaded: bool) -> None:
    world = TransactionWorld()
    world.init()
    world.init()
    if is_reloaded:
        world.reload()
    before = len(world.log)
    assert error_of(world.init(producer_id=P0, producer_epoch=0)) is ProducerFenced
    assert len(world.log) == before


@pytest.mark.parametrize(
    ("producer_id", "epoch"), [(P0, 0), (P0, 3), (P0, PRODUCER_EPOCH_MAX), (P1, 2), (P1, 0)]
)
def test_who_is_neither_the_current_producer_nor_the_one_before_is_fenced(
    producer_id: ProducerId, epoch: int
) -> None:
    world = TransactionWorld()
    world.init()
    world.init(producer_id=P0, producer_epoch=0)
    world.init(producer_id=P0, producer_epoch=1)
    reply = world.init(producer_id=producer_id, producer_epoch=epoch)
    assert error_of(reply) is ProducerFenced


def test_a_producer_that_was_forgotten_begins_with_a_new_producer_id() -> None:
    world = TransactionWorld()
    assert told(world.init(producer_id=ProducerId(5), producer_epoch=3)) == (0, 0)


def test_a_lost_answer_cannot_be_asked_for_once_the_producer_works_with_it() -> None:
    world = TransactionWorld()
    world.init()
    world.init(producer_id=P0, producer_epoch=0)
    assert world.add(A0, producer_epoch=1) is None
    before = world.transaction
    assert error_of(world.init(producer_id=P0, producer_epoch=0)) is ProducerFenced
    assert world.transaction == before


# --- while a transaction is open


@pytest.mark.parametrize("version", [V0, V2])
def test_a_new_producer_aborts_what_is_open_and_hears_when_that_is_done(
    version: TransactionVersion,
) -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0, version=version)
    ticket = world.ask(init_of())
    assert world.is_waiting(ticket)
    assert world.state() is TransactionState.PREPARE_ABORT
    effect = world.write_markers()
    assert (effect.is_commit, effect.partitions) == (False, (A0,))
    # The one that was never told lies between.
    assert effect.producer_epoch == 1
    assert told(world.replies[ticket]) == (0, 2)
    assert world.state() is TransactionState.EMPTY


def test_the_old_producer_is_fenced_at_once() -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0)
    world.ask(init_of())
    assert type(world.add(A0)) is ProducerFenced
    assert error_of(world.end()) is ProducerFenced
    assert error_of(world.end(is_commit=False, version=V2)) is ProducerFenced
    assert error_of(world.init(producer_id=P0, producer_epoch=0)) is ProducerFenced
    world.write_markers()
    assert error_of(world.end(is_commit=False, version=V2)) is ProducerFenced


def test_a_producer_that_goes_on_aborts_its_own_transaction_and_is_not_fenced_by_that() -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0)
    ticket = world.ask(init_of(producer_id=P0, producer_epoch=0))
    assert world.is_waiting(ticket)
    world.write_markers()
    assert told(world.replies[ticket]) == (0, 1)
    assert told(world.init(producer_id=P0, producer_epoch=0)) == (0, 1)
    assert told(world.init(producer_id=P0, producer_epoch=1)) == (0, 2)


def test_a_zombie_that_wants_to_go_on_does_not_disturb_the_open_transaction() -> None:
    world = TransactionWorld()
    world.init()
    world.init()
    world.add(A0, producer_epoch=1)
    assert error_of(world.init(producer_id=P0, producer_epoch=0)) is ProducerFenced
    assert world.state() is TransactionState.ONGOING


# --- epochs run out


def test_after_the_last_epoch_comes_a_new_producer_id() -> None:
    world = TransactionWorld()
    world.init()
    world.set_epoch(LAST_USABLE_EPOCH)
    before = world.transaction
    assert world.now(init_of()) == ProducerIdNeeded()
    assert world.transaction == before
    assert told(world.init()) == (1, 0)
    assert told(world.init()) == (1, 1)
    assert error_of(world.init(producer_id=P0, producer_epoch=LAST_USABLE_EPOCH)) is ProducerFenced


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_the_new_producer_id_is_told_again_to_who_asked_for_it(is_reloaded: bool) -> None:
    world = TransactionWorld()
    world.init()
    world.set_epoch(LAST_USABLE_EPOCH)
    last: dict[str, Any] = {"producer_id": P0, "producer_epoch": LAST_USABLE_EPOCH}
    assert told(world.init(**last)) == (1, 0)
    if is_reloaded:
        world.reload()
    assert told(world.init(**last)) == (1, 0)
    assert told(world.init(producer_id=P1, producer_epoch=0)) == (1, 1)
    assert error_of(world.init(**last)) is ProducerFenced


def test_a_new_producer_id_nobody_asked_for_is_not_told_to_the_old_producer() -> None:
    world = TransactionWorld()
    world.init()
    world.set_epoch(LAST_USABLE_EPOCH)
    world.init()
    assert error_of(world.init(producer_id=P0, producer_epoch=LAST_USABLE_EPOCH)) is ProducerFenced


def test_the_last_epoch_is_told_again_when_its_answer_was_lost() -> None:
    world = TransactionWorld()
    world.init()
    world.set_epoch(LAST_USABLE_EPOCH - 1)
    before: dict[str, Any] = {"producer_id": P0, "producer_epoch": LAST_USABLE_EPOCH - 1}
    assert told(world.init(**before)) == (0, LAST_USABLE_EPOCH)
    assert told(world.init(**before)) == (0, LAST_USABLE_EPOCH)


@pytest.mark.parametrize("goes_on", [False, True])
def test_fencing_the_last_epoch_leads_to_a_new_producer_id(goes_on: bool) -> None:
    world = TransactionWorld()
    world.init()
    world.set_epoch(LAST_USABLE_EPOCH)
    world.add(A0, producer_epoch=LAST_USABLE_EPOCH)
    going_on = {"producer_id": P0, "producer_epoch": LAST_USABLE_EPOCH}
    fields: dict[str, Any] = going_on if goes_on else {}
    ticket = world.ask(init_of(**fields))
    assert world.write_markers().producer_epoch == PRODUCER_EPOCH_MAX
    assert world.replies[ticket] == ProducerIdNeeded()
    assert told(world.init(**fields)) == (1, 0)


def test_nobody_works_with_the_epoch_that_is_kept_free() -> None:
    world = TransactionWorld()
    world.init()
    world.set_epoch(LAST_USABLE_EPOCH)
    world.add(A0, producer_epoch=LAST_USABLE_EPOCH)
    world.advance(TIMEOUT_MS)
    world.write_markers()
    assert world.transaction.producer_epoch == PRODUCER_EPOCH_MAX
    assert type(world.add(A0, producer_epoch=PRODUCER_EPOCH_MAX)) is ProducerFenced
    for version in (V0, V2):
        reply = world.end(is_commit=False, producer_epoch=PRODUCER_EPOCH_MAX, version=version)
        assert error_of(reply) is ProducerFenced


def test_an_error_tells_no_producer_id() -> None:
    reply = TransactionWorld().now(init_of(timeout_ms=0))
    assert (reply.producer_id, reply.producer_epoch) == (-1, -1)
    assert InitProducerIdReply(error=reply.error) == reply


def test_ids_do_not_know_each_other() -> None:
    world = TransactionWorld()
    assert told(world.init(ID)) == (0, 0)
    assert told(world.init("other")) == (1, 0)
    assert told(world.init(ID)) == (0, 1)
