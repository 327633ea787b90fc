"""Messages of the source -> batches for the target, each message numbered. Pure.

What is copied already is passed over, what nobody asked for (`--keys`) too. Within a batch all come from one source
partition, since the producer id is that partition's.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from respool.cli.message_format import ReadMessage
from respool.cli.replay_plan import CopyPlan
from respool.cli.replay_position import Origin, Position, headers_of
from respool.records.build import NewRecord

BATCH_BYTES = 256 * 1024
BATCH_RECORDS = 4_000
# About what a record takes besides what is in it, with the headers we add.
RECORD_OVERHEAD_BYTES = 120


@dataclass(slots=True, kw_only=True)
class Batch:
    source: int
    target: int
    # The number of the first record; those that follow count on from it.
    first_number: int
    # Source offsets of the first and last record.
    first_offset: int
    last_offset: int
    records: list[NewRecord] = field(default_factory=list)
    size: int = 0

    @property
    def last(self) -> Origin:
        return Origin(self.source, self.last_offset, self.first_number + len(self.records) - 1)


class Batches:
    """Collects messages into batches."""

    def __init__(
        self,
        plan: CopyPlan,
        position: Position,
        *,
        replay_id: str,
        keys: frozenset[bytes] | None,
        batch_bytes: int = BATCH_BYTES,
        batch_records: int = BATCH_RECORDS,
    ) -> None:
        self._plan = plan
        self._position = position
        self._replay_id = replay_id
        self._keys = keys
        self._batch_bytes = batch_bytes
        self._batch_records = batch_records
        self._next_number: dict[tuple[int, int], int] = {}
        self._open: dict[tuple[int, int], Batch] = {}
        # Of each source partition: every message before was looked at here.
        self.looked_below = {number: position.read_from(number) for number in plan.spans}

    def add(self, message: ReadMessage) -> Batch | None:
        """Take a message; returns a batch when that is full by now. Messages of a partition come in order."""
        source, offset = message.partition, message.offset
        assert offset >= self.looked_below[source]
        self.looked_below[source] = offset + 1
        if self._keys is not None and message.key not in self._keys:
            return None
        target = self._plan.target_for(source, message.key)
        if self._position.is_copied(source, target, offset):
            return None
        return self._append(message, target)

    @property
    def has_open(self) -> bool:
        """Whether there are messages in batches that nobody took yet."""
        return bool(self._open)

    def take_all(self) -> list[Batch]:
        """The batches that are not full."""
        taken = list(self._open.values())
        self._open.clear()
        return taken

    def done_below(self, source: int, unacknowledged: Iterable[Batch]) -> int:
        """Every message of the source partition before this is in the target, or need not be."""
        waiting = [
            batch.first_offset
            for batch in (*self._open.values(), *unacknowledged)
            if batch.source == source
        ]
        return min(waiting, default=self.looked_below[source])

    def _append(self, message: ReadMessage, target: int) -> Batch | None:
        pair = message.partition, target
        number = self._next_number.get(pair)
        if number is None:
            number = self._position.next_number(*pair)
        self._next_number[pair] = number + 1
        added = headers_of(
            self._replay_id,
            self._plan.topic,
            partition=message.partition,
            offset=message.offset,
            number=number,
        )
        record = NewRecord(
            key=message.key,
            value=message.value,
            timestamp_ms=message.timestamp_ms,
            headers=(*message.headers, *added),
        )
        size = RECORD_OVERHEAD_BYTES + len(message.key or b"") + len(message.value or b"")
        size += sum(len(name) + len(value or b"") + 8 for name, value in message.headers)
        full = None
        batch = self._open.get(pair)
        if batch is not None and batch.size + size > self._batch_bytes:
            full, batch = self._open.pop(pair), None
        if batch is None:
            batch = self._open[pair] = Batch(
                source=message.partition,
                target=target,
                first_number=number,
                first_offset=message.offset,
                last_offset=message.offset,
            )
        batch.records.append(record)
        batch.last_offset = message.offset
        batch.size += size
        if full is None and len(batch.records) >= self._batch_records:
            full = self._open.pop(pair)
        return full
