"""Trying again, for a while."""

import pytest

from respool.client.kafka.bootstrap import Bootstrap
from respool.client.kafka.errors import NoBroker
from respool.client.kafka.retries import BACKOFF, RetryTimer


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_waits_grow_and_end_when_the_time_is_over() -> None:
    clock = Clock()
    retry = RetryTimer(10_000, sleep=clock.sleep, monotonic=lambda: clock.now)
    waits: list[float] = []

    def fail_for_ever() -> None:
        while True:
            before = clock.now
            retry.wait_or_raise(OSError("gone"))
            waits.append(clock.now - before)

    with pytest.raises(OSError, match="gone"):
        fail_for_ever()
    assert clock.now == pytest.approx(110.0, abs=0.01)
    assert waits[0] < 0.03
    assert max(waits) <= BACKOFF.longest * 1.2 / 1000 + 1e-9
    assert retry.next_wait_ms() is None


def test_what_worked_in_between_has_all_its_time_again() -> None:
    clock = Clock()
    retry = RetryTimer(1_000, sleep=clock.sleep, monotonic=lambda: clock.now)
    for _ in range(20):
        retry.wait_or_raise(OSError())
        clock.now += 0.5
        retry.reset()
    # A long time without trouble is no trouble.
    clock.now += 1_000
    assert retry.next_wait_ms() is not None


def test_time_in_which_nothing_was_attempted_does_not_count() -> None:
    clock = Clock()
    retry = RetryTimer(1_000, sleep=clock.sleep, monotonic=lambda: clock.now)
    retry.exclude(5)
    retry.wait_or_raise(OSError())
    clock.now += 60
    retry.exclude(60)
    assert retry.next_wait_ms() is not None
    clock.now += 1
    assert retry.next_wait_ms() is None


def test_without_time_nothing_is_tried_again() -> None:
    with pytest.raises(ValueError, match="once"):
        RetryTimer(0).wait_or_raise(ValueError("once"))


def test_an_attempt_that_used_up_the_time_for_a_first_contact_is_not_repeated() -> None:
    clock = Clock()
    nobody = NoBroker(Bootstrap("a:1", ""), ["a:1 did not answer within 2 seconds"])
    for error, is_repeated in ((nobody, False), (OSError("gone"), True)):
        retry = RetryTimer(1_000, sleep=clock.sleep, monotonic=lambda: clock.now)
        clock.now += 2
        if is_repeated:
            retry.wait_or_raise(error)
        else:
            with pytest.raises(NoBroker):
                retry.wait_or_raise(error)


def test_a_first_contact_that_is_refused_at_once_is_repeated() -> None:
    clock = Clock()
    retry = RetryTimer(1_000, sleep=clock.sleep, monotonic=lambda: clock.now)
    for _ in range(3):
        retry.wait_or_raise(NoBroker(Bootstrap("a:1", ""), ["a:1: connection refused"]))
