"""Failures are reported once while they last; a run with `once` gives up when nothing was copied for long."""

from respool.mirror.progress import MirrorEvent, Severity
from respool.mirror.retry_log import RetryLog, StallTimeout
from respool.model.operator_errors import OperatorError


def test_copies_are_given_up_when_nothing_came_for_so_long() -> None:
    stall = StallTimeout(seconds_max=60, now_s=0)
    stall.on_copies(10, now_s=50)
    assert not stall.is_over(waits_for_groups=False, now_s=110)
    stall.on_copies(10, now_s=110)
    assert stall.is_over(waits_for_groups=False, now_s=111)
    stall.on_copies(11, now_s=112)
    assert not stall.is_over(waits_for_groups=False, now_s=113)


def test_a_look_at_groups_may_take_longer_than_that_and_is_tried_again() -> None:
    """Many groups, and the coordinators of some that do not answer."""
    stall = StallTimeout(seconds_max=60, now_s=0)
    assert not stall.is_over(waits_for_groups=True, now_s=1_000)
    stall.on_groups(has_failed=True, has_committed=False, now_s=1_000)
    assert not stall.is_over(waits_for_groups=True, now_s=1_060)
    stall.on_groups(has_failed=True, has_committed=False, now_s=1_060)
    assert stall.is_over(waits_for_groups=True, now_s=1_061)


def test_groups_that_are_set_and_troubles_that_have_passed_begin_it_anew() -> None:
    stall = StallTimeout(seconds_max=60, now_s=0)
    stall.on_groups(has_failed=True, has_committed=False, now_s=10)
    stall.on_groups(has_failed=True, has_committed=True, now_s=60)
    assert not stall.is_over(waits_for_groups=True, now_s=120)
    stall.on_groups(has_failed=False, has_committed=False, now_s=120)
    stall.on_groups(has_failed=True, has_committed=False, now_s=500)
    assert not stall.is_over(waits_for_groups=True, now_s=560)
    assert stall.is_over(waits_for_groups=True, now_s=561)


def test_what_was_waited_for_groups_is_not_forgotten_where_messages_come_after_all() -> None:
    """Once the first look at groups, while it was under way, ended all counting."""
    stall = StallTimeout(seconds_max=60, now_s=0)
    assert not stall.is_over(waits_for_groups=True, now_s=100)
    assert stall.is_over(waits_for_groups=False, now_s=100)


def test_a_pause_is_no_stall() -> None:
    stall = StallTimeout(seconds_max=60, now_s=0)
    stall.on_groups(has_failed=True, has_committed=False, now_s=0)
    stall.on_pause(now_s=100)
    assert not stall.is_over(waits_for_groups=False, now_s=160)
    assert not stall.is_over(waits_for_groups=True, now_s=160)
    assert stall.is_over(waits_for_groups=False, now_s=161)


def test_a_failure_is_reported_once_and_again_when_it_has_passed() -> None:
    events: list[MirrorEvent] = []
    retries = RetryLog(events.append)
    for _ in range(3):
        retries.on_failed("topics", OperatorError("no leader", hint="wait"))
    assert retries.why("topics") == "no leader; wait"
    retries.on_failed_because("topics", "refused")
    for _ in range(2):
        retries.on_passed("topics")
    assert [(one.message, one.severity) for one in events] == [
        ("topics: no leader; wait; retrying", Severity.WARNING),
        ("topics: refused; retrying", Severity.WARNING),
        ("topics: recovered", Severity.RECOVERED),
    ]
    assert retries.all() == set()
