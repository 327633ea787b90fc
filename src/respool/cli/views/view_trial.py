"""Run and print `respool view try`: count the newest messages that a condition matches."""

from dataclasses import dataclass
from typing import Any

from respool.cli import output
from respool.cli.messages.newest_messages import Scan, Scanned, in_words_of_scan, scan_newest
from respool.client.kafka.metadata import TopicMetadata
from respool.model.quantities import counted, human_bytes
from respool.model.where import Where
from respool.operate.cluster_admin import ClusterAdmin
from respool.records.plain_match import RecordCondition
from respool.records.record import Record


@dataclass(kw_only=True)
class ConditionCounts:
    """How many messages a condition matches, and their bytes: keys, values and headers, uncompressed."""

    condition: RecordCondition
    messages: int = 0
    matching: int = 0
    message_bytes: int = 0
    matching_bytes: int = 0

    def on_record(self, record: Record) -> None:
        headers = [(name.encode(), value) for name, value in record.headers]
        size = len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value or b"") for name, value in headers)
        self.messages += 1
        self.message_bytes += size
        if self.condition.holds(record.key, headers, has_value=record.value is not None):
            self.matching += 1
            self.matching_bytes += size


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewTrial:
    topic: str
    where: Where
    counts: ConditionCounts
    scanned: Scanned
    since_ms: int | None

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "where": str(self.where),
            "messages_matching": self.counts.matching,
            "messages_scanned": self.counts.messages,
            "messages_available": self.scanned.available,
            "bytes_matching": self.counts.matching_bytes,
            "bytes_scanned": self.counts.message_bytes,
            "since_ms": self.since_ms,
            "is_sample": self.scanned.is_sample,
            "stopped_by": self.scanned.stopped_by,
            "scanned": [
                {"partition": number, "start_offset": part.start, "end_offset": part.end}
                for number, part in sorted(self.scanned.ranges.items())
            ],
            "offline_partitions": list(self.scanned.offline),
        }


def run_trial(admin: ClusterAdmin, topic: TopicMetadata, where: Where, scan: Scan) -> ViewTrial:
    """
    Raises:
        OperatorError: a partition cannot be read.
    """
    counts = ConditionCounts(condition=RecordCondition.of(where))
    scanned = scan_newest(
        admin,
        topic,
        scan,
        lambda _, record: counts.on_record(record),
        title=f"messages of {topic.name}",
    )
    return ViewTrial(
        topic=topic.name, where=where, counts=counts, scanned=scanned, since_ms=scan.since_ms
    )


def print_trial(trial: ViewTrial) -> None:
    counts = trial.counts
    if not output.is_terminal():
        row = (trial.topic, counts.matching, counts.messages, trial.scanned.available)
        output.print_rows(output.Headings(), [row])
        return
    output.print_line(in_words(trial))


def in_words(trial: ViewTrial) -> str:
    counts = trial.counts
    of_messages = in_words_of_scan(trial.scanned, messages=counts.messages)
    match = "matches" if counts.matching == 1 else "match"
    return (
        f"{counted(counts.matching, 'message')} {match} of {of_messages}"
        f"{_share(counts.matching, counts.messages)}, {human_bytes(counts.matching_bytes)} of "
        f"{human_bytes(counts.message_bytes)}: {trial.where}"
    )


def _share(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.3g} %)" if whole else ""
