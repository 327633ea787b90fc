"""Plans a read: computes the offset ranges to read from the brokers' answers. Pure.

```
        log start        begin                                end           later
   deleted |  not requested | ######## read ######## (filtered) |  appended after the read began
```
A time is less precise than an offset: producers set message timestamps, so they need not be in order.

- `begin` for a time is the first offset whose message has that time or a later one. All messages before it are earlier,
  so none is missed. Earlier messages may follow it; they are filtered out.
- `end` for a time: earlier messages may still follow the first message of that time or later. So the read continues to
  the log end as of its start, and filters out later messages. If the caller bounds how late a message can be
  (`lateness`), it ends at the first message of that time plus lateness, or later.

An offset alone does not show whether requested messages have been deleted: a quiet partition's first message may be
recent because the deleted ones were old. Nothing was deleted if the log starts at 0. Otherwise retention deletes only
messages older than `retention.ms`, unless `retention.bytes` is set. DeleteRecords leaves no trace of what it deleted.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import index
from typing import Literal, TypeAlias
from uuid import UUID

from respool.client.arrow.errors import OffsetBeyondEnd, OutsideRetention
from respool.client.arrow.reading.read_bounds import PartitionOffsets, Point, format_ms, target_of
from respool.client.kafka.errors import BadArgument
from respool.model.seek_target import AtOffset, AtTime, Earliest, Last, Latest

Missing: TypeAlias = Literal["error", "available"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """The offsets [begin, end) of one partition; without an end it is followed. Can be pickled."""

    partition: int
    begin: int
    end: int | None

    @property
    def is_empty(self) -> bool:
        return self.end is not None and self.begin >= self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """The resolved offsets and filters of a read. Can be pickled."""

    topic: str
    # The offsets belong to this topic, not to a later one of the same name. None if brokers do not support topic ids.
    topic_id: UUID | None
    ranges: tuple[PartitionRange, ...]
    # Whether ranges may end beyond the log end: the read then waits for messages, however long.
    follow: bool = False
    # Messages outside these times are filtered out, although they lie within the ranges.
    since_ms: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The offset and time of a message."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The brokers' answers for one partition. `end` was requested first."""

    partition: int
    log_start: int
    # The end for this reader: the high watermark, or the last stable offset for read_committed.
    end: int
    # Records of open transactions may lie between `end` and here.
    high_watermark: int
    # The first message in the log; requested only if `since` is a time.
    first: Found | None = None
    # The first message at or after `since`; None if there is none, or `since` is not a time.
    since_at: Found | None = None
    # The first message at or after `until` plus lateness; None in the same cases.
    until_at: Found | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """A topic's limits for old messages. -1: no such limit."""

    ms: int
    bytes: int

    def may_have_deleted(self, since_ms: int, *, now_ms: int) -> bool:
        """Whether messages of this time or later may have been deleted."""
        return self.bytes >= 0 or (self.ms >= 0 and since_ms < now_ms - self.ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """The caller's request."""

    topic: str
    since: Point
    until: Point
    follow: bool
    missing: Missing
    now_ms: int

    def __post_init__(self) -> None:
        match self.since, self.until:
            case AtTime(since), AtTime(until) if since > until:
                raise BadArgument(
                    f"since {format_ms(since)} comes after until {format_ms(until)}: nothing lies between them"
                )
            case AtOffset(since), AtOffset(until) if since > until:
                raise BadArgument(f"since {since} comes after until {until}: nothing lies between")
            case _, Earliest():
                raise BadArgument("until = 'earliest' leaves nothing to read")
        if self.follow and isinstance(self.until, AtTime):
            raise BadArgument(
                "until is a time, and a log that is followed may get a message of that time at any later moment: "
                "use follow=False, or end it by offsets"
            )


def chosen_partitions(
    request: ReadRequest, partitions: Iterable[int] | None, available: Iterable[int]
) -> list[int]:
    """The requested partitions; else those named in since or until; else all.

    Raises:
        BadArgument: one is not a number, or since or until lack an offset for one of them.
    """
    named = [
        set(point.offsets)
        for point in (request.since, request.until)
        if isinstance(point, PartitionOffsets)
    ]
    if partitions is not None:
        try:
            chosen = sorted({index(one) for one in partitions})
        except TypeError:
            raise BadArgument(
                f"partitions = {partitions!r}: a list of whole numbers, such as [0, 1]"
            ) from None
    elif named:
        chosen = sorted(named[0])
    else:
        chosen = sorted(available)
    for one in named:
        if missing := set(chosen) - one:
            raise BadArgument(
                f"since and until must name every partition that is read; no offset is given for {sorted(missing)}"
            )
    return chosen


def plan_range(request: ReadRequest, facts: Facts, retention: Retention | None) -> PartitionRange:
    """The offsets to read of one partition. `retention` is None if the broker does not report it.

    Raises:
        OutsideRetention: requested messages have been deleted, or may have been.
        OffsetBeyondEnd: the read would begin beyond the log end.
    """
    return PartitionRange(
        partition=facts.partition,
        begin=_begin(request, facts, retention),
        end=_end(request, facts),
    )


def _begin(request: ReadRequest, facts: Facts, retention: Retention | None) -> int:
    match target_of(request.since, facts.partition):
        case Latest():
            return facts.end
        case Last(count):
            return max(facts.log_start, facts.end - count)
        case AtOffset(offset):
            return _begin_at_offset(request, facts, offset)
        case AtTime(ms):
            if request.missing == "error" and _may_be_gone(
                facts, ms, retention, now_ms=request.now_ms
            ):
                raise _deleted_before(request, facts, ms, retention)
            return facts.end if facts.since_at is None else facts.since_at.offset
    return facts.log_start


def _begin_at_offset(request: ReadRequest, facts: Facts, offset: int) -> int:
    if offset > facts.high_watermark:
        raise OffsetBeyondEnd(
            f"the read should begin at offset {offset}, and the log has {facts.log_start} to "
            f"{facts.high_watermark}: begin at its end with since='latest'",
            topic=request.topic,
            partition=facts.partition,
            offset=offset,
        )
    if offset >= facts.log_start:
        return offset
    if request.missing == "available":
        return facts.log_start
    raise OutsideRetention(
        f"offset {offset} has been deleted, the log begins at {facts.log_start}: begin there, or take what there "
        "is with missing='available'",
        topic=request.topic,
        partition=facts.partition,
        offset=offset,
        first_offset=facts.log_start,
    )


def _end(request: ReadRequest, facts: Facts) -> int | None:
    match target_of(request.until, facts.partition):
        case AtOffset(offset):
            # An end beyond the log end is clamped, as in a slice.
            return offset if request.follow else min(offset, facts.end)
        case Latest() if request.follow:
            return None
        case AtTime() if facts.until_at is not None:
            return min(facts.until_at.offset, facts.end)
    return facts.end


def _may_be_gone(facts: Facts, since_ms: int, retention: Retention | None, *, now_ms: int) -> bool:
    if facts.log_start == 0:
        return False
    if facts.first is not None and facts.first.timestamp_ms <= since_ms:
        # The log still has a message from before that time.
        return False
    return retention is None or retention.may_have_deleted(since_ms, now_ms=now_ms)


def _deleted_before(
    request: ReadRequest, facts: Facts, since_ms: int, retention: Retention | None
) -> OutsideRetention:
    first = facts.first
    have = (
        "and no message is left"
        if first is None
        else f"the first message there is has offset {first.offset} and is of {format_ms(first.timestamp_ms)}"
    )
    rule = (
        "which is not known"
        if retention is None
        else f"retention.ms is {retention.ms}, retention.bytes {retention.bytes}"
    )
    return OutsideRetention(
        f"messages from {format_ms(since_ms)} on were asked for; those before offset {facts.log_start} have been "
        f"deleted, by retention ({rule}) or DeleteRecords; {have}: ask for a later time, or take what there is with "
        "missing='available'",
        topic=request.topic,
        partition=facts.partition,
        offset=None,
        first_offset=facts.log_start if first is None else first.offset,
        first_time_ms=None if first is None else first.timestamp_ms,
    )
