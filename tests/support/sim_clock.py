"""A clock that the test advances."""


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
