"""Finds the delayed messages of a topic by reading its partitions, as its brokers do.

Consumers do not see these messages; a reader with a mirror's client id does. The whole topic is read, since a message
may wait for long; delivered, cancelled and replaced ones are left out.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from respool.client.kafka.metadata import TopicMetadata
from respool.model.delays.delay_levels import DelayLevels
from respool.model.ids import Offset
from respool.model.operator_errors import UsageError
from respool.operate.cluster_admin import ClusterAdmin
from respool.operate.errors import client_errors_translated
from respool.records.mirrored_batches import MIRROR_CLIENT_ID
from respool.records.record import Record
from respool.replay.copy_plan import Span
from respool.replay.record_reader import RecordRangeReader
from respool.timing.delay_records import Cancel, Delivered, WaitingRecord, read_fact
from respool.timing.due_header import DelayRules

READ_SECONDS = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedMessage:
    """A message that waits. Its offset is the one that its producer got."""

    partition: int
    offset: Offset
    due_ms: int
    sent_ms: int
    key: bytes | None
    id: bytes | None
    is_scheduled: bool


def find_delayed(
    admin: ClusterAdmin,
    topic: TopicMetadata,
    *,
    partitions: Iterable[int] | None = None,
    on_read: Callable[[int], None] = lambda _: None,
) -> list[DelayedMessage]:
    """Return the delayed messages in the order of delivery. `on_read` is called with the number of messages read.

    Raises:
        UsageError: the topic has no delays.
        OperatorError: a partition cannot be read.
    """
    settings = {one.name: one.value for one in admin.settings([topic.name])[topic.name]}
    if settings.get("respool.delay") != "true":
        raise UsageError(
            f"topic {topic.name!r} delivers all messages at once: it was not created with respool.delay=true"
        )
    rules = DelayRules(
        levels_ms=DelayLevels.parse(settings["respool.delay.levels"]).delays_ms,
        max_ms=int(settings["respool.delay.max.ms"]),
    )
    wanted = None if partitions is None else set(partitions)
    spans = {
        number: Span(part.start, part.end)
        for (_, number), part in admin.ranges([topic]).items()
        if (wanted is None or number in wanted) and part.messages
    }
    logs = {number: WaitingInLog(number, rules) for number in spans}
    _read(admin, topic.name, spans, logs, on_read)
    found = [one for log in logs.values() for one in log.waiting()]
    return sorted(found, key=lambda one: (one.due_ms, one.partition, one.offset))


class WaitingInLog:
    """The delayed messages of a partition, from its records in the order of their offsets."""

    def __init__(self, partition: int, rules: DelayRules) -> None:
        self._partition = partition
        self._rules = rules
        self._waiting: dict[Offset, DelayedMessage] = {}
        # The latest message of each id, whether it waits or cancels.
        self._latest: dict[bytes, Offset] = {}

    def on_record(self, record: Record) -> None:
        match read_fact(record, self._rules):
            case WaitingRecord() as fact:
                self._waiting[fact.first] = DelayedMessage(
                    partition=self._partition,
                    offset=fact.first,
                    due_ms=fact.due_ms,
                    sent_ms=fact.sent_ms,
                    key=record.key,
                    id=fact.id,
                    is_scheduled=fact.repetition is not None,
                )
                self._on_id(fact.id, fact.first)
            case Cancel() as fact:
                self._on_id(fact.id, fact.first)
            case Delivered(first=first, next_ms=next_ms):
                found = self._waiting.pop(first, None)
                if found is not None and next_ms is not None:
                    self._waiting[first] = replace(found, due_ms=next_ms)

    def waiting(self) -> list[DelayedMessage]:
        return [
            one
            for one in self._waiting.values()
            if one.id is None or self._latest[one.id] == one.offset
        ]

    def _on_id(self, key: bytes | None, first: Offset) -> None:
        if key is not None:
            self._latest[key] = max(first, self._latest.get(key, first))


def _read(
    admin: ClusterAdmin,
    topic: str,
    spans: Mapping[int, Span],
    logs: Mapping[int, WaitingInLog],
    on_read: Callable[[int], None],
) -> None:
    with client_errors_translated(), admin.cluster.twin(client_id=MIRROR_CLIENT_ID) as cluster:
        reader = RecordRangeReader(cluster, topic, spans)
        try:
            while not reader.is_done:
                for number, records in reader.read(seconds=READ_SECONDS):
                    for record in records:
                        logs[number].on_record(record)
                    on_read(len(records))
        finally:
            reader.close()
