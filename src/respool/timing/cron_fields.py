"""The fields of a cron line: numbers, names, ranges, steps and lists -> the numbers at which it fires.

minute   0-59             */15    0,30    10-20/5
month    1-12 or JAN-DEC
day of the week   0-7 or SUN-SAT; 0 and 7 are Sunday
"""

from dataclasses import dataclass
from typing import NamedTuple

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIELDS_MIN, _FIELDS_MAX = 5, 6


class BadSchedule(ValueError):
    """The text is not a schedule, or one that never fires."""


class _CronField(NamedTuple):
    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()


_SECOND = _CronField("second", 0, 59)
_MINUTE = _CronField("minute", 0, 59)
_HOUR = _CronField("hour", 0, 23)
_DAY_OF_MONTH = _CronField("day of the month", 1, 31)
_MONTH = _CronField("month", 1, 12, _MONTHS)
# 7 is Sunday as well, so that ranges may end with it.
_DAY_OF_WEEK = _CronField("day of the week", 0, 7, _DAYS)


@dataclass(frozen=True, slots=True)
class CronFields:
    """The numbers at which each field fires, in order."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days_of_month: frozenset[int]
    months: frozenset[int]
    # 0 is Sunday.
    days_of_week: frozenset[int]
    # If both fields of days are restricted, either of them suffices.
    either_day: bool


def parse_cron_fields(text: str) -> CronFields:
    """Parse 5 fields, from minutes to days of the week, or 6 with seconds before them.

    Raises:
        BadSchedule: a field is malformed or out of range; the message says which.
    """
    words = text.split()
    if not _FIELDS_MIN <= len(words) <= _FIELDS_MAX:
        raise BadSchedule(
            f"a schedule has 5 fields (minute, hour, day of the month, month, day of the week), or 6 with "
            f"seconds before them; this one has {len(words)}"
        )
    seconds = "0" if len(words) == _FIELDS_MIN else words.pop(0)
    minutes, hours, days_of_month, months, days_of_week = words
    return CronFields(
        seconds=_numbers(seconds, _SECOND),
        minutes=_numbers(minutes, _MINUTE),
        hours=_numbers(hours, _HOUR),
        days_of_month=frozenset(_numbers(days_of_month, _DAY_OF_MONTH)),
        months=frozenset(_numbers(months, _MONTH)),
        days_of_week=frozenset(number % 7 for number in _numbers(days_of_week, _DAY_OF_WEEK)),
        either_day=not (_is_any(days_of_month) or _is_any(days_of_week)),
    )


def _is_any(text: str) -> bool:
    return text.startswith(("*", "?"))


def _numbers(text: str, field: _CronField) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(","):
        found.update(_part(part, field))
    return tuple(sorted(found))


def _part(text: str, field: _CronField) -> range:
    bounds, slash, step_text = text.partition("/")
    step = _step(step_text, field) if slash else 1
    if bounds in {"*", "?"}:
        return range(field.first, field.last + 1, step)
    first_text, dash, last_text = bounds.partition("-")
    first = _number(first_text, field)
    if dash:
        last = _number(last_text, field)
    elif slash:
        # `5/15`: from 5 on, every 15.
        last = field.last
    else:
        last = first
    if last < first:
        raise BadSchedule(f"{field.name} {text!r}: the range ends before it begins")
    return range(first, last + 1, step)


def _number(text: str, field: _CronField) -> int:
    name = text.upper()
    if name in field.names:
        return field.names.index(name) + field.first
    number = _digits(text)
    if number is None:
        names = f" or {field.names[0]}-{field.names[-1]}" if field.names else ""
        raise BadSchedule(
            f"{field.name} {text[:20]!r}: expected a number from {field.first} to {field.last}{names}"
        )
    if not field.first <= number <= field.last:
        raise BadSchedule(f"{field.name} {number}: it must be {field.first} to {field.last}")
    return number


def _step(text: str, field: _CronField) -> int:
    step = _digits(text)
    if not step:
        raise BadSchedule(f"{field.name}: the step {text[:20]!r} is not a number above 0")
    return step


def _digits(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None
