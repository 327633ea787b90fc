import logging

import pytest

from respool.broker.steady_clock import APART_MS_MAX, SteadyClock
from support.sim_clock import SimClock

DAY_MS = 24 * 3_600_000


@pytest.mark.parametrize("by_ms", [DAY_MS, -DAY_MS])
def test_the_steady_time_does_not_jump_and_the_wall_time_does(by_ms: int) -> None:
    clock = SimClock()
    steady = SteadyClock(clock)
    before_ms = steady.now_ms()
    clock.skew(by_ms)
    clock.advance(5)
    assert steady.now_ms() == before_ms + 5
    assert steady.wall_ms() == before_ms + 5 + by_ms


@pytest.mark.parametrize("sign", [1, -1])
def test_clocks_that_are_far_apart_are_told_once(
    sign: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    clock = SimClock()
    steady = SteadyClock(clock)
    clock.skew(sign * APART_MS_MAX)
    steady.wall_ms()
    assert not caplog.records
    clock.skew(sign * 1_000)
    for _ in range(3):
        steady.wall_ms()
    assert len(caplog.records) == 1
    assert f"set by {sign * 61} s" in caplog.text
