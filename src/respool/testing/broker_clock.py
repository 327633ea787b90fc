"""The broker's time, which a test can advance: `broker.clock.advance(days=7)`."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol


class BrokerClock:
    """The clock as tests use it. Time also passes by itself; it can be moved forward, but not back."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def advance(
        self,
        by: timedelta | None = None,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Advance the broker's time at once, and return when everything that became due is done.

        Raises:
            TypeError: `by` is not a timedelta; give numbers with their unit: advance(days=7).
            ValueError: the duration is negative.
        """
        if by is not None and not isinstance(by, timedelta):
            raise TypeError(
                f"advance({by!r}): give a timedelta, or a number with its unit, such as advance(days=7)"
            )
        by = (by or timedelta()) + timedelta(
            weeks=weeks,
            days=days,
            hours=hours,
            minutes=minutes,
            seconds=seconds,
            milliseconds=milliseconds,
        )
        if by < timedelta():
            raise ValueError(f"time does not go back: {by}")
        self._call("advance", ms=by // timedelta(milliseconds=1))

    @property
    def now_ms(self) -> int:
        """The broker's time in milliseconds since 1970, for timestamps of records."""
        return int(self._call("now_ms"))

    @property
    def now(self) -> datetime:
        """The broker's time, in UTC."""
        return datetime.fromtimestamp(self.now_ms / 1000, tz=UTC)


class Shifted(Protocol):
    @property
    def shift_ms(self) -> int: ...


class MovedClock:
    """A `ports.clock.Clock`: the machine's clocks plus the loop's shift."""

    def __init__(self, loop: Shifted) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._loop.shift_ms

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._loop.shift_ms

    def stopwatch_s(self) -> float:
        return time.perf_counter()

    def boot_ms(self) -> int:
        return self.monotonic_ms()
