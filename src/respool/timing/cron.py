"""Schedules: when they fire, in a time zone. Pure: times are milliseconds since 1970.

    */15 8-18 * * MON-FRI      5 fields: minute, hour, day of the month, month, day of the week
    30 0 9 1 * *               6 fields: with seconds before them
    @hourly @daily @midnight @weekly @monthly @yearly @annually
    @every 10m                 at multiples of 10 minutes after the record's own time

A wall time that a change of the clocks skips fires at the instant of that change. One that comes twice fires once, the
first time. So `*/10 * * * *` in a zone that ends summer time is silent for that hour; `@every` and UTC are not.
"""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from respool.model.times import TimeNotUnderstood, format_duration_ms, parse_duration_ms
from respool.timing.cron_fields import BadSchedule, CronFields, parse_cron_fields
from respool.timing.zones import UTC_NAME, find_zone

EVERY_MS_MIN = 1_000
_MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY = re.compile(r"@every\s+(\S.*)")
# February 29 comes after 8 years at most, as from 2096 to 2104.
_YEARS_SEARCHED = 9
_YEAR_MAX = 9_900
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 wall times have no zone here


class Schedule(Protocol):
    def next_after(self, after_ms: int) -> int | None:
        """The first time it fires after that one; None if it never does."""
        ...

    def latest(self, *, from_ms: int, to_ms: int) -> int:
        """The last time it fires up to `to_ms`; it fires at `from_ms`."""
        ...

    def nth_after(self, after_ms: int, count: int) -> int | None:
        """The time it fires for the `count`-th time after that one."""
        ...


def parse_schedule(text: str, *, zone: str | None, base_ms: int) -> Schedule:
    """Parse a schedule; the module docstring lists the forms. `base_ms` is what `@every` counts from.

    Raises:
        BadSchedule: it is malformed, fires more than once a second, or never.
        UnknownTimeZone: there is no such zone.
    """
    words = " ".join(text.split())
    every = _EVERY.fullmatch(words)
    if every:
        if zone is not None:
            raise BadSchedule("@every has no time zone: it counts from the record's own time")
        return Every(_interval_ms(every[1]), base_ms)
    if words.startswith("@"):
        fields = _MACROS.get(words.lower())
        if fields is None:
            raise BadSchedule(f"{words[:40]!r} is not one of {', '.join(_MACROS)} and @every 10m")
        words = fields
    schedule = Cron(parse_cron_fields(words), find_zone(zone or UTC_NAME))
    if schedule.next_after(base_ms) is None:
        raise BadSchedule(f"{words[:100]!r} never fires")
    return schedule


class Every:
    """At multiples of an interval after a base."""

    def __init__(self, interval_ms: int, base_ms: int) -> None:
        self._interval_ms = interval_ms
        self._base_ms = base_ms

    def next_after(self, after_ms: int) -> int | None:
        return self.nth_after(after_ms, 1)

    def latest(self, *, from_ms: int, to_ms: int) -> int:
        return from_ms + (to_ms - from_ms) // self._interval_ms * self._interval_ms

    def nth_after(self, after_ms: int, count: int) -> int | None:
        passed = max(0, (after_ms - self._base_ms) // self._interval_ms)
        return self._base_ms + (passed + count) * self._interval_ms


class Cron:
    """At wall times of a zone."""

    def __init__(self, fields: CronFields, zone: ZoneInfo) -> None:
        self._fields = fields
        self._zone = zone

    def next_after(self, after_ms: int) -> int | None:
        wall = _wall_time(after_ms // 1000, self._zone)
        # Later wall times never mean earlier instants, so none before `wall` fires after `after_ms`.
        second = wall.hour * 3600 + wall.minute * 60 + wall.second
        today = wall.date()
        for day in self._days_from(today):
            for at in self._seconds_from(second if day == today else 0):
                fires_ms = _instant_s(day, at, self._zone) * 1000
                if fires_ms > after_ms:
                    return fires_ms
        return None

    def latest(self, *, from_ms: int, to_ms: int) -> int:
        latest_ms, back_ms = from_ms, 1000
        # Search backwards in doubling steps, instead of stepping through all missed times.
        while to_ms - back_ms > from_ms:
            found = self.next_after(to_ms - back_ms)
            if found is not None and found <= to_ms:
                latest_ms = found
                break
            back_ms *= 2
        while (later := self.next_after(latest_ms)) is not None and later <= to_ms:
            latest_ms = later
        return latest_ms

    def nth_after(self, after_ms: int, count: int) -> int | None:
        at_ms: int | None = after_ms
        for _ in range(count):
            if at_ms is None:
                break
            at_ms = self.next_after(at_ms)
        return at_ms

    def _days_from(self, first: date) -> Iterator[date]:
        day, fields = first, self._fields
        year_end = min(first.year + _YEARS_SEARCHED, _YEAR_MAX)
        while day.year <= year_end:
            if day.month not in fields.months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            in_month = day.day in fields.days_of_month
            in_week = day.isoweekday() % 7 in fields.days_of_week
            if (in_month or in_week) if fields.either_day else (in_month and in_week):
                yield day
            day += timedelta(days=1)

    def _seconds_from(self, second: int) -> Iterator[int]:
        """The seconds of a day at which it fires, from one on."""
        fields = self._fields
        for hour in fields.hours:
            if (hour + 1) * 3600 <= second:
                continue
            for minute in fields.minutes:
                begin = hour * 3600 + minute * 60
                if begin + 60 <= second:
                    continue
                for at in fields.seconds:
                    if begin + at >= second:
                        yield begin + at


def _interval_ms(text: str) -> int:
    try:
        interval = parse_duration_ms(text)
    except (TimeNotUnderstood, OverflowError) as error:
        raise BadSchedule(f"@every: {error}") from None
    if interval < EVERY_MS_MIN:
        raise BadSchedule(f"@every {format_duration_ms(interval)}: the shortest interval is 1s")
    return interval


def _wall_time(at_s: int, zone: ZoneInfo) -> datetime:
    moment = _EPOCH + timedelta(seconds=at_s)
    return moment.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None)


def _instant_s(day: date, second: int, zone: ZoneInfo) -> int:
    """The instant of a wall time: the first, if it comes twice; the change of the clocks, if that skips it."""
    wall = datetime(day.year, day.month, day.day) + timedelta(seconds=second)  # noqa: DTZ001
    wall_s = (wall - _EPOCH) // timedelta(seconds=1)
    before, after = _offsets_s(wall, zone)
    instant_s = wall_s - before
    if after <= before:
        return instant_s
    # The clocks skipped it, between these two instants: find the first that has the new offset.
    low, high = wall_s - after, instant_s
    while low < high:
        middle = (low + high) // 2
        if _offset_at(middle, zone) == before:
            low = middle + 1
        else:
            high = middle
    return low


def _offsets_s(wall: datetime, zone: ZoneInfo) -> tuple[int, int]:
    """The offsets before and after a change of the clocks that skips or repeats the wall time; else the same twice."""
    before = wall.replace(tzinfo=zone, fold=0).utcoffset()
    after = wall.replace(tzinfo=zone, fold=1).utcoffset()
    assert before is not None
    assert after is not None
    return int(before.total_seconds()), int(after.total_seconds())


def _offset_at(at_s: int, zone: ZoneInfo) -> int:
    moment = (_EPOCH + timedelta(seconds=at_s)).replace(tzinfo=UTC).astimezone(zone)
    offset = moment.utcoffset()
    assert offset is not None
    return int(offset.total_seconds())
