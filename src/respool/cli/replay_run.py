"""One run of a replay from a known position on: read, wait until due, batch, write.

```
  TopicReader -> a queue per source partition -> (due? allowed?) -> Batches -> ReplayWriter -> Position
```
A partition whose queue is long is left alone for a while, so that messages which are due much later do not fill the
memory while others are waited for.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from respool.cli.consume_range import Cursor, all_done
from respool.cli.interrupts import CtrlC
from respool.cli.kafka import Cluster
from respool.cli.message_format import ReadMessage
from respool.cli.replay_batches import BATCH_RECORDS, Batch, Batches
from respool.cli.replay_pace import Pace
from respool.cli.replay_plan import CopyPlan
from respool.cli.replay_position import Position
from respool.cli.replay_writer import ReplayWriter
from respool.cli.topic_reader import TopicReader
from respool.model.operator_errors import OperatorError
from respool.model.times import format_ms
from respool.records.batch import Codec

READ_MESSAGES = 1_000
# So long a queue is enough, and so short a one is filled again.
QUEUE_LONG, QUEUE_SHORT = 4_000, 1_000
WAIT_SECONDS = 0.1
PROGRESS_SECONDS = 0.2
CHECKPOINT_SECONDS = 10.0
# Ctrl-C: how long to wait for answers to what is under way.
AFTER_CTRL_C_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    # Source messages that are dealt with, of `plan.messages`.
    done: int
    # Copies there are in the target, of this run and those before.
    copied: int
    # The time of the message sent last; -1 before the first.
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyJob:
    cluster: Cluster
    plan: CopyPlan
    replay_id: str
    # None: all of them.
    keys: frozenset[bytes] | None
    pace: Pace
    codec: Codec
    batch_records: int = BATCH_RECORDS
    # What is older would be deleted from the target at once; None: it keeps everything.
    oldest_ms: int | None
    on_progress: Callable[[Progress], None]
    # Called now and then with how far it surely is.
    on_checkpoint: Callable[[Position], None]


class CopyRun:
    """Copies until the end, Ctrl-C or an error. The position given grows with it."""

    def __init__(self, job: CopyJob, position: Position) -> None:
        self._job = job
        self._position = position
        self._batches = Batches(
            job.plan,
            position,
            replay_id=job.replay_id,
            keys=job.keys,
            batch_records=job.batch_records,
        )
        self._cursors = {
            source: Cursor(
                position=self._batches.looked_below[source], stop=span.stop, until_ms=None
            )
            for source, span in job.plan.spans.items()
        }
        self._queues: dict[int, deque[ReadMessage]] = {source: deque() for source in self._cursors}
        self._held: set[int] = set()
        # Source partitions whose first message was not looked at yet.
        self._unseen = set(self._cursors)
        self._timestamp_ms = -1
        self._progress_at = self._checkpoint_at = time.monotonic()

    def go(self, ctrl_c: CtrlC) -> None:
        """
        Raises:
            PositionLost: the target has more of this replay than the position says.
            OperatorError: a message is gone from the source, or refused by the target; or a broker is away.
        """
        if all_done(self._cursors):
            self._note_position(())
            return
        reader = TopicReader(self._job.cluster, self._job.plan.topic, self._cursors, follow=False)
        writer = ReplayWriter(self._job.cluster, self._job.plan, codec=self._job.codec)
        try:
            while not ctrl_c.pressed and not self._is_finished(writer):
                self._step(reader, writer)
            self._finish(writer)
            self._note_position(writer.unacknowledged)
            self._tell_progress()
        finally:
            writer.close()
            reader.close()

    def _step(self, reader: TopicReader, writer: ReplayWriter) -> None:
        came = self._read(reader, writer)
        sent = self._hand_over(writer)
        self._let_go_on(reader)
        # What is not full waits only while more comes at once.
        if not (came and sent) and not writer.is_full:
            for batch in self._batches.take_all():
                writer.add(batch)
        is_waiting = writer.is_full or (all_done(self._cursors) and not any(self._queues.values()))
        self._run_writer(writer, seconds=WAIT_SECONDS if is_waiting else 0.0)
        self._report(writer)

    def _read(self, reader: TopicReader, writer: ReplayWriter) -> bool:
        """Fetch more, or wait a little when nothing else can be done now. Returns whether anything came."""
        wait = self._wait_seconds()
        if writer.is_full:
            return False
        if self._held.issuperset(self._undone()):
            if any(self._queues.values()) and wait > 0:
                time.sleep(wait)
            return False
        messages = reader.read(READ_MESSAGES, seconds=wait)
        for message in messages:
            if message.partition in self._unseen:
                self._unseen.discard(message.partition)
                self._check_age(message)
            self._queues[message.partition].append(message)
        for source, queue in self._queues.items():
            if len(queue) > QUEUE_LONG and source not in self._held:
                self._held.add(source)
                reader.hold(source)
        return bool(messages)

    def _undone(self) -> list[int]:
        return [source for source, cursor in self._cursors.items() if not cursor.is_done]

    def _wait_seconds(self) -> float:
        """How long nothing that is queued becomes due."""
        now = time.monotonic()
        heads = [queue[0].timestamp_ms for queue in self._queues.values() if queue]
        if not heads:
            return WAIT_SECONDS
        self._job.pace.allowance(now=now)
        due_in = min(self._job.pace.due_at(head, now=now) for head in heads) - now
        return min(WAIT_SECONDS, max(0.0, due_in, self._job.pace.next_allowed_in()))

    def _hand_over(self, writer: ReplayWriter) -> bool:
        """Put what is due into batches. Returns whether there was any."""
        now, pace = time.monotonic(), self._job.pace
        allowance = pace.allowance(now=now)
        sent = 0
        for queue in self._queues.values():
            while queue and allowance - sent >= 1 and not writer.is_full:
                message = queue[0]
                if pace.due_at(message.timestamp_ms, now=now) > now:
                    break
                queue.popleft()
                sent += 1
                self._timestamp_ms = max(self._timestamp_ms, message.timestamp_ms)
                full = self._batches.add(message)
                if full is not None:
                    writer.add(full)
        pace.spend(sent)
        return sent > 0

    def _let_go_on(self, reader: TopicReader) -> None:
        for source in [each for each in self._held if len(self._queues[each]) < QUEUE_SHORT]:
            self._held.discard(source)
            reader.go_on(source)

    def _run_writer(self, writer: ReplayWriter, *, seconds: float) -> None:
        for batch, offset in writer.run(seconds=seconds):
            last_at = offset + len(batch.records) - 1
            self._position.on_copy(batch.target, batch.last, at_offset=last_at)

    def _is_finished(self, writer: ReplayWriter) -> bool:
        return (
            all_done(self._cursors)
            and not any(self._queues.values())
            and not self._batches.has_open
            and not writer.unacknowledged
        )

    def _finish(self, writer: ReplayWriter) -> None:
        """After Ctrl-C: wait for what is under way. What was not sent stays for the next run."""
        until = time.monotonic() + AFTER_CTRL_C_SECONDS
        while writer.unacknowledged and time.monotonic() < until:
            self._run_writer(writer, seconds=WAIT_SECONDS)

    def _report(self, writer: ReplayWriter) -> None:
        now = time.monotonic()
        if now - self._progress_at >= PROGRESS_SECONDS:
            self._progress_at = now
            self._note_position(writer.unacknowledged)
            self._tell_progress()
        if now - self._checkpoint_at >= CHECKPOINT_SECONDS:
            self._checkpoint_at = now
            self._job.on_checkpoint(self._position)

    def _note_position(self, unacknowledged: Iterable[Batch]) -> None:
        for source, cursor in self._cursors.items():
            below = self._batches.done_below(source, unacknowledged)
            is_through = cursor.is_done and not self._queues[source]
            if is_through and below == self._batches.looked_below[source]:
                # The last offsets of a span may hold no message.
                below = self._job.plan.spans[source].stop
            self._position.done_below[source] = max(self._position.done_below[source], below)

    def _tell_progress(self) -> None:
        plan = self._job.plan
        done = sum(
            min(below, plan.spans[source].stop) - plan.spans[source].start
            for source, below in self._position.done_below.items()
        )
        self._job.on_progress(
            Progress(done=done, copied=self._position.copied, timestamp_ms=self._timestamp_ms)
        )

    def _check_age(self, message: ReadMessage) -> None:
        oldest_ms = self._job.oldest_ms
        if oldest_ms is not None and 0 <= message.timestamp_ms < oldest_ms:
            into = self._job.plan.into
            raise OperatorError(
                f"copies keep their times, and {into} deletes what is older than {format_ms(oldest_ms)}: a message of "
                f"{format_ms(message.timestamp_ms)} would be gone at once",
                hint=f"let it keep them: respool topic alter {into} --set retention.ms=-1; then start again",
            )
