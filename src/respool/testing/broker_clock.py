"""The broker's time, as a test moves it: `broker.clock.advance(days=7)`."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol


class BrokerClock:
    """The door for tests. Time goes on by itself too; it can be moved forward, never back."""

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
        """Let so much time pass for the broker at once, and return when it has done what became due.

        Raises:
            TypeError: `by` is not a timedelta; for a number, say of what: advance(days=7).
            ValueError: time does not go back.
        """
        if by is not None and not isinstance(by, timedelta):
            raise TypeError(
                f"advance({by!r}): a timedelta is needed, or say of what: advance(days=7)"
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
        """What time it is for the broker, in milliseconds since 1970: for the timestamps of messages."""
        return int(self._call("now_ms"))

    @property
    def now(self) -> datetime:
        """What time it is for the broker, in UTC."""
        return datetime.fromtimestamp(self.now_ms / 1000, tz=UTC)


class Shifted(Protocol):
    @property
    def shift_ms(self) -> int: ...


class MovedClock:
    """A `ports.clock.Clock`: the machine's clocks, and the loop's shift added to both."""

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
