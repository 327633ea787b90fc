"""Read the newest messages of a topic: as many as asked for, until the time is up or Ctrl-C is pressed."""

import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from respool.cli import options, output
from respool.cli.interrupts import noticing_ctrl_c
from respool.client.kafka.list_offsets import OffsetRange
from respool.client.kafka.metadata import TopicMetadata
from respool.model.operator_errors import UsageError
from respool.model.quantities import counted
from respool.operate.cluster_admin import ClusterAdmin
from respool.operate.errors import client_errors_translated
from respool.operate.key_placement import divide_budget
from respool.records.record import Record
from respool.replay.copy_plan import Span
from respool.replay.record_reader import RecordRangeReader

SCAN_DEFAULT = 100_000
SCAN_TIME_DEFAULT = "30s"
READ_SECONDS = 0.25


class Scan(NamedTuple):
    """Which messages of a topic to scan, and the time limit."""

    # The newest messages; None: all.
    messages_max: int | None
    since_ms: int | None
    seconds_max: float


class StoppedBy(StrEnum):
    """Why a scan ended before it had read its whole range."""

    TIME = "time"
    INTERRUPT = "interrupt"


def parse_scan(messages: str | None, since: str | None, scan_time: str | None) -> Scan:
    """
    Raises:
        UsageError: an option is invalid.
    """
    since_ms = None if since is None else options.time_ms(since, option="--since")
    seconds = options.duration_ms(scan_time or SCAN_TIME_DEFAULT, option="--scan-time") / 1000
    if messages is None:
        return Scan(SCAN_DEFAULT, since_ms, seconds)
    text = messages.strip().lower()
    if text == "all":
        return Scan(None, since_ms, seconds)
    if not (text.isascii() and text.isdecimal() and int(text) > 0):
        raise UsageError(f"--scan {messages!r} is not a number of messages, such as 100000, or all")
    return Scan(int(text), since_ms, seconds)


class Scanned(NamedTuple):
    """What was read. `available` counts the offsets in range; some hold no message (markers, compaction)."""

    available: int
    # The offsets that were read, by partition.
    ranges: Mapping[int, OffsetRange]
    # Partitions without a leader.
    offline: Sequence[int]
    stopped_by: StoppedBy | None

    @property
    def is_sample(self) -> bool:
        """True if messages in range were left unread."""
        return sum(part.messages for part in self.ranges.values()) < self.available


def scan_newest(
    admin: ClusterAdmin,
    topic: TopicMetadata,
    scan: Scan,
    on_record: Callable[[int, Record], None],
    *,
    title: str,
    clock: Callable[[], float] = time.monotonic,
) -> Scanned:
    """Call `on_record` with each message and its partition. `title` is shown beside the progress.

    Raises:
        OperatorError: a partition cannot be read.
    """
    held = {number: part for (_, number), part in admin.ranges([topic], led_only=True).items()}
    if scan.since_ms is not None:
        held = _since(admin, topic, held, scan.since_ms)
    available = {number: part.messages for number, part in held.items()}
    chosen = divide_budget(available, scan.messages_max)
    spans = {
        number: Span(part.end - chosen[number], part.end)
        for number, part in held.items()
        if chosen[number]
    }
    deadline = clock() + scan.seconds_max
    with noticing_ctrl_c() as ctrl_c:
        ends = _read(
            admin,
            topic.name,
            spans,
            on_record,
            lambda: ctrl_c.pressed or clock() >= deadline,
            title=title,
        )
    stopped_by = None
    if any(ends[number] < span.stop for number, span in spans.items()):
        stopped_by = StoppedBy.INTERRUPT if ctrl_c.pressed else StoppedBy.TIME
    return Scanned(
        available=sum(available.values()),
        ranges={
            number: OffsetRange(start=part.end - chosen[number], end=ends.get(number, part.end))
            for number, part in held.items()
        },
        offline=[number for number in topic.leaders if number not in held],
        stopped_by=stopped_by,
    )


def in_words_of_scan(scanned: Scanned, *, messages: int) -> str:
    """How many messages were read: `the newest 100,000 of 2,345,678 messages`, and why it were not more."""
    if not scanned.is_sample:
        return f"all {counted(messages, 'message')}"
    stopped = {
        None: "",
        StoppedBy.TIME: " (the time was up; see --scan-time)",
        StoppedBy.INTERRUPT: " (stopped by Ctrl-C)",
    }[scanned.stopped_by]
    return f"the newest {messages:,} of {counted(scanned.available, 'message')}{stopped}"


def note_offline(offline: Sequence[int]) -> None:
    if offline:
        numbers = ", ".join(map(str, offline))
        output.note(f"not scanned, because they have no leader: partitions {numbers}")


def _since(
    admin: ClusterAdmin, topic: TopicMetadata, ranges: Mapping[int, OffsetRange], since_ms: int
) -> dict[int, OffsetRange]:
    offsets = admin.offsets_at(topic, list(ranges), since_ms)
    return {number: _from_offset(held, offsets.get(number)) for number, held in ranges.items()}


def _from_offset(held: OffsetRange, start: int | None) -> OffsetRange:
    """Empty if no message is that recent (None), or none of them is committed yet."""
    return OffsetRange(start=held.end if start is None else min(start, held.end), end=held.end)


def _read(
    admin: ClusterAdmin,
    topic: str,
    spans: Mapping[int, Span],
    on_record: Callable[[int, Record], None],
    must_stop: Callable[[], bool],
    *,
    title: str,
) -> dict[int, int]:
    """Return the offset up to which each partition was read."""
    ends = {number: span.start for number, span in spans.items()}
    total = sum(span.messages for span in spans.values())
    with client_errors_translated():
        reader = RecordRangeReader(admin.cluster, topic, spans, on_note=output.note)
        try:
            with output.progress(title, total=total, unit="messages") as bar:
                while not reader.is_done and not must_stop():
                    for number, records in reader.read(seconds=READ_SECONDS):
                        for record in records:
                            on_record(number, record)
                        if records:
                            ends[number] = records[-1].offset + 1
                        bar.advance(len(records))
        finally:
            reader.close()
    undone = set(reader.undone)
    return {
        number: ends[number] if number in undone else span.stop for number, span in spans.items()
    }
