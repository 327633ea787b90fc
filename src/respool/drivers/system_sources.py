"""The operating system's clocks and random numbers."""

import secrets
import time
from uuid import UUID, uuid4

# Linux only; elsewhere a broker that slept notices when it next renews its lease.
BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """A `ports.clock.Clock`."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def stopwatch_s(self) -> float:
        return time.perf_counter()

    def boot_ms(self) -> int:
        return time.clock_gettime_ns(BOOT_CLOCK) // 1_000_000


class SystemRandomSource:
    """A `ports.random_source.RandomSource`."""

    def uuid(self) -> UUID:
        return uuid4()

    def below(self, limit: int) -> int:
        return secrets.randbelow(limit)
