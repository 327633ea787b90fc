"""A position in a partition's log: the only type for it, its parser, and its resolution to an offset. Pure.

Earliest   Latest   AtOffset(4711)   AtTime(ms)   Last(100)

"earliest" "beginning"   "latest" "end"          the log's ends
4711  "4711"                                     an offset
"-100"                                           the last 100 offsets
datetime with a zone   timedelta(days=3)         the first message of that time, or that long ago, or later
"3 days ago"  "yesterday 08:00"                  the same, in any form of `model/times.py`
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import index
from typing import SupportsIndex, TypeAlias

from respool.model.times import TimeNotUnderstood, parse_time

OFFSET_MAX = 2**63 - 1
FORMS = "give a datetime with a zone, a timedelta (how long ago), an offset, a time as text, 'earliest' or 'latest'"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Earliest:
    """The log start."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The log end as the reader sees it, behind the last message."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message with this timestamp or a later one; the log end if there is none."""

    ms: int


@dataclass(frozen=True, slots=True)
class Last:
    """The last `count` offsets."""

    count: int


SeekTarget: TypeAlias = Earliest | Latest | AtOffset | AtTime | Last


class InvalidSeekTarget(ValueError):
    """The value has none of the valid forms; the message says why, and lists them."""


def parse_seek_target(given: object, *, now: datetime, numbers_in_text: bool = False) -> SeekTarget:
    """Parse a seek target; the module docstring lists the forms. `now` must have a time zone.

    Numbers in text are offsets with `numbers_in_text`, else times: `1763107200000`, `@1763107200`.

    Raises:
        InvalidSeekTarget: the value has none of the forms.
    """
    match given:
        case bool():
            pass
        case SupportsIndex():
            # Including numpy's integers.
            return AtOffset(valid_offset(given))
        case str():
            return _parse_text(given, now=now, numbers_in_text=numbers_in_text)
        case timedelta():
            if given < timedelta(0):
                raise InvalidSeekTarget(
                    f"{given!r} ago would be in the future: a timedelta says how long ago"
                )
            return AtTime(max(0, _ms_of(now) - given // _MILLISECOND))
        case datetime():
            return AtTime(_time_ms(given))
    raise InvalidSeekTarget(f"{given!r} is not a place in a log: {FORMS}")


def parse_log_end(text: str) -> Earliest | Latest | None:
    """Parse `earliest`, `beginning`, `latest` or `end`; None for other text."""
    match text.strip().lower():
        case "earliest" | "beginning":
            return Earliest()
        case "latest" | "end":
            return Latest()
    return None


def parse_offset(text: str) -> Earliest | Latest | AtOffset | Last | None:
    """Parse the name of a log end, `4711`, or `-100` for the last 100 offsets; None for other text."""
    words = text.strip()
    if words.isdecimal():
        return AtOffset(int(words))
    if words.startswith("-") and words[1:].isdecimal():
        return Last(int(words[1:]))
    return parse_log_end(words)


def valid_offset(value: object) -> int:
    """
    Raises:
        InvalidSeekTarget: the value is not a valid offset.
    """
    offset = -1 if isinstance(value, bool) or not isinstance(value, SupportsIndex) else index(value)
    if not 0 <= offset <= OFFSET_MAX:
        raise InvalidSeekTarget(
            f"{value!r} is not an offset: those are whole numbers from 0; for the log's ends give 'earliest' or "
            "'latest'"
        )
    return offset


def resolve(target: SeekTarget, *, low: int, high: int, at_time: int | None) -> int:
    """The target's offset in a partition with offsets `low` up to, not including, `high`; it may lie outside of these.

    `at_time` is the partition's first offset at or after the time of an `AtTime`; None if there is none.
    """
    match target:
        case Earliest():
            return low
        case Latest():
            return high
        case AtOffset(offset):
            return offset
        case Last(count):
            return max(low, high - count)
        case AtTime():
            return high if at_time is None else at_time


def clamp(offset: int, *, low: int, high: int) -> int:
    """The nearest offset within the partition's range, or its end."""
    return min(max(offset, low), high)


def _parse_text(text: str, *, now: datetime, numbers_in_text: bool) -> SeekTarget:
    found = parse_offset(text) if numbers_in_text else parse_log_end(text)
    if found is not None:
        return found
    try:
        return AtTime(parse_time(text.strip(), now=now))
    except TimeNotUnderstood as error:
        raise InvalidSeekTarget(f"{error}; or 'earliest', or 'latest'") from None


def _time_ms(moment: datetime) -> int:
    if moment.utcoffset() is None:
        raise InvalidSeekTarget(
            f"{moment.isoformat()} has no zone, so it is not clear when that is: add one (tzinfo=UTC, or a trailing "
            "Z), or .astimezone() for this machine's"
        )
    # Rounded up, so that no message before the given time is included.
    ms = -((_EPOCH - moment) // _MILLISECOND)
    if ms < 0:
        raise InvalidSeekTarget(f"{moment.isoformat()} lies before 1970")
    return ms


def _ms_of(now: datetime) -> int:
    return (now - _EPOCH) // _MILLISECOND
