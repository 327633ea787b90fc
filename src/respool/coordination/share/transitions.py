"""What becomes of records of a share partition, and what must be stored of it. Pure."""

from dataclasses import dataclass, field
from typing import NamedTuple

from respool.coordination.share.changed_ranges import ChangedRanges
from respool.coordination.share.in_flight import HELD, InFlight, Lock, RecordRun
from respool.coordination.share.share_state import (
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    NOT_DELAYED,
)
from respool.model.ids import Offset
from respool.model.share.share_settings import ShareGroupSettings

# What ends within as much of each other ends together, and is one write.
TIME_BUCKET_MS = 100
# With as many runs for each allowed unfinished record, adjacent finished ones are joined whatever became of them.
RUNS_PER_LOCK_MAX = 4


@dataclass(slots=True)
class ShareCounts:
    """What has happened since the share partition was loaded. For metrics."""

    # By how often the record has been delivered.
    deliveries: dict[int, int] = field(default_factory=dict)
    accepted: int = 0
    late_accepts: int = 0
    lock_ends: int = 0
    archived: int = 0
    dead_letters: int = 0
    # Unfinished records that the log has deleted.
    lost: int = 0

    def add(self, other: "ShareCounts") -> None:
        for delivery, count in other.deliveries.items():
            self.deliveries[delivery] = self.deliveries.get(delivery, 0) + count
        self.accepted += other.accepted
        self.late_accepts += other.late_accepts
        self.lock_ends += other.lock_ends
        self.archived += other.archived
        self.dead_letters += other.dead_letters
        self.lost += other.lost


class ShareGauges(NamedTuple):
    """Numbers of records, and the first one that is not finished. For metrics."""

    # Those that members may acquire, or may when others of their key are finished.
    ready: int
    held: int
    waiting: int
    dying: int
    start: Offset


class Transitions:
    def __init__(self, window: InFlight, settings: ShareGroupSettings) -> None:
        self.window = window
        self.settings = settings
        self.counts = ShareCounts()
        self.changed = ChangedRanges()
        # Raised by every change that must be stored.
        self.version = 0
        # Records in the state ARCHIVING.
        self.dying = 0
        self.log_start = Offset(0)
        # No lock and no delay ends before; None: none ends.
        self.due_at_ms: int | None = None

    def accept(self, first: int, last: int, run: RecordRun) -> None:
        self.counts.accepted += last - first + 1
        if run.state == AVAILABLE:
            self.counts.late_accepts += last - first + 1
        self._change(first, last, RecordRun(last, ACKNOWLEDGED, run.delivery_count))

    def make_available(
        self,
        first: int,
        last: int,
        run: RecordRun,
        *,
        now_ms: int,
        is_delayed: bool = True,
        keeps_lock: bool = False,
    ) -> None:
        """A held record comes back."""
        if run.delivery_count >= self.settings.delivery_count_limit:
            self.end(first, last, run, is_rejected=False)
            return
        delays = self.settings.retry_delays_ms
        due_at_ms = NOT_DELAYED
        if delays and is_delayed:
            delay_ms = delays[min(run.delivery_count, len(delays)) - 1]
            if delay_ms:
                due_at_ms = in_bucket(now_ms + delay_ms)
                self.wake_at(due_at_ms)
        # An accept that is late still counts if nobody has acquired the record since.
        lock = run.lock if keeps_lock else None
        self._change(first, last, RecordRun(last, AVAILABLE, run.delivery_count, lock, due_at_ms))
        self.end_lost()

    def end(self, first: int, last: int, run: RecordRun, *, is_rejected: bool) -> None:
        """A record is not delivered again."""
        if self.settings.dead_letter_topic is None:
            self.archive(first, last, run)
            return
        self.dying += last - first + 1
        ended = RecordRun(last, ARCHIVING, run.delivery_count, is_rejected=is_rejected)
        self._change(first, last, ended)

    def archive(self, first: int, last: int, run: RecordRun) -> None:
        if run.state == ARCHIVING:
            self.dying -= last - first + 1
            self.counts.dead_letters += last - first + 1
        self.counts.archived += last - first + 1
        self._change(first, last, RecordRun(last, ARCHIVED, run.delivery_count))

    def renew(self, first: int, last: int, run: RecordRun, *, now_ms: int) -> None:
        assert run.lock is not None
        lock = self.new_lock(run.lock.member, now_ms)
        self.window.change(first, last, lambda part: part._replace(lock=lock))

    def new_lock(self, member: str, now_ms: int) -> Lock:
        lock = Lock(member, in_bucket(now_ms + self.settings.lock_duration_ms))
        self.wake_at(lock.ends_at_ms)
        return lock

    def extend_locks(self, by_ms: int) -> None:
        held = [(first, run) for first, run in self.window if run.state == HELD]
        for first, run in held:
            assert run.lock is not None
            longer = run._replace(lock=Lock(run.lock.member, run.lock.ends_at_ms + by_ms))
            self.window.change(first, run.last, lambda part, to=longer: to._replace(last=part.last))  # type: ignore[misc]

    def end_lost(self) -> None:
        """Available records that the log has deleted end."""
        window = self.window
        if window.start >= self.log_start:
            return
        for first, last, run in window.between(window.start, self.log_start - 1):
            if run.state == AVAILABLE:
                self.counts.lost += last - first + 1
                self._change(first, last, RecordRun(last, ARCHIVED, run.delivery_count))

    def advance_start(self) -> None:
        """After changes: forget finished records at the start."""
        window = self.window
        if window.advance_start():
            self.version += 1
        if len(window) > RUNS_PER_LOCK_MAX * self.settings.record_locks_max:
            self._forget_outcomes()

    def _forget_outcomes(self) -> None:
        """Finished records become acknowledged ones, so that runs stay few if outcomes alternate."""
        window = self.window
        first, last = window.start, window.end - 1
        window.change(
            first,
            last,
            lambda part: part._replace(state=ACKNOWLEDGED) if part.is_finished else part,
        )
        self.on_changed(first, last)

    def _change(self, first: int, last: int, run: RecordRun) -> None:
        self.window.change(first, last, lambda part: run._replace(last=part.last))
        self.on_changed(first, last)

    def on_changed(self, first: int, last: int) -> None:
        self.version += 1
        self.changed.add(first, last)

    def wake_at(self, at_ms: int) -> None:
        if self.due_at_ms is None or at_ms < self.due_at_ms:
            self.due_at_ms = at_ms


def in_bucket(at_ms: int) -> int:
    """Rounded up: nothing ends early."""
    return at_ms + -at_ms % TIME_BUCKET_MS
