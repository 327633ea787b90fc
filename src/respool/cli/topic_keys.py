"""Run and print `respool topic describe --keys`: scan the newest messages for keys in several partitions."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from respool.cli import output
from respool.cli.messages.message_format import for_terminal
from respool.cli.messages.newest_messages import (
    Scan,
    Scanned,
    in_words_of_scan,
    note_offline,
    scan_newest,
)
from respool.client.kafka.metadata import TopicMetadata
from respool.model.json_bytes import bytes_to_json
from respool.model.quantities import counted
from respool.operate.cluster_admin import ClusterAdmin
from respool.operate.key_placement import KeyPlacement, SplitKey
from respool.replay.copy_plan import partition_for_key

SHOWN_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReport:
    placement: KeyPlacement
    partition_count: int
    scanned: Scanned
    since_ms: int | None

    @property
    def split_keys(self) -> list[SplitKey]:
        return self.placement.split_keys(self.partition_count, partition_for_key)

    def document(self) -> dict[str, Any]:
        placement = self.placement
        return {
            "messages_scanned": placement.messages,
            "messages_with_key": placement.with_key,
            "messages_available": self.scanned.available,
            "messages_not_compared": placement.untracked,
            "since_ms": self.since_ms,
            "is_sample": self.scanned.is_sample,
            "stopped_by": self.scanned.stopped_by,
            "scanned": [
                {"partition": number, "start_offset": part.start, "end_offset": part.end}
                for number, part in sorted(self.scanned.ranges.items())
            ],
            "offline_partitions": list(self.scanned.offline),
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
    """
    Raises:
        OperatorError: a partition cannot be read.
    """
    placement = KeyPlacement()
    scanned = scan_newest(
        admin,
        topic,
        scan,
        lambda number, record: placement.on_message(record.key, number),
        title=f"keys of {topic.name}",
        clock=clock,
    )
    return KeyReport(
        placement=placement,
        partition_count=topic.partitions,
        scanned=scanned,
        since_ms=scan.since_ms,
    )


# -- printing --------------------------------------------------------------------------------------------------------


def print_report(topic: str, report: KeyReport) -> None:
    split = report.split_keys
    if not output.is_terminal():
        counts = (report.placement.messages, report.scanned.available, report.placement.keys)
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
    note_offline(report.scanned.offline)
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
    scanned = in_words_of_scan(report.scanned, messages=placement.messages)
    return (
        f"keys: scanned {scanned}; {counted(placement.keys, 'key')}, "
        f"{placement.split_count:,} in several partitions"
    )


def _row(one: SplitKey) -> tuple[object, ...]:
    places = ",".join(map(str, one.partitions))
    return for_terminal(one.key), places, one.murmur2_partition, one.crc32_partition
