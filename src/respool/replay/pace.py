"""When each message of a replay is due. Pure: the caller brings the time, in seconds of a monotonic clock.

```
  timestamps    |--a-----b--c----------------d
  at 1x         |--a-----b--c----------------d
  at 10x        |abc--d
```
The first message is due at once; the others follow by the difference of their timestamps, divided by the speed. A rate
limit is a token bucket in addition: messages per second, with a burst of a tenth of a second.
"""

import re

from respool.pacing.token_bucket import NO_LIMIT, TokenBucket
from respool.replay.errors import InvalidReplay

_SPEED = re.compile(r"(\d+(?:\.\d+)?)\s*x?")
_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:\s*/\s*(s|sec|second|m|min|minute|h|hour))?")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PACES = "give max, 10x, 500/s, or both: '10x 500/s'"
_SECONDS = {"s": 1, "m": 60, "h": 3600}

# After a longer delay (the broker was unavailable, the machine slept) the replay does not catch up.
LATE_SECONDS_MAX = 5.0
BURST_MS = 100


def parse_speed(text: str, *, name: str = "--speed") -> float | None:
    """`1x`, `10x`, `0.5` -> the factor; None for `max`.

    Raises:
        InvalidReplay: the text has none of these forms.
    """
    words = text.strip().lower()
    if words == "max":
        return None
    found = _SPEED.fullmatch(words)
    if not found or float(found[1]) == 0:
        raise InvalidReplay(f"{name} {text!r} is not a speed", hint="give 1x, 10x, 0.5x or max")
    return float(found[1])


def parse_rate(text: str | None, *, name: str = "--rate") -> float | None:
    """`500/s`, `500`, `30/m` -> messages per second; None for no limit.

    Raises:
        InvalidReplay: the text has none of these forms.
    """
    if text is None:
        return None
    found = _RATE.fullmatch(text.strip().lower())
    if not found or float(found[1]) == 0:
        raise InvalidReplay(f"{name} {text!r} is not a rate", hint="give messages a second: 500/s")
    return float(found[1]) / _SECONDS[(found[2] or "s")[0]]


def parse_pace(text: str, *, name: str = "pace") -> "Pace":
    """Parse `max`, `10x`, `500/s`, or a speed and a rate: `10x 500/s`. A bare number could be either, and is refused.

    Raises:
        InvalidReplay: the text has none of these forms.
    """
    # From Python anything can come.
    words = re.sub(r"\s*/\s*", "/", str(text).replace(",", " ")).split()
    rates = [word for word in words if "/" in word]
    speeds = [word for word in words if "/" not in word]
    if not words or len(rates) > 1 or len(speeds) > 1:
        raise InvalidReplay(f"{name} {text!r} is not a pace", hint=_PACES)
    for word in speeds:
        if _NUMBER.fullmatch(word):
            raise InvalidReplay(
                f"{name} {text!r} has no unit: {word}x is a speed, {word}/s a rate",
                hint=f"give {word}x for {word} times the speed, or {word}/s for {word} messages a second; "
                f"all forms: max, 10x, 500/s, '10x 500/s'",
            )
    try:
        parse_speed(speeds[0] if speeds else "max")
        parse_rate(rates[0] if rates else None)
    except InvalidReplay:
        raise InvalidReplay(f"{name} {text!r} is not a pace", hint=_PACES) from None
    return Pace(
        speed=parse_speed(speeds[0] if speeds else "max", name=name),
        rate=parse_rate(rates[0] if rates else None, name=name),
    )


class Pace:
    """The schedule of one replay."""

    def __init__(self, *, speed: float | None, rate: float | None) -> None:
        self._speed = speed
        self._rate = rate
        # A timestamp, and the monotonic time at which it is due.
        self._anchor: tuple[int, float] | None = None
        self._bucket = TokenBucket(
            rate_per_s=NO_LIMIT if rate is None else rate, burst_ms=BURST_MS, capacity_min=1.0
        )
        # Of the last `allowance`.
        self._now_ms = 0.0

    def due_at(self, timestamp_ms: int, *, now: float) -> float:
        """The time at which a message with this timestamp is due; `now` or earlier means at once."""
        if self._speed is None or timestamp_ms < 0:
            return now
        if self._anchor is None:
            self._anchor = timestamp_ms, now
        anchor_ms, anchor = self._anchor
        due = anchor + (timestamp_ms - anchor_ms) / 1000 / self._speed
        # Only a message newer than all earlier ones can show that the replay is late.
        if timestamp_ms >= anchor_ms and now - due > LATE_SECONDS_MAX:
            self._anchor = timestamp_ms, now
            return now
        return due

    def shift(self, seconds: float) -> None:
        """Delay all messages that are not sent yet, after a pause."""
        if self._anchor is not None:
            timestamp_ms, due = self._anchor
            self._anchor = timestamp_ms, due + seconds

    def allowance(self, *, now: float) -> float:
        """The number of messages that the rate allows now."""
        self._now_ms = now * 1000
        return self._bucket.available(now_ms=self._now_ms)

    def spend(self, messages: int) -> None:
        self._bucket.take(messages, now_ms=self._now_ms)

    def next_allowed_in(self) -> float:
        """Seconds until the rate allows another message, counted from the last `allowance`."""
        return self._bucket.seconds_until(1, now_ms=self._now_ms)

    def seconds_left(
        self, *, messages: int, per_second: float, timestamp_ms: int, until_ms: int
    ) -> float | None:
        """Estimated duration of the rest: by its timestamps, the rate, or the throughput so far. None: unknown."""
        estimates = []
        if self._speed is not None and timestamp_ms >= 0:
            estimates.append(max(0, until_ms - timestamp_ms) / 1000 / self._speed)
        elif per_second > 0:
            estimates.append(messages / per_second)
        if self._rate is not None:
            estimates.append(messages / self._rate)
        return max(estimates) if estimates else None
