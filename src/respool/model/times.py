"""Parses times as people write them -> milliseconds since 1970. Pure: the caller passes the current time.

    now   today   yesterday   yesterday 08:00   08:00
    3 hours ago   an hour ago   1 day 6 hours ago   90m   1h30m ago
    2026-11-12   2026-11-12 08:00   2026-11-12T08:00:00+01:00   2026-11-12T07:00Z
    @1763107200 (seconds)   @1763107200000   1763107200000 (milliseconds)

A time without a zone is in the zone passed in, or else in this machine's.
"""

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo

UNIT_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_UNIT_NAMES = {
    "ms": ("ms", "msec", "msecs", "millisecond", "milliseconds"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "m": ("m", "min", "mins", "minute", "minutes"),
    "h": ("h", "hr", "hrs", "hour", "hours"),
    "d": ("d", "day", "days"),
    "w": ("w", "week", "weeks"),
}
_UNIT_OF = {name: unit for unit, names in _UNIT_NAMES.items() for name in names}

# A smaller number cannot be a time in milliseconds that anyone means: it would lie before March 1973.
EPOCH_MS_MIN = 100_000_000_000
# 9999-12-31T23:59:59.999Z, the last instant that Python's datetime can represent.
EPOCH_MS_MAX = 253_402_300_799_999

EXAMPLES = "'3 hours ago', '90m', 'yesterday 08:00', '2026-11-12 08:00', '2026-11-12T07:00Z', '@1763107200'"

_PART = re.compile(r"(\d+(?:\.\d+)?|an?\b)\s*([a-z]+)")
_DURATION = re.compile(rf"(?:{_PART.pattern}(?:\s+|,\s*|\s*\band\b\s*)?)+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?")
_EPOCH = re.compile(r"@?\d{1,15}")


class TimeNotUnderstood(ValueError):
    """The text has none of the forms of a time."""


def parse_time(text: str, *, now: datetime, zone: tzinfo | None = None) -> int:
    """Parse a point in time; the module docstring lists the forms.

    `now` must have a time zone. `zone` applies to times without one; None is this machine's.

    Raises:
        TimeNotUnderstood: the text has none of the forms; the message shows some.
    """
    assert now.tzinfo is not None
    words = " ".join(text.lower().split())
    try:
        moment = (
            _epoch_ms(words)
            or _relative_ms(words, now=now)
            or _named_day_ms(words, now=now, zone=zone)
            or _calendar_ms(words.upper(), zone=zone)
        )
    except (ValueError, OverflowError) as error:
        raise TimeNotUnderstood(f"{text!r} is not a time: {error}. Try {EXAMPLES}") from None
    if moment is None:
        raise TimeNotUnderstood(f"{text!r} is not a time. Try {EXAMPLES}")
    return moment.ms


def format_ms(ms: int, *, zone: tzinfo | None = None) -> str:
    """ISO 8601 with milliseconds and zone, which `parse_time` can parse; '-' for no time."""
    if not 0 <= ms <= EPOCH_MS_MAX:
        return "-" if ms < 0 else str(ms)
    moment = datetime.fromtimestamp(ms // 1000, UTC) + timedelta(milliseconds=ms % 1000)
    return moment.astimezone(zone).isoformat(timespec="milliseconds")


def parse_duration_ms(text: str) -> int:
    """Parse `500ms`, `1h30m`, `2 days` to milliseconds.

    Raises:
        TimeNotUnderstood: the text is not a duration, or is a bare number: 2 may mean seconds, hours or days.
    """
    words = " ".join(text.lower().split())
    if _NUMBER.fullmatch(words):
        raise TimeNotUnderstood(
            f"{text!r} has no unit: write {words}ms, {words}s, {words}m, {words}h or {words}d"
        )
    length = _duration_ms(words)
    if length is None:
        raise TimeNotUnderstood(
            f"{text!r} is not a length of time, such as '90s', '3h' or '7 days'"
        )
    return length


def format_duration_ms(ms: int) -> str:
    """The duration in the largest unit that gives a whole number: 604800000 -> '7d', 5400000 -> '90m'."""
    if ms == 0:
        return "0s"
    for unit in ("d", "h", "m", "s"):
        if ms % UNIT_MS[unit] == 0:
            return f"{ms // UNIT_MS[unit]}{unit}"
    return f"{ms}ms"


def format_long_duration_ms(ms: int) -> str:
    """The duration in days and smaller units, for people: 5000000000 -> '57d 20h 53m 20s'."""
    if ms < UNIT_MS["d"]:
        return format_duration_ms(ms)
    words, rest = [], ms
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, UNIT_MS[unit])
        if count:
            words.append(f"{count}{unit}")
    return " ".join([*words, *([f"{rest}ms"] if rest else [])])


class _Moment:
    """Wraps an instant, so that the instant 0 is not mistaken for 'not this form'."""

    __slots__ = ("ms",)

    def __init__(self, ms: int) -> None:
        if not 0 <= ms <= EPOCH_MS_MAX:
            raise ValueError("it lies before 1970 or after 9999")
        self.ms = ms


def _epoch_ms(words: str) -> _Moment | None:
    if not _EPOCH.fullmatch(words):
        return None
    marked, number = words.startswith("@"), int(words.lstrip("@"))
    if number >= EPOCH_MS_MIN:
        return _Moment(number)
    if not marked:
        raise ValueError(
            "it is too small for milliseconds since 1970; write seconds with an @ before them"
        )
    return _Moment(number * 1000)


def _relative_ms(words: str, *, now: datetime) -> _Moment | None:
    now_ms = _to_ms(now)
    if words == "now":
        return _Moment(now_ms)
    # `--since 3h` and `--since -3h` mean '3h ago', as in other tools that read logs.
    length = _duration_ms(words.removesuffix("ago").removeprefix("-").strip())
    return None if length is None else _Moment(now_ms - length)


def _duration_ms(words: str) -> int | None:
    if not _DURATION.fullmatch(words):
        return None
    total = 0.0
    for amount, name in _PART.findall(words):
        unit = _UNIT_OF.get(name)
        if unit is None:
            raise TimeNotUnderstood(f"{name!r} is not a unit of time (ms, s, m, h, d, w)")
        total += (1 if amount in {"a", "an"} else float(amount)) * UNIT_MS[unit]
    return round(total)


def _named_day_ms(words: str, *, now: datetime, zone: tzinfo | None) -> _Moment | None:
    day_name, _, clock = words.partition(" ")
    if _CLOCK.fullmatch(day_name) and not clock:
        day_name, clock = "today", day_name
    if day_name not in {"today", "yesterday"} or (clock and not _CLOCK.fullmatch(clock)):
        return None
    day = now.astimezone(zone).date()
    if day_name == "yesterday":
        day -= timedelta(days=1)
    hour = (
        time.fromisoformat(clock.zfill(len(clock) + (clock.index(":") == 1))) if clock else time()
    )
    return _Moment(_wall_clock_ms(day, hour, zone=zone))


def _calendar_ms(words: str, *, zone: tzinfo | None) -> _Moment | None:
    if not re.match(r"\d{4}-", words):
        return None
    # Date and time may be separated by 'T' or ' '; a space before a zone is common, but Python rejects it.
    moment = datetime.fromisoformat(re.sub(r" (?=[+-]\d|Z|UTC)", "", words).replace("UTC", "Z"))
    if moment.tzinfo is not None:
        return _Moment(_to_ms(moment))
    return _Moment(_wall_clock_ms(moment.date(), moment.time(), zone=zone))


def _wall_clock_ms(day: date, hour: time, *, zone: tzinfo | None) -> int:
    # Without a tzinfo, astimezone() uses the system's zone on that very day, so summer time is right. If an hour exists
    # twice, the first one is used.
    wall = datetime.combine(day, hour)
    return _to_ms(wall.replace(tzinfo=zone) if zone is not None else wall.astimezone())


def _to_ms(moment: datetime) -> int:
    # Integers throughout: float seconds lose milliseconds after the year 2255 or so.
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
