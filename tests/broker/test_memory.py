import pytest

from respool.broker.memory import MemoryBudget


class Receiver:
    """A request that arrives: it asks, and remembers what it was granted."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.turn = budget.next_turn()
        self.held = 0
        self._asked = 0

    def ask(self, amount: int) -> bool:
        self._asked = amount
        if not self._budget.receive(amount, turn=self.turn, on_granted=self._on_granted):
            return False
        self._on_granted()
        return True

    def finish(self) -> None:
        held, self.held = self.held, 0
        self._budget.release_received(held)

    def _on_granted(self) -> None:
        self.held += self._asked


def test_requests_take_up_to_their_part_and_then_wait() -> None:
    budget = MemoryBudget(100)
    first, second = Receiver(budget), Receiver(budget)
    assert first.ask(75)
    assert not second.ask(1)
    assert budget.used == 75
    first.finish()
    assert (second.held, budget.used) == (1, 1)


def test_a_request_larger_than_all_is_received_when_no_other_is() -> None:
    # Otherwise it could never be read, and its client would retry for ever.
    budget = MemoryBudget(100)
    assert Receiver(budget).ask(150)
    assert budget.used == 150


def test_the_oldest_request_goes_first_each_time_it_needs_more() -> None:
    budget = MemoryBudget(100)
    old, young, large = Receiver(budget), Receiver(budget), Receiver(budget)
    assert old.ask(10)
    assert large.ask(65)
    assert not young.ask(10)
    # It asks later and comes first: what has begun to arrive must come to its end.
    assert not old.ask(20)
    large.finish()
    assert (old.held, young.held) == (30, 10)


def test_nobody_passes_one_who_waits_longer() -> None:
    budget = MemoryBudget(100)
    holder, waiting, small = Receiver(budget), Receiver(budget), Receiver(budget)
    assert holder.ask(70)
    assert not waiting.ask(40)
    # There is room for it; but then a large request could wait for ever.
    assert not small.ask(1)
    holder.finish()
    assert (waiting.held, small.held) == (40, 1)


def test_one_that_left_is_not_waited_for() -> None:
    budget = MemoryBudget(100)
    holder, gone, next_one = Receiver(budget), Receiver(budget), Receiver(budget)
    assert holder.ask(75)
    assert not gone.ask(75)
    assert not next_one.ask(5)
    budget.forget_receiver(gone.turn)
    budget.forget_receiver(gone.turn)
    assert budget.is_short_for_requests
    holder.finish()
    assert (gone.held, next_one.held, budget.used) == (0, 5, 5)
    assert not budget.is_short_for_requests


def test_requests_that_wait_for_each_other_are_relieved_one_after_the_other() -> None:
    budget = MemoryBudget(100)
    crowd = [Receiver(budget) for _ in range(3)]
    assert all(one.ask(25) for one in crowd)
    assert not any(one.ask(25) for one in crowd)
    budget.relieve(overdraft=30)
    assert [one.held for one in crowd] == [50, 25, 25]
    budget.relieve(overdraft=30)
    assert [one.held for one in crowd] == [50, 50, 25]
    # That was all of the overdraft.
    budget.relieve(overdraft=30)
    assert budget.used == 125
    crowd[0].finish()
    crowd[1].finish()
    assert [one.held for one in crowd] == [0, 0, 50]


def test_nobody_is_relieved_while_memory_comes_back_by_itself() -> None:
    budget = MemoryBudget(100)
    first, second, third = (Receiver(budget) for _ in range(3))
    assert first.ask(60)
    assert second.ask(10)
    assert not third.ask(70)
    second.finish()
    budget.relieve(overdraft=100)
    assert third.held == 0
    budget.relieve(overdraft=100)
    assert third.held == 70


def test_what_was_held_until_it_is_charged_does_not_count_as_come_back() -> None:
    # Else fetches that come and go would keep producers that wait for each other from being relieved, for ever.
    budget = MemoryBudget(100)
    crowd = [Receiver(budget) for _ in range(3)]
    assert all(one.ask(25) for one in crowd)
    assert not any(one.ask(25) for one in crowd)
    budget.charge(10)
    budget.release_reservation(10)
    assert [one.held for one in crowd] == [25, 25, 25]
    budget.relieve(overdraft=30)
    assert [one.held for one in crowd] == [50, 25, 25]


def test_who_waits_is_told_of_room_that_is_let_go() -> None:
    budget = MemoryBudget(100)
    woken = []
    budget.charge(75)
    receiver = Receiver(budget)
    assert receiver.ask(20)
    assert not receiver.ask(40)
    budget.when_room(lambda: woken.append("fetch"))
    budget.release_reservation(75)
    assert woken == ["fetch"]
    assert receiver.held == 60
    with pytest.raises(AssertionError):
        budget.release_reservation(1)


def test_replies_leave_a_part_for_requests() -> None:
    # Else consumers that take nothing would stop every producer.
    budget = MemoryBudget(100)
    budget.charge(75)
    assert budget.available_for_replies == 0
    assert Receiver(budget).ask(25)


def test_requests_leave_a_part_for_replies() -> None:
    # Else a flood of producers would stop every consumer.
    budget = MemoryBudget(100)
    assert Receiver(budget).ask(75)
    assert not Receiver(budget).ask(1)
    assert budget.available_for_replies == 25


def test_replies_beyond_all_limits_hold_requests_back_until_they_are_taken() -> None:
    budget = MemoryBudget(100)
    budget.charge(200)
    receiver = Receiver(budget)
    assert not receiver.ask(10)
    budget.release(100)
    assert receiver.held == 0
    budget.release(50)
    assert receiver.held == 10


def test_every_fetch_that_waits_is_woken_once_when_memory_comes_back() -> None:
    budget = MemoryBudget(100)
    budget.charge(100)
    woken: list[str] = []
    budget.when_room(lambda: woken.append("first"))
    budget.when_room(lambda: woken.append("second"))
    assert budget.is_short_for_replies
    budget.release(10)
    budget.release(10)
    assert woken == ["first", "second"]
    assert not budget.is_short_for_replies


def test_a_fetch_that_finds_too_little_may_wait_again() -> None:
    budget = MemoryBudget(100)
    budget.charge(100)
    found: list[int] = []

    def look_again() -> None:
        found.append(budget.available_for_replies)
        if budget.available_for_replies < 20:
            budget.when_room(look_again)

    budget.when_room(look_again)
    budget.release(30)
    budget.release(30)
    budget.release(30)
    assert found == [5, 35]


def test_consumers_leave_a_part_for_followers() -> None:
    # Else slow consumers would stop replication, and with it acks=all.
    budget = MemoryBudget(800, has_followers=True)
    budget.charge(500)
    assert budget.available_for_replies == 0
    assert budget.available_for_followers == 100
    # Requests still get all of their part, and no more.
    assert Receiver(budget).ask(200)
    assert not Receiver(budget).ask(1)
    assert budget.available_for_followers == 100


def test_what_followers_have_taken_of_their_part_is_not_kept_twice() -> None:
    budget = MemoryBudget(800, has_followers=True)
    budget.charge(60, is_to_follower=True)
    assert (budget.available_for_replies, budget.available_for_followers) == (500, 540)
    budget.charge(500)
    assert (budget.available_for_replies, budget.available_for_followers) == (0, 40)
    budget.charge(40, is_to_follower=True)
    assert budget.available_for_followers == 0
    budget.release_reservation(40, is_to_follower=True)
    budget.release(60, is_to_follower=True)
    assert (budget.available_for_replies, budget.available_for_followers) == (0, 100)


def test_followers_keep_their_part_when_others_went_beyond_the_limit() -> None:
    budget = MemoryBudget(800, has_followers=True)
    budget.charge(2_000)
    assert budget.available_for_followers == 100
    budget.charge(100, is_to_follower=True)
    assert budget.available_for_followers == 0


def test_a_broker_alone_keeps_nothing_for_followers() -> None:
    budget = MemoryBudget(800)
    budget.charge(500)
    assert budget.available_for_replies == budget.available_for_followers == 100


def test_giving_back_more_than_was_taken_is_a_broken_invariant() -> None:
    with pytest.raises(AssertionError):
        MemoryBudget(100).release(1)
    with pytest.raises(AssertionError):
        MemoryBudget(100).release_received(1)
    with pytest.raises(AssertionError):
        MemoryBudget(100).release(1, is_to_follower=True)


def test_what_was_taken_for_a_consumer_is_not_given_back_for_a_follower() -> None:
    budget = MemoryBudget(100, has_followers=True)
    budget.charge(10)
    budget.charge(10, is_to_follower=True)
    with pytest.raises(AssertionError):
        budget.release(11, is_to_follower=True)
    with pytest.raises(AssertionError):
        budget.release(11)
    assert budget.used == 20
