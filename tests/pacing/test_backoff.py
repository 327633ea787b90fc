"""Delays double up to the longest, and jitter keeps them within its bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respool.pacing.backoff import Backoff


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(first=20, longest=1_000)
    assert [backoff.delay(failures) for failures in range(1, 9)] == [
        20,
        40,
        80,
        160,
        320,
        640,
        1_000,
        1_000,
    ]


@given(failures=st.integers(1, 10_000), chance=st.floats(0, 1))
def test_jitter_stays_within_its_bounds(failures: int, chance: float) -> None:
    steady = Backoff(first=0.5, longest=30).delay(failures)
    delay = Backoff(first=0.5, longest=30, jitter=0.2).delay(failures, random=lambda: chance)
    assert 0.8 * steady - 1e-9 <= delay <= 1.2 * steady + 1e-9


def test_without_failures_there_is_no_delay_to_ask_for() -> None:
    with pytest.raises(AssertionError):
        Backoff(first=1, longest=2).delay(0)
