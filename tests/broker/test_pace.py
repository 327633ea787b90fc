"""So many bytes a second, whatever is taken when, and however often that changes."""

from hypothesis import given
from hypothesis import strategies as st

from respool.broker.pace import NO_LIMIT, Pace

steps = st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 10_000)), min_size=1, max_size=40)


@given(steps=steps, rate=st.integers(1, 100_000))
def test_who_waits_as_told_takes_no_more_than_the_rate(
    steps: list[tuple[int, int]], rate: int
) -> None:
    """But for the last of it: nobody knows beforehand how much a request brings."""
    pace, now_ms, taken = Pace(), 0, 0
    pace.change(rate, now_ms=0)
    for idle_ms, byte_count in steps:
        now_ms += idle_ms + pace.wait_ms(now_ms=now_ms + idle_ms)
        # Half a millisecond is lost each time that a wait is rounded.
        assert taken <= rate * (now_ms + 0.5 * len(steps)) / 1000 + 1e-3
        pace.take(byte_count, now_ms=now_ms)
        taken += byte_count


def test_what_was_not_used_is_not_saved_up() -> None:
    pace = Pace()
    pace.change(1000, now_ms=0)
    pace.take(100, now_ms=60_000)
    assert pace.wait_ms(now_ms=60_000) == 100


def test_what_was_taken_stays_taken_when_the_rate_changes() -> None:
    pace = Pace()
    pace.change(1000, now_ms=0)
    pace.take(1000, now_ms=0)
    pace.change(100, now_ms=500)
    assert pace.wait_ms(now_ms=500) == 5000
    pace.change(NO_LIMIT, now_ms=600)
    assert pace.wait_ms(now_ms=600) == 0


def test_without_a_limit_nobody_waits() -> None:
    pace = Pace()
    pace.take(1 << 60, now_ms=0)
    assert pace.wait_ms(now_ms=0) == 0


def test_nothing_a_second_is_hardly_anything() -> None:
    pace = Pace()
    pace.change(0, now_ms=0)
    pace.take(1000, now_ms=0)
    assert pace.wait_ms(now_ms=0) == 1_000_000
