"""Rewind targets: from the caller's argument to an offset for each partition.

`parse` is pure. `resolve` queries the broker, and refuses deleted offsets: a rewind never silently begins later than
requested.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from respool.client.messages.errors import BadArgument, OffsetBeyondEnd, OutsideRetention
from respool.client.messages.library import KafkaException, TopicPartition
from respool.client.messages.message import Place, as_datetime
from respool.model.seek_target import (
    AtOffset,
    AtTime,
    InvalidSeekTarget,
    SeekTarget,
    parse_seek_target,
)
from respool.model.seek_target import resolve as resolve_target

Point = datetime | timedelta | int | str
To = Point | Mapping[int, Point] | Mapping[Place, Point]
Missing = Literal["error", "available"]

_ASK_SECONDS = 10.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
# ListOffsets' special timestamps.
_AT_LATEST = -1
_AT_EARLIEST = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindRequest:
    """Targets: one for all partitions, or one for each named partition."""

    everywhere: SeekTarget | None = None
    # The topic is None if only partition numbers were given.
    places: Mapping[tuple[str | None, int], SeekTarget] | None = None
    missing: Missing = "error"
    # If False, named partitions that are not assigned are skipped.
    must_be_assigned: bool = True

    def targets(
        self, assigned: Collection[Place], *, besides: Collection[str] = ()
    ) -> dict[Place, SeekTarget]:
        """The target of each partition. Those of topics in `besides` are moved only if they are named.

        Raises:
            BadArgument: a named partition is not assigned to this consumer.
        """
        if self.places is None:
            assert self.everywhere is not None
            return dict.fromkeys(
                (place for place in assigned if place[0] not in besides), self.everywhere
            )
        topics = {topic for topic, _ in assigned if topic not in besides}
        made: dict[Place, SeekTarget] = {}
        for (topic, partition), target in self.places.items():
            if topic is None and len(topics) > 1:
                raise BadArgument(
                    f"partition {partition} of which topic? Say {{('{min(topics)}', {partition}): ...}}"
                )
            place = topic or min(topics, default=""), partition
            if place not in assigned:
                if not self.must_be_assigned:
                    continue
                mine = ", ".join(f"{one}/{number}" for one, number in sorted(assigned)) or "none"
                raise BadArgument(
                    f"{place[0]}/{partition} is not this consumer's to rewind now; it has {mine}. To move a whole"
                    " group: `respool group reset`"
                )
            made[place] = target
        return made


def parse(to: object, *, now: datetime, missing: str = "error") -> RewindRequest:
    """Raises BadArgument: `to` is not a time, an offset, or the start or end of the log."""
    if missing not in {"error", "available"}:
        raise BadArgument(f"missing is 'error' or 'available', not {missing!r}")
    told: Missing = "available" if missing == "available" else "error"
    if not isinstance(to, Mapping):
        return RewindRequest(everywhere=_target(to, now), missing=told)
    if not to:
        raise BadArgument("rewind to {} moves nothing: name a partition, or say 'earliest'")
    return RewindRequest(
        places={_place(key): _target(point, now) for key, point in to.items()}, missing=told
    )


def resolve(
    kafka: Any, targets: Mapping[Place, SeekTarget], *, missing: Missing
) -> dict[Place, int]:
    """Ask the broker for each partition's target offset.

    Raises:
        OutsideRetention: requested messages have been deleted.
        OffsetBeyondEnd: the offset is beyond the log end.
        KafkaException: no reply came.
    """
    log_bounds = bounds(kafka, targets)
    times = {place: one.ms for place, one in targets.items() if isinstance(one, AtTime)}
    found = _offsets_at(kafka, times)
    return {
        place: _resolve_one(place, target, found.get(place, -1), log_bounds[place], missing)
        for place, target in targets.items()
    }


def bounds(kafka: Any, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
    """Return the log start and log end of each partition."""
    places = list(places)
    lows = _offsets_at(kafka, dict.fromkeys(places, _AT_EARLIEST))
    highs = _offsets_at(kafka, dict.fromkeys(places, _AT_LATEST))
    return {place: (lows[place], highs[place]) for place in places}


def _offsets_at(kafka: Any, times: Mapping[Place, int]) -> dict[Place, int]:
    """One request for all: each would wait behind a fetch that waits for messages. -1 if no message is that late."""
    if not times:
        return {}
    asked = [TopicPartition(*place, time_ms) for place, time_ms in times.items()]
    answered = kafka.offsets_for_times(asked, timeout=_ASK_SECONDS)
    for one in answered:
        if one.error is not None:
            raise KafkaException(one.error)
    return {(one.topic, one.partition): int(one.offset) for one in answered}


def _resolve_one(
    place: Place, target: SeekTarget, found: int, log_bounds: tuple[int, int], missing: Missing
) -> int:
    low, high = log_bounds
    topic, partition = place
    offset = resolve_target(target, low=low, high=high, at_time=found if found >= 0 else None)
    if isinstance(target, AtTime) and offset <= low and low > 0 and missing == "error":
        raise OutsideRetention(
            f"messages from {as_datetime(target.ms).isoformat()} on may have been deleted: the log begins"
            f" at offset {low}, which is later. Say missing='available' to begin there",
            topic=topic,
            partition=partition,
            offset=None,
            first_offset=low,
        )
    if isinstance(target, AtOffset) and offset > high:
        raise OffsetBeyondEnd(
            f"there is no offset {offset} yet; the log ends at {high}",
            topic=topic,
            partition=partition,
            offset=offset,
        )
    if offset < low and missing == "error":
        raise OutsideRetention(
            f"offset {offset} has been deleted; the log begins at {low}. Say missing='available' to begin there",
            topic=topic,
            partition=partition,
            offset=offset,
            first_offset=low,
        )
    return max(low, offset)


def deleted_unread(place: Place, offset: int, low: int, high: int) -> OutsideRetention:
    """The error for a partition whose next message is no longer, or not yet, in the log."""
    return OutsideRetention(
        f"messages were deleted before they were read. The next to read is {offset}; there is {low} up to {high}. To"
        " continue with the oldest message: consumer.rewind('earliest')",
        topic=place[0],
        partition=place[1],
        offset=offset,
        first_offset=low,
    )


def _place(key: object) -> tuple[str | None, int]:
    match key:
        case bool():
            pass
        case int() if key >= 0:
            return None, key
        case (str() as topic, int() as partition) if partition >= 0:
            return topic, partition
    raise BadArgument(f"a partition is a number or (topic, number), not {key!r}")


def _target(point: object, now: datetime) -> SeekTarget:
    if isinstance(point, datetime) and point.tzinfo is not None:
        # A time before the first possible timestamp means the first message.
        point = max(point, _EPOCH)
    try:
        target = parse_seek_target(point, now=now)
    except InvalidSeekTarget as error:
        raise BadArgument(f"rewind to {error}; or {{partition: offset}}") from None
    if isinstance(target, AtTime) and target.ms > -((_EPOCH - now) // _MILLISECOND):
        raise BadArgument(
            f"{as_datetime(target.ms).isoformat()} is in the future; it is {now.isoformat(timespec='seconds')}"
        )
    return target
