import time

from respool.drivers.clock import SystemClock


def test_the_wall_clock_is_the_systems_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    now = SystemClock().now_ms()
    assert before <= now <= time.time_ns() // 1_000_000


def test_monotonic_time_does_not_go_back() -> None:
    clock = SystemClock()
    times = [clock.monotonic_ms() for _ in range(1000)]
    assert times == sorted(times)
    assert times[0] <= time.monotonic_ns() // 1_000_000
