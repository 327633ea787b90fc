"""Where a read begins and ends, as people say it -> one of four forms. Pure: the caller says what time it is now.

None  "earliest"  "latest"                       the log's ends
4711  {0: 4711, 1: 4000}                         an offset of every partition, or of each
datetime with a zone                             a time
timedelta(days=3)                                so long ago
"3 days ago"  "yesterday 08:00"                  a time in any form that the command line reads (`model/times.py`)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import index
from typing import SupportsIndex, TypeAlias

from respool.client.kafka.errors import BadArgument
from respool.model.times import TimeNotUnderstood, parse_time

When: TypeAlias = datetime | timedelta | int | Mapping[int, int] | str | None

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_OFFSET_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first message there is."""


@dataclass(frozen=True, slots=True)
class Latest:
    """After the last message there is when the read begins."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    # Of each partition, or one for all.
    offsets: Mapping[int, int] | int

    def of(self, partition: int) -> int:
        return self.offsets if isinstance(self.offsets, int) else self.offsets[partition]


@dataclass(frozen=True, slots=True)
class AtTime:
    ms: int


Point: TypeAlias = Earliest | Latest | AtOffset | AtTime


def parse_point(name: str, said: When, *, default: Point, now_ms: int) -> Point:
    """
    Raises:
        BadArgument: it is none of the forms.
    """
    if isinstance(said, SupportsIndex) and not isinstance(said, bool):
        # numpy's integers, too.
        said = index(said)
    match said:
        case None:
            return default
        case bool():
            raise BadArgument(f"{name} = {said}: {_FORMS}")
        case int():
            return AtOffset(_offset(name, said))
        case str():
            return _from_text(name, said, now_ms=now_ms)
        case timedelta():
            if said < timedelta(0):
                raise BadArgument(
                    f"{name} = {said!r} would lie in the future; a timedelta says how long ago"
                )
            return AtTime(max(0, now_ms - said // _MILLISECOND))
        case datetime():
            return AtTime(_time_ms(name, said))
        case Mapping():
            if not said:
                raise BadArgument(f"{name} names no partition")
            return AtOffset(
                {_partition(name, key): _offset(name, value) for key, value in said.items()}
            )
    raise BadArgument(f"{name} = {said!r}: {_FORMS}")


def format_ms(ms: int) -> str:
    """A time as it may be given again."""
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{ms} ms after 1970"


_FORMS = (
    "it may be a datetime with a zone, a timedelta (so long ago), an offset, {partition: offset}, "
    "a time as text, 'earliest' or 'latest'"
)


def _from_text(name: str, said: str, *, now_ms: int) -> Point:
    words = said.strip()
    if words.lower() == "earliest":
        return Earliest()
    if words.lower() == "latest":
        return Latest()
    try:
        return AtTime(parse_time(words, now=_EPOCH + timedelta(milliseconds=now_ms)))
    except TimeNotUnderstood as error:
        raise BadArgument(f"{name} = {error}; or 'earliest', or 'latest'") from None


def _time_ms(name: str, moment: datetime) -> int:
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise BadArgument(
            f"{name} = {moment.isoformat()} has no zone, so it is not clear when that is: "
            "add one (tzinfo=UTC, or a trailing Z), or .astimezone() for this machine's"
        )
    ms = -((_EPOCH - moment) // _MILLISECOND)
    if ms < 0:
        raise BadArgument(f"{name} = {moment.isoformat()} lies before 1970")
    return ms


def _offset(name: str, value: object) -> int:
    offset = _whole(value)
    if offset is None or offset > _OFFSET_MAX:
        raise BadArgument(f"{name} = {value!r} is no offset: those are whole numbers from 0 on")
    return offset


def _partition(name: str, value: object) -> int:
    partition = _whole(value)
    if partition is None:
        raise BadArgument(f"{name} names partition {value!r}: they are whole numbers from 0 on")
    return partition


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    number = index(value)
    return number if number >= 0 else None
