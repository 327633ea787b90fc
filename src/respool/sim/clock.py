"""Time that passes when the test says so."""


class SimClock:
    """A `ports.clock.Clock`. The monotonic time starts at 0; the wall clock runs along and may be set off from it."""

    def __init__(self, *, now_ms: int = 1_700_000_000_000) -> None:
        self._started_at_ms = now_ms
        self._passed_ms = 0

    def now_ms(self) -> int:
        return self._started_at_ms + self._passed_ms

    def monotonic_ms(self) -> int:
        return self._passed_ms

    def advance(self, ms: int) -> None:
        """Let time pass, for both clocks."""
        assert ms >= 0, f"time does not pass backwards: {ms} ms"
        self._passed_ms += ms

    def skew(self, ms: int) -> None:
        """Set the wall clock forward or back, as an operator or NTP would; the monotonic time does not notice."""
        self._started_at_ms += ms
