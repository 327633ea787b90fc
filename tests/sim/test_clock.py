import pytest

from respool.sim.clock import SimClock


def test_both_clocks_advance_together() -> None:
    clock = SimClock(now_ms=1_000_000)
    clock.advance(250)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000_250, 250)


def test_skew_moves_the_wall_clock_only() -> None:
    clock = SimClock(now_ms=1_000_000)
    clock.advance(100)
    clock.skew(-5_000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (995_100, 100)


def test_time_does_not_pass_backwards() -> None:
    clock = SimClock()
    with pytest.raises(AssertionError):
        clock.advance(-1)
    assert clock.monotonic_ms() == 0
