import time

import pytest

from respool.drivers.system_sources import SystemClock


def test_the_wall_clock_is_the_systems_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    now = SystemClock().now_ms()
    assert before <= now <= time.time_ns() // 1_000_000


def test_monotonic_time_does_not_go_back() -> None:
    clock = SystemClock()
    times = [clock.monotonic_ms() for _ in range(1000)]
    assert times == sorted(times)
    assert times[0] <= time.monotonic_ns() // 1_000_000


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has it")
def test_the_time_since_boot_counts_sleep_and_the_monotonic_time_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept_ns = 3_600 * 10**9
    read_clock = time.clock_gettime_ns

    def after_sleep(clock: int) -> int:
        return read_clock(clock) + (slept_ns if clock == time.CLOCK_BOOTTIME else 0)

    clock = SystemClock()
    boot_ms, monotonic_ms = clock.boot_ms(), clock.monotonic_ms()
    monkeypatch.setattr(time, "clock_gettime_ns", after_sleep)
    assert clock.boot_ms() - boot_ms >= slept_ns // 1_000_000
    assert clock.monotonic_ms() - monotonic_ms < slept_ns // 1_000_000


def test_the_time_since_boot_does_not_go_back() -> None:
    clock = SystemClock()
    times = [clock.boot_ms() for _ in range(1000)]
    assert times == sorted(times)
