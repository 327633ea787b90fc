"""The time for sessions and time-outs: what the wall clock said at the start, moved on by the monotonic clock.

Coordinators write times into records, so theirs must be times since 1970. But when an operator or NTP sets the wall
clock forward by an hour, no group may lose its members and no producer its transaction for that.
"""

from respool.ports.clock import Clock


class SteadyClock:
    """A `ports.clock.Clock` that does not jump. It forgets how far it is off with the next start."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started_at_ms = clock.now_ms() - clock.monotonic_ms()

    def now_ms(self) -> int:
        return self._started_at_ms + self._clock.monotonic_ms()

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()
