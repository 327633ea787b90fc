"""The clock of a simulated machine."""

import asyncio


class NodeClock:
    """A `ports.clock.Clock` of one machine, on the event loop's time.

    The wall clocks of machines differ, and an operator or NTP may set them forward or back. The monotonic time never
    jumps, but its rate differs between machines.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        started_at_ms: int = 1_700_000_000_000,
        skew_ms: int = 0,
        rate: float = 1.0,
    ) -> None:
        """`rate`: the clock's speed; at 1.01 it gains 10 ms every second."""
        self._loop = loop
        self._rate = rate
        self._started_at_ms = started_at_ms
        # The error of the wall clock.
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return self._started_at_ms + self.skew_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000 * self._rate)

    def stopwatch_s(self) -> float:
        return self.monotonic_ms() / 1000

    def boot_ms(self) -> int:
        return self.monotonic_ms()
