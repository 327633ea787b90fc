"""Clocks for tests: one is advanced by the test, the other follows a simulated loop."""

import asyncio


class SimClock:
    """A `ports.clock.Clock`. The monotonic time starts at 0; the wall clock advances with it and may be skewed."""

    def __init__(self, *, now_ms: int = 1_700_000_000_000) -> None:
        self._started_at_ms = now_ms
        self._passed_ms = 0
        self._slept_ms = 0

    def now_ms(self) -> int:
        return self._started_at_ms + self._slept_ms + self._passed_ms

    def monotonic_ms(self) -> int:
        return self._passed_ms

    def stopwatch_s(self) -> float:
        return self._passed_ms / 1000

    def boot_ms(self) -> int:
        return self._slept_ms + self._passed_ms

    def advance(self, ms: int) -> None:
        """Let time pass, for both clocks."""
        assert ms >= 0, f"time does not pass backwards: {ms} ms"
        self._passed_ms += ms

    def sleep(self, ms: int) -> None:
        """Let time pass while the machine sleeps."""
        assert ms >= 0, f"time does not pass backwards: {ms} ms"
        self._slept_ms += ms

    def skew(self, ms: int) -> None:
        """Set the wall clock forward or back, as an operator or NTP would; the monotonic time does not change."""
        self._started_at_ms += ms


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
