"""Which of the records that were read a member acquires. Pure.

Whole batches, until there are enough records (`BATCH_OPTIMIZED`), or exactly as many as wanted (`RECORD_LIMIT`).
A record that comes back often may be what kills the members that hold it. So from half of the allowed deliveries on,
smaller and smaller parts of a batch are acquired at once, and for its last delivery a record alone: the records around
it are not worn out with it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from respool.coordination.share.in_flight import HELD, InFlight, Lock, RecordRun
from respool.coordination.share.key_order import KeyOrder
from respool.coordination.share.share_state import ARCHIVED, AVAILABLE
from respool.model.ids import Offset
from respool.model.share.share_settings import ShareGroupSettings

# The wire has 16 bits for the delivery count.
DELIVERY_COUNT_MAX = 2**15 - 1


class AcquireMode(IntEnum):
    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class RecordSpan(NamedTuple):
    """Consecutive records that were read."""

    first: int
    last: int
    # Of the batch among those that were read.
    batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecords:
    """What was read: offsets from `first` on, before `end`. Those that no span covers have no record to deliver."""

    first: Offset
    end: Offset
    # Sorted.
    spans: list[RecordSpan]
    # With order by key: the hash of the key of each record that has one, of those that never were acquired.
    keys: Mapping[int, int] = field(default_factory=dict)

    def parts(self, start: Offset) -> Iterator[RecordSpan]:
        """From `start` on without gaps: spans, and between them ones of batch -1, which have no records."""
        position = max(self.first, start)
        for span in self.spans:
            if span.last < position:
                continue
            if span.first > position:
                yield RecordSpan(position, span.first - 1, -1)
                yield span
            else:
                yield span._replace(first=position)
            position = Offset(span.last + 1)
        if position < self.end:
            yield RecordSpan(position, self.end - 1, -1)


class AcquiredRange(NamedTuple):
    first: int
    last: int
    delivery_count: int


@dataclass(slots=True)
class Acquired:
    # Sorted and disjoint; adjacent ranges differ in their counts, or begin with a batch.
    ranges: list[AcquiredRange] = field(default_factory=list)
    # The batches that have acquired records.
    batches: list[int] = field(default_factory=list)
    record_count: int = 0
    # Offsets that turned out to have no record to deliver: (first, last) each.
    ended: list[tuple[int, int]] = field(default_factory=list)

    def add(self, first: int, last: int, delivery_count: int, batch: int, batch_size: int) -> None:
        """Ranges end with a batch after `batch_size` records: a client acknowledges a range at a time."""
        count = min(delivery_count, DELIVERY_COUNT_MAX)
        before = self.ranges[-1] if self.ranges else None
        is_new_batch = not self.batches or self.batches[-1] != batch
        if (
            before is not None
            and before.last + 1 == first
            and before.delivery_count == count
            and not (is_new_batch and before.last - before.first + 1 >= batch_size)
        ):
            self.ranges[-1] = before._replace(last=last)
        else:
            self.ranges.append(AcquiredRange(first, last, count))
        if is_new_batch:
            self.batches.append(batch)
        self.record_count += last - first + 1


class Acquisition:
    """One member acquires records of one share partition."""

    def __init__(
        self,
        window: InFlight,
        settings: ShareGroupSettings,
        *,
        lock: Lock,
        mode: AcquireMode,
        records_max: int,
        batch_size: int,
        now_ms: int,
        order: KeyOrder | None = None,
    ) -> None:
        self._window = window
        self._order = order
        self._key_inflight_max = settings.key_inflight_max
        self._limit = settings.delivery_count_limit
        self._locks_max = settings.record_locks_max
        self._lock = lock
        self._is_exact = mode is AcquireMode.RECORD_LIMIT
        self._records_max = records_max
        self._batch_size = max(1, batch_size)
        self._now_ms = now_ms
        self._acquired = Acquired()
        # Nothing more is acquired: a record that was delivered often must be alone.
        self._is_over = False
        # The batch whose first new record was acquired: the rest of it is, too.
        self._begun = -1

    def run(self, found: FoundRecords) -> Acquired:
        window, acquired = self._window, self._acquired
        assert found.first <= window.end, f"read from {found.first}, beyond {window.end}"
        batch, batch_records = -1, _records_of_batches(found.spans)
        for part in found.parts(window.start):
            if part.batch < 0:
                self._end(part.first, part.last)
                continue
            if part.batch != batch:
                batch = part.batch
                if acquired.record_count >= self._records_max:
                    break
            if self._order is not None:
                if not self._acquire_in_order(part, batch_records[batch], self._order, found.keys):
                    break
                continue
            self._acquire_again(part, batch_records[batch])
            if self._is_over or not self._acquire_new(part):
                break
        return acquired

    def _end(self, first: int, last: int) -> None:
        """Finish offsets that have no record to deliver. Held ones end when they come back."""
        window = self._window
        for run_first, run_last, run in window.between(first, min(last, window.end - 1)):
            if run.state == AVAILABLE:
                window.change(run_first, run_last, _archived)
                self._acquired.ended.append((run_first, run_last))
        if last >= window.end:
            self._acquired.ended.append((window.end, last))
            window.extend(RecordRun(last, ARCHIVED))

    def _acquire_again(self, part: RecordSpan, batch_records: int) -> None:
        """Acquire available records that were acquired before."""
        window = self._window
        for first, run_last, run in window.between(part.first, min(part.last, window.end - 1)):
            if run.state != AVAILABLE or run.due_at_ms > self._now_ms:
                continue
            last = self._exact_last(first, run_last)
            alone = self._records_at_once(run.delivery_count, batch_records)
            if alone is not None:
                self._is_over = True
                if self._acquired.record_count:
                    return
                last = min(last, first + alone - 1)
            if last < first:
                self._is_over = True
                return
            window.change(first, last, self._held)
            self._add(first, last, run.delivery_count + 1, part.batch)
            if self._is_over:
                return

    def _acquire_new(self, part: RecordSpan) -> bool:
        """Acquire records that never were. False: no more are acquired."""
        window = self._window
        first = max(part.first, window.end)
        if first > part.last:
            return True
        assert first == window.end
        room = self._locks_max - window.unfinished
        if room <= 0 and part.batch != self._begun:
            return False
        self._begun = part.batch
        last = self._exact_last(first, part.last)
        if self._is_exact:
            last = min(last, first + room - 1)
        if last < first:
            return False
        window.extend(RecordRun(last, HELD, 1, self._lock))
        self._add(first, last, 1, part.batch)
        return last == part.last

    def _acquire_in_order(
        self, part: RecordSpan, batch_records: int, order: KeyOrder, keys: Mapping[int, int]
    ) -> bool:
        """Acquire what is the next of its key. What is passed over stays available. False: no more are acquired."""
        window = self._window
        if part.last >= window.end:
            last = min(part.last, window.end + self._locks_max - window.unfinished - 1)
            if last >= window.end:
                order.add(window.end, last, keys)
                window.extend(RecordRun(last, AVAILABLE))
        for first, last, run in window.between(part.first, min(part.last, window.end - 1)):
            if run.state != AVAILABLE or run.due_at_ms > self._now_ms:
                continue
            alone = self._records_at_once(run.delivery_count, batch_records) is not None
            for offset in range(first, last + 1):
                if self._is_exact and self._acquired.record_count >= self._records_max:
                    return False
                if not order.may_acquire(offset, self._lock.member, self._key_inflight_max):
                    continue
                if alone and self._acquired.record_count:
                    return False
                window.change(offset, offset, self._held)
                self._add(offset, offset, run.delivery_count + 1, part.batch)
                if alone:
                    return False
        return part.last < window.end

    def _add(self, first: int, last: int, delivery_count: int, batch: int) -> None:
        self._acquired.add(first, last, delivery_count, batch, self._batch_size)

    def _exact_last(self, first: int, last: int) -> int:
        if not self._is_exact:
            return last
        return min(last, first + self._records_max - self._acquired.record_count - 1)

    def _records_at_once(self, delivery_count: int, batch_records: int) -> int | None:
        """How many records that were delivered so often may be acquired, with no others; None: any number."""
        if delivery_count + 1 >= self._limit and delivery_count > 0:
            return 1
        halved_from = max(2, self._limit // 2)
        if delivery_count < halved_from:
            return None
        return max(1, batch_records >> (delivery_count - halved_from + 1))

    def _held(self, run: RecordRun) -> RecordRun:
        return RecordRun(run.last, HELD, run.delivery_count + 1, self._lock)


def _records_of_batches(spans: list[RecordSpan]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for first, last, batch in spans:
        counts[batch] = counts.get(batch, 0) + last - first + 1
    return counts


def _archived(run: RecordRun) -> RecordRun:
    return RecordRun(run.last, ARCHIVED, run.delivery_count)
