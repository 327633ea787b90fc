"""One run of a replay from a known position: read, wait until due, batch, write.

```
  RecordRangeReader -> a queue per source partition -> (due? rate?) -> BatchBuilder -> ReplayWriter -> CopyPosition
```
A partition with a long queue is not fetched, so that messages that are due much later do not fill the memory while
the run waits for others.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from threading import Event, Lock

from respool.client.kafka.cluster import Cluster
from respool.model.times import format_ms
from respool.records.batch import Codec
from respool.records.record import Record
from respool.replay.batches import BATCH_RECORDS, BatchBuilder, CopyBatch
from respool.replay.copy_plan import CopyPlan, Span
from respool.replay.copy_position import CopyPosition
from respool.replay.errors import ReplayFailed
from respool.replay.letter_rules import LetterRules
from respool.replay.pace import Pace
from respool.replay.record_reader import RecordRangeReader, ignore_note
from respool.replay.request import MessageFilter
from respool.replay.writer import ReplayWriter

# Fetching of a partition pauses when its queue has QUEUE_LONG messages, and continues at QUEUE_SHORT.
QUEUE_LONG, QUEUE_SHORT = 4_000, 1_000
WAIT_SECONDS = 0.1
PROGRESS_SECONDS = 0.2
CHECKPOINT_SECONDS = 10.0
# After a stop: how long to wait for batches in flight.
STOP_SECONDS = 5.0


class Control:
    """Stops or pauses a run, from any thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stop = Event()
        self._paused = Event()
        self._lock = Lock()
        # When the present pause began, and how long the earlier ones were.
        self._paused_at = 0.0
        self._paused_before = 0.0

    @property
    def is_stopped(self) -> bool:
        return self._stop.is_set()

    @property
    def is_paused(self) -> bool:
        return self._paused.is_set()

    def stop(self) -> None:
        self._stop.set()

    @property
    def paused_seconds(self) -> float:
        """How long the run has been paused until now, in total."""
        with self._lock:
            return self._paused_before + self._present_pause()

    def pause(self) -> None:
        with self._lock:
            if not self._paused.is_set():
                self._paused_at = self._clock()
                self._paused.set()

    def unpause(self) -> None:
        with self._lock:
            self._paused_before += self._present_pause()
            self._paused.clear()

    def _present_pause(self) -> float:
        return self._clock() - self._paused_at if self._paused.is_set() else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    # How many source offsets are processed, of `plan.messages`.
    done: int
    # The copies in the target, from this run and earlier ones.
    copied: int
    # The timestamp of the last message sent; -1 before the first.
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyJob:
    cluster: Cluster
    plan: CopyPlan
    replay_id: str
    selection: MessageFilter
    # Of dead letters: which are copied, and how. None: records are copied as they are.
    letters: LetterRules | None = None
    pace: Pace
    codec: Codec
    batch_records: int = BATCH_RECORDS
    # Messages older than this would be deleted from the target at once; None: it keeps all.
    oldest_ms: int | None
    on_progress: Callable[[RunProgress], None]
    # Called every few seconds with a position from which a run can safely resume.
    on_checkpoint: Callable[[CopyPosition], None]
    # Called on transient errors, and on recovery.
    on_note: Callable[[str], None] = ignore_note


class CopyRun:
    """Copies until the end, a stop or an error, and advances the given position."""

    def __init__(self, job: CopyJob, position: CopyPosition) -> None:
        self._job = job
        self._position = position
        self._batches = BatchBuilder(
            job.plan,
            position,
            replay_id=job.replay_id,
            selection=job.selection,
            rewrite=None if job.letters is None else self._copy_of_letter,
            batch_records=job.batch_records,
        )
        self._spans = {
            source: Span(self._batches.added_below[source], span.stop)
            for source, span in job.plan.spans.items()
        }
        self._queues: dict[int, deque[Record]] = {source: deque() for source in self._spans}
        self._held: set[int] = set()
        # Source partitions whose first message has not been checked.
        self._unchecked = set(self._spans)
        self._timestamp_ms = -1
        self._progress_at = self._checkpoint_at = time.monotonic()
        self._paused_at: float | None = None

    def run(self, control: Control) -> None:
        """
        Raises:
            PositionLost: the target has more copies of this replay than the position says.
            ReplayError: a message was deleted from the source, or rejected by the target; or a broker is unavailable.
        """
        if all(span.start >= span.stop for span in self._spans.values()):
            self._advance_position((), done=set(self._spans))
            return
        job = self._job
        # Work of earlier runs does not count for this run's rate.
        self._report_progress()
        reader = RecordRangeReader(job.cluster, job.plan.topic, self._spans, on_note=job.on_note)
        writer = ReplayWriter(job.cluster, job.plan, codec=job.codec, on_note=job.on_note)
        try:
            while not control.is_stopped and not self._is_finished(reader, writer):
                self._step(reader, writer, control)
            self._drain(writer)
            self._advance_position(writer.unacknowledged, done=self._read_sources(reader))
            self._report_progress()
        finally:
            writer.close()
            reader.close()

    def _step(self, reader: RecordRangeReader, writer: ReplayWriter, control: Control) -> None:
        if control.is_paused:
            self._while_paused(reader, writer)
            return
        if self._paused_at is not None:
            self._job.pace.shift(time.monotonic() - self._paused_at)
            self._paused_at = None
        has_read = self._read(reader, writer)
        has_batched = self._fill_batches(writer)
        self._release_short(reader)
        # A batch that is not full is held back only while more records arrive without waiting.
        if not (has_read and has_batched) and not writer.is_full:
            for batch in self._batches.take_open():
                writer.add(batch)
        is_waiting = writer.is_full or (reader.is_done and not any(self._queues.values()))
        self._run_writer(writer, seconds=WAIT_SECONDS if is_waiting else 0.0)
        self._report(reader, writer)

    def _while_paused(self, reader: RecordRangeReader, writer: ReplayWriter) -> None:
        """Send no new batches; wait for those in flight."""
        self._paused_at = self._paused_at or time.monotonic()
        if writer.unacknowledged:
            self._run_writer(writer, seconds=WAIT_SECONDS)
        else:
            time.sleep(WAIT_SECONDS)
        self._report(reader, writer)

    def _read(self, reader: RecordRangeReader, writer: ReplayWriter) -> bool:
        """Fetch more, or wait briefly if there is nothing else to do. Returns True if records arrived."""
        wait = self._wait_seconds()
        if writer.is_full:
            return False
        if self._held.issuperset(reader.undone):
            if any(self._queues.values()) and wait > 0:
                time.sleep(wait)
            return False
        fetched = reader.read(seconds=wait)
        for source, records in fetched:
            if source in self._unchecked:
                self._unchecked.discard(source)
                self._check_age(records[0])
            queue = self._queues[source]
            queue.extend(records)
            if len(queue) > QUEUE_LONG and source not in self._held:
                self._held.add(source)
                reader.hold(source)
        return bool(fetched)

    def _wait_seconds(self) -> float:
        """The time until a queued message is due."""
        now = time.monotonic()
        heads = [queue[0].timestamp for queue in self._queues.values() if queue]
        if not heads:
            return WAIT_SECONDS
        self._job.pace.allowance(now=now)
        due_in = min(self._job.pace.due_at(head, now=now) for head in heads) - now
        return min(WAIT_SECONDS, max(0.0, due_in, self._job.pace.next_allowed_in()))

    def _fill_batches(self, writer: ReplayWriter) -> bool:
        """Put due messages into batches. Returns True if there were any."""
        now, pace = time.monotonic(), self._job.pace
        allowance = pace.allowance(now=now)
        sent = 0
        for source, queue in self._queues.items():
            while queue and allowance - sent >= 1 and not writer.is_full:
                record = queue[0]
                if pace.due_at(record.timestamp, now=now) > now:
                    break
                queue.popleft()
                sent += 1
                self._timestamp_ms = max(self._timestamp_ms, record.timestamp)
                full = self._batches.add(source, record)
                if full is not None:
                    writer.add(full)
        pace.spend(sent)
        return sent > 0

    def _copy_of_letter(self, record: Record) -> Record | None:
        assert self._job.letters is not None
        return self._job.letters.copy_of(record, now_ms=int(time.time() * 1000))

    def _release_short(self, reader: RecordRangeReader) -> None:
        for source in [each for each in self._held if len(self._queues[each]) < QUEUE_SHORT]:
            self._held.discard(source)
            reader.release(source)

    def _run_writer(self, writer: ReplayWriter, *, seconds: float) -> None:
        for batch, offset in writer.run(seconds=seconds):
            last_at = offset + len(batch.records) - 1
            self._position.on_copy(batch.target, batch.last, at_offset=last_at)

    def _is_finished(self, reader: RecordRangeReader, writer: ReplayWriter) -> bool:
        return (
            reader.is_done
            and not any(self._queues.values())
            and not self._batches.has_open
            and not writer.unacknowledged
        )

    def _drain(self, writer: ReplayWriter) -> None:
        """After a stop: wait for batches in flight. Unsent messages are left for the next run."""
        until = time.monotonic() + STOP_SECONDS
        while writer.unacknowledged and time.monotonic() < until:
            self._run_writer(writer, seconds=WAIT_SECONDS)

    def _report(self, reader: RecordRangeReader, writer: ReplayWriter) -> None:
        now = time.monotonic()
        if now - self._progress_at >= PROGRESS_SECONDS:
            self._progress_at = now
            self._advance_position(writer.unacknowledged, done=self._read_sources(reader))
            self._report_progress()
        if now - self._checkpoint_at >= CHECKPOINT_SECONDS:
            self._checkpoint_at = now
            self._job.on_checkpoint(self._position)

    def _advance_position(
        self, unacknowledged: Iterable[CopyBatch], *, done: Collection[int]
    ) -> None:
        for source, span in self._spans.items():
            below = self._batches.done_below(source, unacknowledged)
            is_read = source in done and not self._queues[source]
            if is_read and below == self._batches.added_below[source]:
                # The last offsets of a span may have no message.
                below = span.stop
            self._position.done_below[source] = max(self._position.done_below[source], below)

    def _read_sources(self, reader: RecordRangeReader) -> set[int]:
        return self._spans.keys() - set(reader.undone)

    def _report_progress(self) -> None:
        plan = self._job.plan
        done = sum(
            min(below, plan.spans[source].stop) - plan.spans[source].start
            for source, below in self._position.done_below.items()
        )
        self._job.on_progress(
            RunProgress(done=done, copied=self._position.copied, timestamp_ms=self._timestamp_ms)
        )

    def _check_age(self, record: Record) -> None:
        oldest_ms = self._job.oldest_ms
        if oldest_ms is not None and 0 <= record.timestamp < oldest_ms:
            into = self._job.plan.into
            raise ReplayFailed(
                f"copies keep their timestamps, and {into} deletes messages older than {format_ms(oldest_ms)}: one of "
                f"{format_ms(record.timestamp)} would be gone at once",
                hint=f"set a longer retention: respool topic alter {into} --set retention.ms=-1; then start again",
            )
