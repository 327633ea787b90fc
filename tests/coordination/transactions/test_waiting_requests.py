from coordination.transaction_world import (
    A0,
    A1,
    FIRST_PRODUCER_ID,
    V2,
    TransactionWorld,
    add_of,
    end_of,
    error_of,
    init_of,
    told,
)
from respool.coordination.transactions.transaction_requests import TransactionState
from respool.coordination.transactions.waiting_requests import WAITING_PER_ID_MAX, WAITING_TIMER
from respool.model.coordinator_errors import ConcurrentTransactions, ProducerFenced
from respool.model.ids import ProducerId

HOLD_MS = 1_000
P0 = ProducerId(FIRST_PRODUCER_ID)


def prepared_world() -> TransactionWorld:
    world = TransactionWorld()
    world.init()
    world.add(A0, version=V2)
    world.end(version=V2)
    return world


def test_requests_that_wait_too_long_are_sent_back() -> None:
    world = prepared_world()
    tickets = [world.ask(init_of()), world.ask(add_of(A0, producer_epoch=1))]
    world.advance(HOLD_MS // 2)
    later = world.ask(end_of(is_commit=False, producer_epoch=1, version=V2))
    world.advance(HOLD_MS // 2 - 1)
    assert all(world.is_waiting(ticket) for ticket in tickets)
    world.advance(1)
    assert [error_of(world.replies[ticket]) for ticket in tickets] == [ConcurrentTransactions] * 2
    assert world.is_waiting(later)
    world.advance(HOLD_MS // 2)
    assert error_of(world.replies[later]) is ConcurrentTransactions
    assert not world.shard._waiting._by_id
    assert WAITING_TIMER not in world.timers


def test_what_was_sent_back_does_not_come_to_pass_later() -> None:
    world = prepared_world()
    world.ask(add_of(A1, producer_epoch=1))
    world.advance(HOLD_MS)
    world.write_markers()
    assert world.state() is TransactionState.COMPLETE_COMMIT


def test_requests_are_decided_in_their_order_each_from_what_the_one_before_left() -> None:
    world = prepared_world()
    new_ones = [world.ask(init_of()) for _ in range(2)]
    going_on = world.ask(init_of(producer_id=P0, producer_epoch=1))
    world.write_markers()
    assert [told(world.replies[ticket]) for ticket in new_ones] == [(0, 2), (0, 3)]
    assert error_of(world.replies[going_on]) is ProducerFenced
    world.reload()
    assert world.transaction.producer_epoch == 3


def test_a_request_may_have_to_wait_once_more_and_its_time_runs_on() -> None:
    world = prepared_world()
    adding = world.ask(add_of(A1, version=V2, producer_epoch=1))
    world.advance(HOLD_MS // 2)
    taking_over = world.ask(init_of())
    world.write_markers()
    # The old producer has begun another, which the new one aborts.
    assert world.replies[adding].error is None
    assert world.is_waiting(taking_over)
    assert world.state() is TransactionState.PREPARE_ABORT
    world.advance(HOLD_MS // 2 - 1)
    assert world.is_waiting(taking_over)
    effect = world.write_markers()
    assert (effect.partitions, effect.is_commit) == ((A1,), False)
    assert told(world.replies[taking_over]) == (0, 3)


def test_one_that_waits_again_is_sent_back_in_its_time() -> None:
    world = prepared_world()
    world.ask(add_of(A1, version=V2, producer_epoch=1))
    taking_over = world.ask(init_of())
    world.advance(HOLD_MS - 1)
    world.write_markers()
    assert world.is_waiting(taking_over)
    world.advance(1)
    assert error_of(world.replies[taking_over]) is ConcurrentTransactions


def test_only_so_many_wait_for_one_id() -> None:
    world = prepared_world()
    tickets = [world.ask(init_of()) for _ in range(WAITING_PER_ID_MAX + 1)]
    assert all(world.is_waiting(ticket) for ticket in tickets[:-1])
    assert error_of(world.replies[tickets[-1]]) is ConcurrentTransactions


def test_a_restart_forgets_who_waits() -> None:
    world = prepared_world()
    ticket = world.ask(add_of(A1, version=V2, producer_epoch=1))
    world.reload()
    world.write_markers()
    assert world.is_waiting(ticket)
    assert world.state() is TransactionState.COMPLETE_COMMIT


def test_waiting_goes_on_after_a_pause() -> None:
    world = prepared_world()
    world.ask(init_of())
    world.write_markers()
    world.advance(10 * HOLD_MS)
    world.add(A0, producer_epoch=2)
    world.end(producer_epoch=2)
    ticket = world.ask(init_of())
    world.advance(HOLD_MS - 1)
    assert world.is_waiting(ticket)
    world.advance(1)
    assert error_of(world.replies[ticket]) is ConcurrentTransactions
