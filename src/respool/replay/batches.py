"""Builds numbered batches for the target from records of the source. Pure.

Records that are already copied, and those that the filter does not select, are left out. All records of a batch come
from one source partition, because each source partition has its own producer id.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from respool.records.build import NewRecord
from respool.records.record import Record
from respool.replay.copy_plan import CopyPlan
from respool.replay.copy_position import CopyPosition, Origin, headers_of
from respool.replay.request import MessageFilter

BATCH_BYTES = 256 * 1024
BATCH_RECORDS = 4_000
# Estimate of a record's size without key, value and headers, including the headers that replays add.
RECORD_OVERHEAD_BYTES = 120


@dataclass(slots=True, kw_only=True)
class CopyBatch:
    source: int
    target: int
    # The number of the first record; the others follow without gaps.
    first_number: int
    # Source offsets of the first and last record.
    first_offset: int
    last_offset: int
    records: list[NewRecord] = field(default_factory=list)
    size: int = 0

    @property
    def last(self) -> Origin:
        return Origin(self.source, self.last_offset, self.first_number + len(self.records) - 1)


class BatchBuilder:
    """Collects records into batches, one open batch per pair of source and target partition."""

    def __init__(
        self,
        plan: CopyPlan,
        position: CopyPosition,
        *,
        replay_id: str,
        selection: MessageFilter,
        rewrite: Callable[[Record], Record | None] | None = None,
        batch_bytes: int = BATCH_BYTES,
        batch_records: int = BATCH_RECORDS,
    ) -> None:
        """`rewrite` returns what is copied instead of a record, or None if nothing is; None: records as they are."""
        self._plan = plan
        self._position = position
        self._replay_id = replay_id
        self._selection = selection
        self._rewrite = rewrite
        self._batch_bytes = batch_bytes
        self._batch_records = batch_records
        self._next_number: dict[tuple[int, int], int] = {}
        self._open: dict[tuple[int, int], CopyBatch] = {}
        # By source partition: every record below this offset has been added.
        self.added_below = {number: position.read_from(number) for number in plan.spans}

    def add(self, source: int, record: Record) -> CopyBatch | None:
        """Add a record; return a batch if that is full. Records of a partition must be added in order."""
        assert record.offset >= self.added_below[source]
        self.added_below[source] = record.offset + 1
        if not self._selection.selects(record):
            return None
        target = self._plan.target_for(source, record.key)
        if self._position.is_copied(source, target, record.offset):
            return None
        rewritten = record if self._rewrite is None else self._rewrite(record)
        return None if rewritten is None else self._append(source, rewritten, target)

    @property
    def has_open(self) -> bool:
        return bool(self._open)

    def take_open(self) -> list[CopyBatch]:
        """Remove and return the batches that are not full."""
        taken = list(self._open.values())
        self._open.clear()
        return taken

    def done_below(self, source: int, unacknowledged: Iterable[CopyBatch]) -> int:
        """Every record of the source partition below this offset is in the target, or not selected."""
        waiting = [
            batch.first_offset
            for batch in (*self._open.values(), *unacknowledged)
            if batch.source == source
        ]
        return min(waiting, default=self.added_below[source])

    def _append(self, source: int, record: Record, target: int) -> CopyBatch | None:
        pair = source, target
        number = self._next_number.get(pair)
        if number is None:
            number = self._position.next_number(*pair)
        self._next_number[pair] = number + 1
        added = headers_of(
            self._replay_id,
            self._plan.topic,
            partition=source,
            offset=record.offset,
            number=number,
        )
        size = RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
        size += sum(len(name) + len(value or b"") + 8 for name, value in record.headers)
        full = None
        batch = self._open.get(pair)
        if batch is not None and batch.size + size > self._batch_bytes:
            full, batch = self._open.pop(pair), None
        if batch is None:
            batch = self._open[pair] = CopyBatch(
                source=source,
                target=target,
                first_number=number,
                first_offset=record.offset,
                last_offset=record.offset,
            )
        batch.records.append(
            NewRecord(
                key=record.key,
                value=record.value,
                timestamp_ms=record.timestamp,
                headers=(*record.headers, *added),
            )
        )
        batch.last_offset = record.offset
        batch.size += size
        if full is None and len(batch.records) >= self._batch_records:
            full = self._open.pop(pair)
        return full
