import asyncio

import pytest

from respool.sim.runtime.sim_loop import SimLoop
from respool.sim.runtime.simulated_sources import NodeClock
from support.sim_clock import SimClock


def test_both_clocks_advance_together() -> None:
    clock = SimClock(now_ms=1_000_000)
    clock.advance(250)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000_250, 250)


def test_skew_moves_the_wall_clock_only() -> None:
    clock = SimClock(now_ms=1_000_000)
    clock.advance(100)
    clock.skew(-5_000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (995_100, 100)


def test_a_machine_that_sleeps_does_not_notice_by_its_monotonic_time() -> None:
    clock = SimClock(now_ms=1_000_000)
    clock.advance(100)
    clock.sleep(5_000)
    assert (clock.now_ms(), clock.monotonic_ms(), clock.boot_ms()) == (1_005_100, 100, 5_100)


def test_time_does_not_pass_backwards() -> None:
    clock = SimClock()
    with pytest.raises(AssertionError):
        clock.advance(-1)
    assert clock.monotonic_ms() == 0


def test_machines_disagree_about_the_wall_clock_only() -> None:
    loop = SimLoop(1)

    async def story() -> None:
        one, other = NodeClock(loop), NodeClock(loop, skew_ms=-5_000)
        assert one.now_ms() - other.now_ms() == 5_000
        await asyncio.sleep(2)
        one.skew_ms += 60_000
        assert one.now_ms() - other.now_ms() == 65_000
        assert one.monotonic_ms() == other.monotonic_ms() == 2_000

    loop.run(story)
