"""The clock for sessions and timeouts: the wall clock's time at the start, advanced by the monotonic clock.

When an operator or NTP sets the wall clock forward by an hour, no group must lose its members and no producer its
transaction. But the wall clock may have been wrong at the start and corrected since, so timestamps in records come from
the wall clock: clients read them, and so does the next start.
"""

import logging

from respool.ports.clock import Clock

logger = logging.getLogger(__name__)

# Clocks drift, and NTP adjusts them slightly; a larger difference means that the clock was set.
APART_MS_MAX = 60_000


class SteadyClock:
    """A `ports.clock.Clock` that does not jump. Its offset from the wall clock ends with the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_at_ms = clock.now_ms() - clock.monotonic_ms()
        self._has_told = False

    def now_ms(self) -> int:
        return self._started_at_ms + self._clock.monotonic_ms()

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def stopwatch_s(self) -> float:
        return self._clock.stopwatch_s()

    def boot_ms(self) -> int:
        return self._clock.boot_ms()

    def wall_ms(self) -> int:
        """Return the wall clock's current time, which may jump. Log once when the two clocks are far apart."""
        wall_ms = self._clock.now_ms()
        if not self._has_told and abs(wall_ms - self.now_ms()) > APART_MS_MAX:
            self._has_told = True
            logger.warning(
                "the wall clock was set by %d s since this broker was started, or this machine slept: offsets and "
                "transactional ids expire only when they are too old also by how it was at the start",
                (wall_ms - self.now_ms()) // 1000,
            )
        return wall_ms
