"""Which offsets of which partitions a read takes: decided here, from what the brokers said. Pure.

```
        log start        begin                                end           later
   deleted |  not asked for | ######## read ######## (filtered) |  came after the read began
```
A time says less than an offset: messages carry the time that their producers gave them, and need not be in its order.

- `begin` for a time is the first offset whose message is of that time or later. All before it are earlier: none is
  missed. After it may come earlier ones, which are left out one by one.
- `end` for a time: after the first message of that time or later there may still come earlier ones. So the read goes on
  to where the log ended when it began, and later messages are left out one by one; unless the caller promises how late
  a message can be (`lateness`): then it ends at the first message of that time plus lateness or later.

Whether anything that was asked for has been deleted cannot be seen from an offset alone: a quiet partition's first
message may be young because the ones before it were old. Nothing was deleted if the log starts at 0. Else what
retention takes is older than `retention.ms`, as long as no `retention.bytes` is set.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import index
from typing import Literal, TypeAlias
from uuid import UUID

from respool.client.arrow.errors import OffsetBeyondEnd, OutsideRetention
from respool.client.arrow.reading.points import PartitionOffsets, Point, format_ms, target_of
from respool.client.arrow.reading.retention import Retention
from respool.client.kafka.errors import BadArgument
from respool.model.seek_target import AtOffset, AtTime, Earliest, Last, Latest

Missing: TypeAlias = Literal["error", "available"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """The offsets [begin, end) of one partition; without an end it is followed. Can be sent to other processes."""

    partition: int
    begin: int
    end: int | None

    @property
    def is_empty(self) -> bool:
        return self.end is not None and self.begin >= self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """What to read, once it is known. Can be sent to other processes."""

    topic: str
    # The offsets are those of this topic, not of another one that gets its name later. None where brokers have no ids.
    topic_id: UUID | None
    ranges: tuple[PartitionRange, ...]
    # Whether ranges may end where the log has not come yet: then it is waited for, however long.
    follow: bool = False
    # Messages of other times are left out, though they lie within the ranges.
    since_ms: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A message, by its offset and time."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What brokers said of one partition. `end` was asked for first."""

    partition: int
    log_start: int
    # What can be read ends here: the high watermark, or the last stable offset for read_committed.
    end: int
    # Messages that are not committed yet may lie between `end` and here.
    high_watermark: int
    # The first message there is; only asked for when `since` is a time.
    first: Found | None = None
    # The first message at or after `since`; None when there is none, or `since` is no time.
    since_at: Found | None = None
    # The first message at or after `until` plus lateness; None likewise.
    until_at: Found | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the caller wants to read."""

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
    wish: Wish, partitions: Iterable[int] | None, available: Iterable[int]
) -> list[int]:
    """Those asked for; else those that since or until name; else all.

    Raises:
        BadArgument: they are no numbers, or since or until do not say where one of them begins or ends.
    """
    named = [
        set(point.offsets)
        for point in (wish.since, wish.until)
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


def plan_range(wish: Wish, facts: Facts, retention: Retention | None) -> PartitionRange:
    """The offsets to read of one partition. `retention` is None where it could not be learnt.

    Raises:
        OutsideRetention: what was asked for has been deleted, or may have been.
        OffsetBeyondEnd: the read would begin after the log's end.
    """
    return PartitionRange(
        partition=facts.partition,
        begin=_begin(wish, facts, retention),
        end=_end(wish, facts),
    )


def _begin(wish: Wish, facts: Facts, retention: Retention | None) -> int:
    match target_of(wish.since, facts.partition):
        case Latest():
            return facts.end
        case Last(count):
            return max(facts.log_start, facts.end - count)
        case AtOffset(offset):
            return _begin_at_offset(wish, facts, offset)
        case AtTime(ms):
            if wish.missing == "error" and _may_be_gone(facts, ms, retention, now_ms=wish.now_ms):
                raise _deleted_before(wish, facts, ms, retention)
            return facts.end if facts.since_at is None else facts.since_at.offset
    return facts.log_start


def _begin_at_offset(wish: Wish, facts: Facts, offset: int) -> int:
    if offset > facts.high_watermark:
        raise OffsetBeyondEnd(
            f"the read should begin at offset {offset}, and the log has {facts.log_start} to "
            f"{facts.high_watermark}: begin at its end with since='latest'",
            topic=wish.topic,
            partition=facts.partition,
            offset=offset,
        )
    if offset >= facts.log_start:
        return offset
    if wish.missing == "available":
        return facts.log_start
    raise OutsideRetention(
        f"offset {offset} has been deleted, the log begins at {facts.log_start}: begin there, or take what there "
        "is with missing='available'",
        topic=wish.topic,
        partition=facts.partition,
        offset=offset,
        first_offset=facts.log_start,
    )


def _end(wish: Wish, facts: Facts) -> int | None:
    match target_of(wish.until, facts.partition):
        case AtOffset(offset):
            # Beyond the end there is nothing yet: as with a slice, what there is comes.
            return offset if wish.follow else min(offset, facts.end)
        case Latest() if wish.follow:
            return None
        case AtTime() if facts.until_at is not None:
            return min(facts.until_at.offset, facts.end)
    return facts.end


def _may_be_gone(facts: Facts, since_ms: int, retention: Retention | None, *, now_ms: int) -> bool:
    if facts.log_start == 0:
        return False
    if facts.first is not None and facts.first.timestamp_ms <= since_ms:
        # The log still has a message from before.
        return False
    return retention is None or retention.may_have_deleted(since_ms, now_ms=now_ms)


def _deleted_before(
    wish: Wish, facts: Facts, since_ms: int, retention: Retention | None
) -> OutsideRetention:
    first = facts.first
    have = (
        "and no message is left"
        if first is None
        else f"the first message there is has offset {first.offset} and is of {format_ms(first.timestamp_ms)}"
    )
    rule = (
        "the topic's retention is not known"
        if retention is None
        else f"retention.ms is {retention.ms}, retention.bytes {retention.bytes}"
    )
    return OutsideRetention(
        f"messages from {format_ms(since_ms)} on were asked for; those before offset {facts.log_start} have been "
        f"deleted ({rule}), {have}: ask for a later time, or take what there is with missing='available'",
        topic=wish.topic,
        partition=facts.partition,
        offset=None,
        first_offset=facts.log_start if first is None else first.offset,
        first_time_ms=None if first is None else first.timestamp_ms,
    )
