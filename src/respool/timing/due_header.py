"""The delay headers of a record -> when it is due. Pure: the result is the same on every replica, whatever its clock.

A delay counts from the record's timestamp, which is the broker's time with `message.timestamp.type=LogAppendTime`. A
time in the past is not an error: the record is delivered at once.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from respool.model.delays.delay_headers import (
    CANCEL,
    DELAY,
    DELAY_LEVEL,
    DELIVER_AT,
    SCHEDULE,
    SCHEDULE_ID,
    TIME_ZONE,
    TIMES,
    UNTIL,
)
from respool.model.times import (
    EPOCH_MS_MAX,
    EPOCH_MS_MIN,
    TimeNotUnderstood,
    format_duration_ms,
    parse_duration_ms,
    parse_time,
)
from respool.timing.cron import Schedule, parse_schedule
from respool.timing.cron_fields import BadSchedule
from respool.timing.zones import UnknownTimeZone

ID_BYTES_MAX = 256
# Firing times of a schedule are counted one by one.
TIMES_MAX = 1_000
_TEXT_BYTES_MAX = 256
_TIMED = (DELIVER_AT, DELAY, DELAY_LEVEL, SCHEDULE)
_READ = frozenset((*_TIMED, TIME_ZONE, UNTIL, TIMES, SCHEDULE_ID, CANCEL))
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)")
_NOON = datetime.fromisoformat("2000-01-01T12:00:00+00:00")


class BadDelay(ValueError):
    """The delay headers of a record are malformed or contradict each other."""


@dataclass(frozen=True, slots=True)
class DelayRules:
    """The limits of a topic.

    Attributes:
        levels_ms: the delays of `respool-delay-level` 1, 2 and so on.
        max_ms: how far after its timestamp a record may be due.
    """

    levels_ms: tuple[int, ...]
    max_ms: int


@dataclass(frozen=True, slots=True)
class Repetition:
    """The times at which a scheduled record is delivered after the first."""

    schedule: Schedule
    # None: without end.
    last_ms: int | None

    def next_after(self, after_ms: int) -> int | None:
        found = self.schedule.next_after(after_ms)
        return None if found is None or self._is_over(found) else found

    def latest(self, *, from_ms: int, to_ms: int) -> int:
        """The last of the times up to `to_ms`, of which `from_ms` is one."""
        if self.last_ms is not None:
            to_ms = min(to_ms, self.last_ms)
        return self.schedule.latest(from_ms=from_ms, to_ms=max(from_ms, to_ms))

    def _is_over(self, at_ms: int) -> bool:
        return self.last_ms is not None and at_ms > self.last_ms


@dataclass(frozen=True, slots=True)
class Delayed:
    """A record that is delivered later."""

    due_ms: int
    repetition: Repetition | None = None
    id: bytes | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A record that cancels the delayed one of this id."""

    id: bytes


def read_delay(
    headers: Iterable[tuple[str, bytes | None]], *, timestamp_ms: int, rules: DelayRules
) -> Delayed | Cancelled | None:
    """Return what the headers request; None if there are no delay headers.

    Raises:
        BadDelay: the headers are malformed; the message says how.
    """
    found = _delay_headers(headers)
    if not found:
        return None
    if CANCEL in found:
        if len(found) > 1:
            raise BadDelay(
                f"{CANCEL} is combined with {_others(found, CANCEL)}: it must stand alone"
            )
        return Cancelled(_id(found, CANCEL))
    timed = [name for name in _TIMED if name in found]
    if not timed:
        raise BadDelay(f"{next(iter(found))} without one of {', '.join(_TIMED)}")
    if len(timed) > 1:
        raise BadDelay(f"{' and '.join(timed)}: a record has one of them")
    if not 0 <= timestamp_ms <= EPOCH_MS_MAX - rules.max_ms:
        raise BadDelay(f"the record's timestamp is {timestamp_ms}, a delay needs one to count from")
    identity = _id(found, SCHEDULE_ID) if SCHEDULE_ID in found else None
    latest_ms = timestamp_ms + rules.max_ms
    if timed[0] == SCHEDULE:
        return _scheduled(found, timestamp_ms, latest_ms, identity)
    for name in (TIME_ZONE, UNTIL, TIMES):
        if name in found:
            raise BadDelay(f"{name} stands with {timed[0]}: only {SCHEDULE} has it")
    due_ms = _due_ms(timed[0], _text(found, timed[0]), timestamp_ms, rules)
    _check_latest(due_ms, timestamp_ms, latest_ms)
    return Delayed(due_ms, id=identity)


def parse_delay_ms(text: str) -> int:
    """Parse `30s`, `1h30m`, or a number of milliseconds.

    Raises:
        TimeNotUnderstood: the text is not a duration.
    """
    number = _digits(text)
    return parse_duration_ms(text) if number is None else number


def _delay_headers(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    for name, value in headers:
        if name in _READ:
            if name in found:
                raise BadDelay(f"{name} stands twice")
            found[name] = value
    return found


def _others(found: Mapping[str, object], name: str) -> str:
    return ", ".join(other for other in found if other != name)


def _due_ms(name: str, text: str, timestamp_ms: int, rules: DelayRules) -> int:
    if name == DELIVER_AT:
        return _instant_ms(name, text)
    if name == DELAY_LEVEL:
        level = _digits(text)
        if level is None or not 1 <= level <= len(rules.levels_ms):
            raise BadDelay(f"{name} {text!r}: the topic has levels 1 to {len(rules.levels_ms)}")
        return timestamp_ms + rules.levels_ms[level - 1]
    try:
        delay_ms = parse_delay_ms(text)
    except (TimeNotUnderstood, OverflowError) as error:
        raise BadDelay(f"{name}: {error}") from None
    # Before any arithmetic, and before such a number is printed.
    return timestamp_ms + min(delay_ms, EPOCH_MS_MAX)


def _check_latest(due_ms: int, timestamp_ms: int, latest_ms: int) -> None:
    if due_ms > latest_ms:
        raise BadDelay(
            f"due {format_duration_ms(due_ms - timestamp_ms)} after the record's timestamp, the topic allows "
            f"{format_duration_ms(latest_ms - timestamp_ms)} (respool.delay.max.ms)"
        )


def _scheduled(
    found: Mapping[str, bytes | None], timestamp_ms: int, latest_ms: int, identity: bytes | None
) -> Delayed:
    zone = _text(found, TIME_ZONE) if TIME_ZONE in found else None
    try:
        schedule = parse_schedule(_text(found, SCHEDULE), zone=zone, base_ms=timestamp_ms)
    except UnknownTimeZone as error:
        raise BadDelay(f"{TIME_ZONE}: {error}") from None
    except BadSchedule as error:
        raise BadDelay(f"{SCHEDULE}: {error}") from None
    first_ms = schedule.next_after(timestamp_ms)
    assert first_ms is not None, "parse_schedule refuses what never fires"
    _check_latest(first_ms, timestamp_ms, latest_ms)
    last_ms = None
    if UNTIL in found:
        last_ms = _instant_ms(UNTIL, _text(found, UNTIL))
        if last_ms < first_ms:
            raise BadDelay(
                f"{UNTIL} {_text(found, UNTIL)!r} lies before the first time, {first_ms}"
            )
    if TIMES in found:
        last_of_times_ms = schedule.nth_after(timestamp_ms, _times(found))
        if last_of_times_ms is not None:
            last_ms = last_of_times_ms if last_ms is None else min(last_ms, last_of_times_ms)
    return Delayed(first_ms, Repetition(schedule, last_ms), identity)


def _times(found: Mapping[str, bytes | None]) -> int:
    text = _text(found, TIMES)
    number = _digits(text)
    if number is None or not 1 <= number <= TIMES_MAX:
        raise BadDelay(f"{TIMES} {text!r}: expected a number from 1 to {TIMES_MAX}")
    return number


def _instant_ms(name: str, text: str) -> int:
    number = _digits(text)
    if number is not None:
        if not EPOCH_MS_MIN <= number <= EPOCH_MS_MAX:
            raise BadDelay(f"{name} {text}: expected milliseconds since 1970, from {EPOCH_MS_MIN}")
        return number
    if not _RFC_3339.fullmatch(text):
        raise BadDelay(
            f"{name} {text!r}: expected milliseconds since 1970, or a time such as 2026-11-12T08:00:00+01:00"
        )
    try:
        return parse_time(text, now=_NOON)
    except TimeNotUnderstood as error:
        raise BadDelay(f"{name}: {error}") from None


def _id(found: Mapping[str, bytes | None], name: str) -> bytes:
    value = found[name]
    if not value or len(value) > ID_BYTES_MAX:
        raise BadDelay(f"{name} needs an id of 1 to {ID_BYTES_MAX} bytes")
    return value


def _text(found: Mapping[str, bytes | None], name: str) -> str:
    value = found[name]
    if not value or len(value) > _TEXT_BYTES_MAX:
        raise BadDelay(f"{name} needs a value of 1 to {_TEXT_BYTES_MAX} bytes")
    try:
        return value.decode().strip()
    except UnicodeDecodeError:
        raise BadDelay(f"{name} is not text (UTF-8)") from None


def _digits(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else None
