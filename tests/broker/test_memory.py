import pytest

from respool.broker.memory import MemoryBudget


def test_memory_beyond_the_limit_is_refused_and_nothing_is_taken() -> None:
    budget = MemoryBudget(100)
    assert budget.try_take(60)
    assert not budget.try_take(41)
    assert budget.used == 60
    assert budget.try_take(40)


def test_a_single_request_larger_than_all_is_granted_when_nobody_holds_any() -> None:
    # Otherwise it could never be read, and its client would retry for ever.
    budget = MemoryBudget(100)
    assert budget.try_take(150)
    assert budget.available == -50


def test_everyone_who_waits_is_woken_once_when_memory_comes_back() -> None:
    budget = MemoryBudget(100)
    budget.take(100)
    woken: list[str] = []
    budget.when_room(lambda: woken.append("first"))
    budget.when_room(lambda: woken.append("second"))
    budget.give(10)
    budget.give(10)
    assert woken == ["first", "second"]


def test_a_waiter_that_finds_too_little_may_wait_again() -> None:
    budget = MemoryBudget(100)
    budget.take(100)
    tries: list[int] = []

    def try_again() -> None:
        tries.append(budget.available)
        if not budget.try_take(50):
            budget.when_room(try_again)

    budget.when_room(try_again)
    budget.give(20)
    budget.give(40)
    assert tries == [20, 60]
    assert budget.used == 90


def test_giving_back_more_than_was_taken_is_a_broken_invariant() -> None:
    with pytest.raises(AssertionError):
        MemoryBudget(100).give(1)


def test_replies_leave_a_part_for_requests() -> None:
    # Else consumers that take nothing would stop every producer.
    budget = MemoryBudget(100)
    budget.take(75)
    assert budget.available_for_replies == 0
    assert budget.try_take(25)
