"""When a mirror that is to end once gives up."""

from respool.mirror.stall_timeout import Patience


def test_copies_are_given_up_when_nothing_came_for_so_long() -> None:
    patience = Patience(seconds_max=60, now_s=0)
    patience.on_copies(10, now_s=50)
    assert not patience.is_over(waits_for_groups=False, now_s=110)
    patience.on_copies(10, now_s=110)
    assert patience.is_over(waits_for_groups=False, now_s=111)
    patience.on_copies(11, now_s=112)
    assert not patience.is_over(waits_for_groups=False, now_s=113)


def test_a_look_at_groups_may_take_longer_than_that_and_is_tried_again() -> None:
    """Many groups, and the coordinators of some that do not answer."""
    patience = Patience(seconds_max=60, now_s=0)
    assert not patience.is_over(waits_for_groups=True, now_s=1_000)
    patience.on_groups(has_trouble=True, are_moved=False, now_s=1_000)
    assert not patience.is_over(waits_for_groups=True, now_s=1_060)
    patience.on_groups(has_trouble=True, are_moved=False, now_s=1_060)
    assert patience.is_over(waits_for_groups=True, now_s=1_061)


def test_groups_that_are_set_and_troubles_that_have_passed_begin_it_anew() -> None:
    patience = Patience(seconds_max=60, now_s=0)
    patience.on_groups(has_trouble=True, are_moved=False, now_s=10)
    patience.on_groups(has_trouble=True, are_moved=True, now_s=60)
    assert not patience.is_over(waits_for_groups=True, now_s=120)
    patience.on_groups(has_trouble=False, are_moved=False, now_s=120)
    patience.on_groups(has_trouble=True, are_moved=False, now_s=500)
    assert not patience.is_over(waits_for_groups=True, now_s=560)
    assert patience.is_over(waits_for_groups=True, now_s=561)


def test_what_was_waited_for_groups_is_not_forgotten_where_messages_come_after_all() -> None:
    """Once the first look at groups, while it was under way, ended all counting."""
    patience = Patience(seconds_max=60, now_s=0)
    assert not patience.is_over(waits_for_groups=True, now_s=100)
    assert patience.is_over(waits_for_groups=False, now_s=100)
