"""When each message of a replay is due. Pure: the caller brings the time, in seconds of a steady clock.

```
  their times   |--a-----b--c----------------d
  at 1x         |--a-----b--c----------------d
  at 10x        |abc--d
```
The first message asked about is due at once, and the others as long after it as they were then, divided by the speed.
A rate limit holds besides: so many messages a second, with no more saved up than a tenth of a second's worth.
"""

import math
import re

from respool.model.operator_errors import UsageError

_SPEED = re.compile(r"(\d+(?:\.\d+)?)\s*x?")
_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:\s*/\s*(s|sec|second|m|min|minute|h|hour))?")
_SECONDS = {"s": 1, "m": 60, "h": 3600}

# What was late by more (the broker was away, the machine slept) is not caught up with: the pace goes on from there.
LATE_SECONDS_MAX = 5.0
SAVED_UP_SECONDS = 0.1


def parse_speed(text: str) -> float | None:
    """`1x`, `10x`, `0.5` -> how many times faster than it was; None for `max`.

    Raises:
        UsageError: it is none of them.
    """
    words = text.strip().lower()
    if words == "max":
        return None
    found = _SPEED.fullmatch(words)
    if not found or float(found[1]) == 0:
        raise UsageError(f"--speed {text!r} is not a speed", hint="give 1x, 10x, 0.5x or max")
    return float(found[1])


def parse_rate(text: str | None) -> float | None:
    """`500/s`, `500`, `30/m` -> messages a second; None for no limit.

    Raises:
        UsageError: it is none of them.
    """
    if text is None:
        return None
    found = _RATE.fullmatch(text.strip().lower())
    if not found or float(found[1]) == 0:
        raise UsageError(f"--rate {text!r} is not a rate", hint="give messages a second: 500/s")
    return float(found[1]) / _SECONDS[(found[2] or "s")[0]]


class Pace:
    """Tells what is due."""

    def __init__(self, *, speed: float | None, rate: float | None) -> None:
        self._speed = speed
        self._rate = rate
        # This timestamp is due at that second.
        self._anchor: tuple[int, float] | None = None
        # Messages that may be sent now, and when that was so.
        self._saved_up = self._saved_up_max
        self._saved_at: float | None = None

    def due_at(self, timestamp_ms: int, *, now: float) -> float:
        """The second at which a message of that time is to be sent; `now` or earlier means at once."""
        if self._speed is None or timestamp_ms < 0:
            return now
        if self._anchor is None:
            self._anchor = timestamp_ms, now
        anchor_ms, anchor = self._anchor
        due = anchor + (timestamp_ms - anchor_ms) / 1000 / self._speed
        # Only a message that is younger than all before tells how late we are.
        if timestamp_ms >= anchor_ms and now - due > LATE_SECONDS_MAX:
            self._anchor = timestamp_ms, now
            return now
        return due

    def allowance(self, *, now: float) -> float:
        """How many messages the rate allows now."""
        if self._rate is None:
            return math.inf
        if self._saved_at is not None:
            earned = (now - self._saved_at) * self._rate
            self._saved_up = min(self._saved_up_max, self._saved_up + earned)
        self._saved_at = now
        return self._saved_up

    def spend(self, messages: int) -> None:
        if self._rate is not None:
            self._saved_up -= messages

    def next_allowed_in(self) -> float:
        """Seconds until the rate allows another message, counted from the last `allowance`."""
        if self._rate is None or self._saved_up >= 1:
            return 0.0
        return (1 - self._saved_up) / self._rate

    def seconds_left(
        self, *, messages: int, per_second: float, timestamp_ms: int, until_ms: int
    ) -> float | None:
        """How long the rest takes: by its times, by the rate, or as fast as it went until now. None: not known yet."""
        estimates = []
        if self._speed is not None and timestamp_ms >= 0:
            estimates.append(max(0, until_ms - timestamp_ms) / 1000 / self._speed)
        elif per_second > 0:
            estimates.append(messages / per_second)
        if self._rate is not None:
            estimates.append(messages / self._rate)
        return max(estimates) if estimates else None

    @property
    def _saved_up_max(self) -> float:
        return max(1.0, (self._rate or 0.0) * SAVED_UP_SECONDS)
