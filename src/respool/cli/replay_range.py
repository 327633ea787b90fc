"""The words of a replay's command line -> the offsets they mean now."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from respool.cli import options, output
from respool.cli.replay_plan import Span
from respool.model.operator_errors import UsageError
from respool.model.times import format_ms

if TYPE_CHECKING:
    from respool.cli.kafka import Cluster, TopicInfo

EARLIEST = {"earliest", "beginning"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """Messages of `from_ms` or later and before `to_ms`, as the topic's lookup by time finds them."""

    # None: from the first message there is.
    from_ms: int | None
    to_ms: int

    @property
    def from_text(self) -> str:
        return "earliest" if self.from_ms is None else format_ms(self.from_ms)

    @property
    def to_text(self) -> str:
        return format_ms(self.to_ms)


def parse_range(from_text: str, to_text: str, *, now: datetime) -> TimeRange:
    """
    Raises:
        UsageError: one of them is no time, or they are the wrong way round.
    """
    is_earliest = from_text.strip().lower() in EARLIEST
    from_ms = None if is_earliest else options.time_ms(from_text, option="--from", now=now)
    to_ms = options.time_ms(to_text, option="--to", now=now)
    if from_ms is not None and from_ms >= to_ms:
        raise UsageError(
            f"--from ({format_ms(from_ms)}) must be before --to ({format_ms(to_ms)})",
            hint="a replay has an end; everything up to now is --to now",
        )
    return TimeRange(from_ms=from_ms, to_ms=to_ms)


def parse_keys(keys: list[str] | None, key_file: Path | None) -> frozenset[bytes] | None:
    """`--keys a,b --keys c`, or one key a line in a file; None when neither is given.

    Raises:
        UsageError: both are given, or there is no key at all.
    """
    if keys is None and key_file is None:
        return None
    if keys is not None and key_file is not None:
        raise UsageError("give only one of --keys and --key-file")
    if key_file is not None:
        found = {line.rstrip(b"\r") for line in key_file.read_bytes().split(b"\n")}
    else:
        found = {key.encode() for text in keys or () for key in text.split(",")}
    found.discard(b"")
    if not found:
        raise UsageError("there is no key to look for")
    return frozenset(found)


def find_spans(cluster: "Cluster", topic: "TopicInfo", wanted: TimeRange) -> dict[int, Span]:
    """The offsets of the range in every partition, at most up to the end there is now.

    Raises:
        PartitionOffline: nobody leads one of the partitions.
    """
    ranges = cluster.ranges([topic])
    unled = [number for number in topic.partitions if (topic.name, number) not in ranges]
    if unled:
        from respool.cli.kafka import offline

        raise offline(cluster, topic, unled[0])
    begins: Mapping[int, int | None] = {}
    if wanted.from_ms is not None:
        begins = cluster.offsets_at(topic, topic.partitions, wanted.from_ms)
    ends = cluster.offsets_at(topic, topic.partitions, wanted.to_ms)
    spans = {}
    for number in topic.partitions:
        held = ranges[topic.name, number]
        start = held.start
        if wanted.from_ms is not None:
            found = begins[number]
            start = held.end if found is None else min(found, held.end)
        end = ends[number]
        stop = held.end if end is None else min(end, held.end)
        spans[number] = Span(start, max(start, stop))
    return spans


def print_spans(topic: str, spans: Mapping[int, Span]) -> None:
    columns = ("topic", "partition", "from", "until", "messages")
    rows = [(topic, number, *span, span.messages) for number, span in sorted(spans.items())]
    output.print_rows(output.Columns(*columns, numbers=columns[1:]), rows)
