"""The time range of a replay, and the offsets to which it resolves now."""

from dataclasses import dataclass
from datetime import datetime

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.list_offsets import resolve_target
from respool.model.seek_target import AtTime, Earliest, InvalidSeekTarget, parse_seek_target
from respool.model.times import TimeNotUnderstood, format_ms, parse_time
from respool.replay.copy_plan import Span
from respool.replay.errors import InvalidReplay, client_errors_translated
from respool.replay.topic_lookup import check_leaders, describe_topic, held_spans


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """Messages from `since` (inclusive) to `to_ms` (exclusive), by the topic's time index."""

    since: Earliest | AtTime
    to_ms: int

    @property
    def from_text(self) -> str:
        return "earliest" if isinstance(self.since, Earliest) else format_ms(self.since.ms)

    @property
    def to_text(self) -> str:
        return format_ms(self.to_ms)


def parse_range(
    from_text: str,
    to_text: str,
    *,
    now: datetime,
    from_name: str = "--from",
    to_name: str = "--to",
) -> TimeRange:
    """
    Raises:
        InvalidReplay: one of them is not a time, or `from` is not before `to`.
    """
    try:
        since = parse_seek_target(from_text, now=now)
    except InvalidSeekTarget as error:
        raise InvalidReplay(f"{from_name}: {error}") from None
    try:
        to_ms = parse_time(to_text, now=now)
    except TimeNotUnderstood as error:
        raise InvalidReplay(f"{to_name}: {error}") from None
    if not isinstance(since, Earliest | AtTime):
        raise InvalidReplay(f"{from_name}: {from_text!r} leaves nothing to replay")
    if isinstance(since, AtTime) and since.ms >= to_ms:
        raise InvalidReplay(
            f"{from_name} ({format_ms(since.ms)}) must be before {to_name} ({format_ms(to_ms)})",
            hint=f"a replay has an end; for everything up to now give {to_name} now",
        )
    return TimeRange(since=since, to_ms=to_ms)


def find_spans(cluster: Cluster, name: str, wanted: TimeRange) -> dict[int, Span]:
    """The offset span of the range in every partition, up to the present log end.

    Raises:
        ReplayError: there is no such topic, or a partition has no leader.
    """
    with client_errors_translated():
        topic = describe_topic(cluster, name)
        check_leaders(cluster, topic)
        held = held_spans(cluster, name, topic.leaders)
        starts = resolve_target(cluster, name, wanted.since, held)
        stops = resolve_target(cluster, name, AtTime(wanted.to_ms), held)
    return {number: Span(starts[number], max(starts[number], stops[number])) for number in held}
