"""Run and print `respool topic describe --keys`: scan the newest messages for keys in several partitions."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from respool.cli import options, output
from respool.cli.interrupts import noticing_ctrl_c
from respool.cli.message_format import for_terminal
from respool.client.kafka.list_offsets import OffsetRange
from respool.client.kafka.metadata import TopicMetadata
from respool.model.json_bytes import bytes_to_json
from respool.model.operator_errors import UsageError
from respool.model.quantities import counted
from respool.operate.cluster_admin import ClusterAdmin
from respool.operate.errors import client_errors_translated
from respool.operate.key_placement import KeyPlacement, SplitKey, divide_budget
from respool.replay.copy_plan import Span, partition_for_key
from respool.replay.record_reader import RecordRangeReader

SCAN_DEFAULT = 100_000
SCAN_TIME_DEFAULT = "30s"
SHOWN_MAX = 20
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReport:
    """The result of a scan. `available` counts the offsets in range; some hold no message (markers, compaction)."""

    placement: KeyPlacement
    partition_count: int
    available: int
    # The offsets that were read, by partition.
    scanned: Mapping[int, OffsetRange]
    # Partitions without a leader.
    offline: Sequence[int]
    since_ms: int | None
    stopped_by: StoppedBy | None

    @property
    def is_sample(self) -> bool:
        """True if messages in range were left unread."""
        return sum(part.messages for part in self.scanned.values()) < self.available

    @property
    def split_keys(self) -> list[SplitKey]:
        return self.placement.split_keys(self.partition_count, partition_for_key)

    def document(self) -> dict[str, Any]:
        placement = self.placement
        return {
            "messages_scanned": placement.messages,
            "messages_with_key": placement.with_key,
            "messages_available": self.available,
            "messages_not_compared": placement.untracked,
            "since_ms": self.since_ms,
            "is_sample": self.is_sample,
            "stopped_by": self.stopped_by,
            "scanned": [
                {"partition": number, "start_offset": part.start, "end_offset": part.end}
                for number, part in sorted(self.scanned.items())
            ],
            "offline_partitions": list(self.offline),
            "key_count": placement.keys,
            "split_key_count": placement.split_count,
            "split_keys": [
                {
                    "key": bytes_to_json(one.key),
                    "partitions": list(one.partitions),
                    "murmur2_partition": one.murmur2_partition,
                    "crc32_partition": one.crc32_partition,
                }
                for one in self.split_keys
            ],
        }


def scan_keys(
    admin: ClusterAdmin,
    topic: TopicMetadata,
    scan: Scan,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> KeyReport:
    """Read the newest messages, as many as requested, until the time is up or Ctrl-C is pressed.

    Raises:
        OperatorError: a partition cannot be read.
    """
    ranges = {number: held for (_, number), held in admin.ranges([topic], led_only=True).items()}
    if scan.since_ms is not None:
        ranges = _since(admin, topic, ranges, scan.since_ms)
    available = {number: held.messages for number, held in ranges.items()}
    chosen = divide_budget(available, scan.messages_max)
    spans = {
        number: Span(held.end - chosen[number], held.end)
        for number, held in ranges.items()
        if chosen[number]
    }
    placement = KeyPlacement()
    deadline = clock() + scan.seconds_max
    with noticing_ctrl_c() as ctrl_c:
        ends = _read(
            admin, topic.name, spans, placement, lambda: ctrl_c.pressed or clock() >= deadline
        )
    stopped_by = None
    if any(ends[number] < span.stop for number, span in spans.items()):
        stopped_by = StoppedBy.INTERRUPT if ctrl_c.pressed else StoppedBy.TIME
    return KeyReport(
        placement=placement,
        partition_count=topic.partitions,
        available=sum(available.values()),
        scanned={
            number: OffsetRange(start=held.end - chosen[number], end=ends.get(number, held.end))
            for number, held in ranges.items()
        },
        offline=[number for number in topic.leaders if number not in ranges],
        since_ms=scan.since_ms,
        stopped_by=stopped_by,
    )


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
    placement: KeyPlacement,
    must_stop: Callable[[], bool],
) -> dict[int, int]:
    """Feed the messages of the spans to `placement`; return the offset up to which each partition was read."""
    ends = {number: span.start for number, span in spans.items()}
    total = sum(span.messages for span in spans.values())
    with client_errors_translated():
        reader = RecordRangeReader(admin.cluster, topic, spans, on_note=output.note)
        try:
            with output.progress(f"keys of {topic}", total=total, unit="messages") as bar:
                while not reader.is_done and not must_stop():
                    for number, records in reader.read(seconds=READ_SECONDS):
                        for record in records:
                            placement.on_message(record.key, number)
                        if records:
                            ends[number] = records[-1].offset + 1
                        bar.advance(len(records))
        finally:
            reader.close()
    undone = set(reader.undone)
    return {
        number: ends[number] if number in undone else span.stop for number, span in spans.items()
    }


# -- printing --------------------------------------------------------------------------------------------------------


def print_report(topic: str, report: KeyReport) -> None:
    split = report.split_keys
    if not output.is_terminal():
        counts = (report.placement.messages, report.available, report.placement.keys)
        output.print_rows(
            output.Headings(), [(topic, "keys", *counts, report.placement.split_count)]
        )
        rows = [(topic, "key", *_row(one)) for one in split]
        output.print_rows(output.Headings(), rows)
        return
    output.print_line(in_words(report))
    if split:
        columns = ("key", "partitions", "by murmur2", "by CRC32")
        rows = [_row(one) for one in split[:SHOWN_MAX]]
        output.print_rows(output.Headings(*columns, numbers=columns[2:]), rows)
        if report.placement.split_count > SHOWN_MAX:
            output.print_line(f"and {report.placement.split_count - SHOWN_MAX:,} more; see --json")


def explain_cause(report: KeyReport) -> None:
    """Say, on standard error, what the scan left out and what the usual cause of split keys is."""
    if report.placement.untracked:
        output.note(
            f"{counted(report.placement.untracked, 'message')} not compared: memory holds "
            f"{report.placement.keys:,} keys"
        )
    if report.offline:
        numbers = ", ".join(map(str, report.offline))
        output.note(f"not scanned, because they have no leader: partitions {numbers}")
    split = report.split_keys
    if not split:
        return
    if all(one.is_by_both for one in split):
        output.note(
            "cause: some producers place keys by murmur2 (Java, Respool), others by CRC32 (librdkafka's default); "
            "set partitioner=murmur2_random in the latter"
        )
    else:
        output.note(
            "possible causes: producers with different partitioners, partitions given by hand, or partitions added "
            "to the topic"
        )


def in_words(report: KeyReport) -> str:
    placement = report.placement
    scanned = f"{placement.messages:,} of {counted(report.available, 'message')}"
    if not report.is_sample:
        scanned = f"all {counted(placement.messages, 'message')}"
    newest = "the newest " if report.is_sample else ""
    stopped = {
        None: "",
        StoppedBy.TIME: " (the time was up; see --scan-time)",
        StoppedBy.INTERRUPT: " (stopped by Ctrl-C)",
    }[report.stopped_by]
    return (
        f"keys: scanned {newest}{scanned}{stopped}; {counted(placement.keys, 'key')}, "
        f"{placement.split_count:,} in several partitions"
    )


def _row(one: SplitKey) -> tuple[object, ...]:
    places = ",".join(map(str, one.partitions))
    return for_terminal(one.key), places, one.murmur2_partition, one.crc32_partition
