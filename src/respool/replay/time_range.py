"""The range of time that a replay covers -> the offsets it means now."""

from dataclasses import dataclass
from datetime import datetime

from respool.client.kafka.cluster import Cluster
from respool.client.kafka.list_offsets import offsets_for
from respool.model.times import TimeNotUnderstood, format_ms, parse_time
from respool.replay.errors import InvalidReplay, client_errors_translated
from respool.replay.plan import Span
from respool.replay.topics import describe_topic, offset_ranges

EARLIEST = {"earliest", "beginning"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """Messages from `from_ms` up to, not including, `to_ms`, by the topic's time index."""

    # None: from the first message there is.
    from_ms: int | None
    to_ms: int

    @property
    def from_text(self) -> str:
        return "earliest" if self.from_ms is None else format_ms(self.from_ms)

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
    is_earliest = from_text.strip().lower() in EARLIEST
    from_ms = None if is_earliest else _time_ms(from_text, name=from_name, now=now)
    to_ms = _time_ms(to_text, name=to_name, now=now)
    if from_ms is not None and from_ms >= to_ms:
        raise InvalidReplay(
            f"{from_name} ({format_ms(from_ms)}) must be before {to_name} ({format_ms(to_ms)})",
            hint=f"a replay has an end; for everything up to now give {to_name} now",
        )
    return TimeRange(from_ms=from_ms, to_ms=to_ms)


def find_spans(cluster: Cluster, name: str, wanted: TimeRange) -> dict[int, Span]:
    """The offsets of the range in every partition, up to its current end at most.

    Raises:
        ReplayError: there is no such topic, or a partition has no leader.
    """
    with client_errors_translated():
        topic = describe_topic(cluster, name)
        topic.check_leaders()
        ranges = offset_ranges(cluster, name, topic.partitions)
        begins = (
            {}
            if wanted.from_ms is None
            else offsets_for(cluster, name, topic.partitions, wanted.from_ms)
        )
        ends = offsets_for(cluster, name, topic.partitions, wanted.to_ms)
    spans = {}
    for number in topic.partitions:
        held = ranges[number]
        start = held.start
        if wanted.from_ms is not None:
            begin = begins[number]
            start = held.stop if begin is None else min(begin.offset, held.stop)
        end = ends[number]
        stop = held.stop if end is None else min(end.offset, held.stop)
        spans[number] = Span(start, max(start, stop))
    return spans


def _time_ms(text: str, *, name: str, now: datetime) -> int:
    try:
        return parse_time(text, now=now)
    except TimeNotUnderstood as error:
        raise InvalidReplay(f"{name}: {error}") from None
