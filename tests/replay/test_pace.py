import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.replay.errors import InvalidReplay
from respool.replay.pace import LATE_SECONDS_MAX, Pace, parse_pace, parse_rate, parse_speed

T0 = 1_763_107_200_000


def test_speeds_are_read() -> None:
    assert [parse_speed(text) for text in ("1x", "10x", "0.5x", "2", "MAX")] == [
        1,
        10,
        0.5,
        2,
        None,
    ]
    for wrong in ("0x", "fast", "-1x", "", "x"):
        with pytest.raises(InvalidReplay, match="not a speed"):
            parse_speed(wrong)


def test_rates_are_read() -> None:
    assert [parse_rate(text) for text in ("500/s", "500", "30/m", "7200 / h", None)] == [
        500, 500, 0.5, 2, None,
    ]  # fmt: skip
    for wrong in ("0/s", "many", "5/day", "-5"):
        with pytest.raises(InvalidReplay, match="not a rate"):
            parse_rate(wrong)


def test_a_pace_is_a_speed_a_rate_or_both() -> None:
    for text, speed, rate in (
        ("max", None, None),
        ("10x", 10, None),
        ("500/s", None, 500),
        ("2x 30/m", 2, 0.5),
        ("2x, 500 / s", 2, 500),
    ):
        pace = parse_pace(text)
        pace.due_at(T0, now=0.0)
        assert pace.due_at(T0 + 1000, now=0.0) == (0.0 if speed is None else 1 / speed)
        # With a burst of a tenth of a second, and one message at least.
        allowed = math.inf if rate is None else max(1.0, rate / 10)
        assert pace.allowance(now=0.0) == allowed
    for wrong in ("", "1x 2x", "5/s 6/s"):
        with pytest.raises(InvalidReplay, match="not a pace"):
            parse_pace(wrong)
    with pytest.raises(InvalidReplay, match="pace 'fast' is not a pace"):
        parse_pace("fast")


@pytest.mark.parametrize("text", ["500", "0.5", "500 10/s"])
def test_a_bare_number_is_no_pace(text: str) -> None:
    number = text.split(maxsplit=1)[0]
    with pytest.raises(
        InvalidReplay, match=f"has no unit: {number}x is a speed, {number}/s a rate"
    ):
        parse_pace(text)


def test_after_a_pause_the_rest_is_as_much_later() -> None:
    pace = Pace(speed=1, rate=None)
    pace.shift(9.0)
    pace.due_at(T0, now=0.0)
    pace.shift(3.0)
    assert pace.due_at(T0 + 4000, now=3.0) == 7.0


def test_at_1x_messages_are_as_far_apart_as_they_were() -> None:
    pace = Pace(speed=1, rate=None)
    assert pace.due_at(T0, now=100.0) == 100.0
    assert pace.due_at(T0 + 1500, now=100.0) == 101.5
    assert pace.due_at(T0 + 60_000, now=130.0) == 160.0


def test_at_10x_ten_times_closer() -> None:
    pace = Pace(speed=10, rate=None)
    pace.due_at(T0, now=0.0)
    assert pace.due_at(T0 + 60_000, now=0.0) == 6.0


def test_at_max_and_without_a_time_everything_is_due() -> None:
    assert Pace(speed=None, rate=None).due_at(T0 + 10**9, now=5.0) == 5.0
    paced = Pace(speed=1, rate=None)
    assert paced.due_at(-1, now=5.0) == 5.0
    # One without a time does not set the clock of the others.
    assert paced.due_at(T0, now=9.0) == 9.0


def test_a_message_from_before_the_first_is_due_at_once() -> None:
    pace = Pace(speed=1, rate=None)
    pace.due_at(T0, now=50.0)
    assert pace.due_at(T0 - 60_000, now=50.0) < 50.0
    assert pace.due_at(T0 + 1000, now=50.0) == 51.0


def test_a_long_pause_is_not_caught_up_with() -> None:
    pace = Pace(speed=1, rate=None)
    pace.due_at(T0, now=0.0)
    assert pace.due_at(T0 + 1000, now=100.0) == 100.0
    assert pace.due_at(T0 + 2000, now=100.0) == 101.0


def test_a_short_delay_is() -> None:
    pace = Pace(speed=1, rate=None)
    pace.due_at(T0, now=0.0)
    assert pace.due_at(T0 + 1000, now=1.0 + LATE_SECONDS_MAX / 2) == 1.0
    assert pace.due_at(T0 + 9000, now=4.0) == 9.0


@given(
    rate=st.floats(0.5, 5000),
    waits=st.lists(st.floats(0, 3), min_size=1, max_size=50),
)
def test_never_more_than_the_rate_with_a_little_saved_up(rate: float, waits: list[float]) -> None:
    pace = Pace(speed=None, rate=rate)
    now, sent = 0.0, 0
    for wait in waits:
        now += wait
        allowed = int(pace.allowance(now=now))
        pace.spend(allowed)
        sent += allowed
    assert sent <= rate * now + max(1.0, rate * 0.1) + 1e-6


def test_the_rate_says_when_to_come_again() -> None:
    pace = Pace(speed=None, rate=2)
    assert pace.allowance(now=10.0) == 1
    pace.spend(1)
    assert pace.next_allowed_in() == 0.5
    assert pace.allowance(now=10.25) == 0.5
    assert pace.next_allowed_in() == 0.25
    assert pace.allowance(now=10.5) == 1
    assert Pace(speed=None, rate=None).allowance(now=0) == math.inf


def test_the_time_left_is_told_by_what_holds_it_back() -> None:
    rest = {"messages": 600, "timestamp_ms": T0, "until_ms": T0 + 120_000}
    assert Pace(speed=None, rate=None).seconds_left(**rest, per_second=100) == 6
    assert Pace(speed=None, rate=None).seconds_left(**rest, per_second=0) is None
    assert Pace(speed=2, rate=None).seconds_left(**rest, per_second=100) == 60
    assert Pace(speed=None, rate=10).seconds_left(**rest, per_second=100) == 60
    assert Pace(speed=2, rate=1).seconds_left(**rest, per_second=100) == 600


@pytest.mark.parametrize("wrong", ["fast", 5, "5", "x/s", "0x", ""])
def test_a_wrong_pace_is_answered_with_all_forms(wrong: str) -> None:
    with pytest.raises(InvalidReplay) as caught:
        parse_pace(wrong)
    for form in ("max", "10x", "500/s", "'10x 500/s'"):
        assert form in caught.value.hint
