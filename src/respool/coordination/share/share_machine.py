"""One group's view of one partition, at the partition's leader: who holds which records, and which are finished. Pure.

```
                acquire                    accept
 available ------------------> held -------------------------------> acknowledged
    ^   ^                       | | |  reject, gap
    |   | due                   | | +------------------------------> archived
 waiting <----------------------+ |  reject, or delivered too often, with a dead-letter topic
      release, lock ended,        +---> archiving --letter written-> archived
      member gone
```
Memory runs ahead of what is stored: every call changes the machine at once, and `take_update` says what must be
written. A caller answers a client when that is committed. If a write fails, the whole machine is discarded and loaded
again: records that were held come again.

`now_ms` is of a clock that does not jump.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from respool.coordination.share.acknowledged_ranges import AcknowledgedRange
from respool.coordination.share.acknowledgement import apply_acknowledgements
from respool.coordination.share.acquisition import Acquired, AcquireMode, Acquisition, FoundRecords
from respool.coordination.share.in_flight import HELD, InFlight, RecordRun
from respool.coordination.share.key_order import KeyOrder
from respool.coordination.share.share_state import (
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    NOT_DELAYED,
    UNCHANGED_START,
    UNDECIDED_START,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from respool.coordination.share.transitions import ShareCounts, ShareGauges, Transitions
from respool.model.ids import LeaderEpoch, Offset
from respool.model.share.share_settings import ShareGroupSettings

# Fewer keys than this stay in memory though their records are finished.
KEYS_MIN = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DyingRecords:
    """Records that end as dead letters."""

    first: int
    last: int
    delivery_count: int
    # By a member; else they were delivered too often.
    is_rejected: bool


class SharePartitionMachine:
    def __init__(
        self,
        state: ShareState,
        *,
        leader_epoch: LeaderEpoch,
        log_start: Offset,
        log_end: Offset,
        settings: ShareGroupSettings,
        now_ms: int,
        wall_ms: int,
    ) -> None:
        """Begin with the stored state; its start must be decided. What `take_update` has must be stored first."""
        assert state.start_offset != UNDECIDED_START
        self.state_epoch = state.state_epoch
        self.leader_epoch = leader_epoch
        # After an unclean election the log may end before the state does: records written there now are new ones.
        self._window = InFlight(min(state.start_offset, log_end))
        self._transitions = Transitions(self._window, settings)
        self._order = KeyOrder(self._window) if settings.order_by_key else None
        self._stored_start = state.start_offset
        # What is stored of records beyond the log's end.
        self._beyond: list[StateBatch] = []
        self._load(state.batches, log_end=log_end, now_ms=now_ms, wall_ms=wall_ms)
        self._transitions.advance_start()
        self.on_log_start(log_start)

    def _load(
        self, batches: Sequence[StateBatch], *, log_end: Offset, now_ms: int, wall_ms: int
    ) -> None:
        window, settings = self._window, self.settings
        for batch in batches:
            last = min(batch.last, log_end - 1)
            if last < batch.last and (batch.state, batch.delivery_count) != (AVAILABLE, 0):
                first = max(batch.first, log_end)
                self._beyond.append(StateBatch(first, batch.last, AVAILABLE, 0))
            if last < window.end:
                continue
            if batch.first > window.end:
                window.extend(RecordRun(batch.first - 1, AVAILABLE))
            is_dying = batch.state == ARCHIVING
            if is_dying:
                self._transitions.dying += last - window.end + 1
            window.extend(
                RecordRun(
                    last,
                    batch.state,
                    batch.delivery_count,
                    due_at_ms=self._loaded_due(batch, now_ms=now_ms, wall_ms=wall_ms),
                    is_rejected=is_dying and batch.delivery_count < settings.delivery_count_limit,
                )
            )

    def _loaded_due(self, batch: StateBatch, *, now_ms: int, wall_ms: int) -> int:
        delays = self.settings.retry_delays_ms
        if batch.state != AVAILABLE or batch.due_at_ms == NOT_DELAYED or not delays:
            return NOT_DELAYED
        # Whatever the clock was set to, nothing waits longer than the whole delay.
        left_ms = min(batch.due_at_ms - wall_ms, max(delays))
        if left_ms <= 0:
            return NOT_DELAYED
        self._transitions.wake_at(now_ms + left_ms)
        return now_ms + left_ms

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> ShareGroupSettings:
        return self._transitions.settings

    def update_settings(self, settings: ShareGroupSettings) -> None:
        """They apply to what happens from now on."""
        self._transitions.settings = settings

    @property
    def counts(self) -> ShareCounts:
        return self._transitions.counts

    @property
    def version(self) -> int:
        """Raised by every change that must be stored."""
        return self._transitions.version

    @property
    def start(self) -> Offset:
        """The first record that is not finished."""
        return self._window.start

    @property
    def end(self) -> Offset:
        """After the last record that ever was acquired."""
        return self._window.end

    @property
    def held(self) -> int:
        return self._window.held

    @property
    def dying(self) -> int:
        return self._transitions.dying

    @property
    def unfinished(self) -> int:
        """Records below `end` that are not finished."""
        return self._window.unfinished

    def runs(self) -> list[tuple[int, RecordRun]]:
        """First offset and run, in order."""
        return list(self._window)

    def waiting(self, now_ms: int) -> int:
        """Records whose redelivery is delayed."""
        return sum(
            run.last - first + 1
            for first, run in self._window
            if run.state == AVAILABLE and run.due_at_ms > now_ms
        )

    def gauges(self, readable_end: Offset, now_ms: int) -> ShareGauges:
        waiting = self.waiting(now_ms)
        available = self.unfinished - self.held - self.dying - waiting
        return ShareGauges(
            ready=available + max(0, readable_end - self.end),
            held=self.held,
            waiting=waiting,
            dying=self.dying,
            start=self.start,
        )

    @property
    def is_ordered(self) -> bool:
        """True if it was loaded for a group with order by key; that does not change."""
        return self._order is not None

    def learn_keys(self, keys: Mapping[int, int]) -> None:
        """After loading, before anything is acquired: the keys of the records from `start` to `end`."""
        assert self._order is not None
        self._order.add(self.start, self.end - 1, keys)

    def _next_in_order(self, order: KeyOrder, now_ms: int, at_least: int) -> Offset | None:
        window = self._window
        first = max(at_least, window.start)
        for part_first, part_last, run in window.between(first, window.end - 1):
            if run.state != AVAILABLE or run.due_at_ms > now_ms:
                continue
            for offset in range(part_first, part_last + 1):
                # Nobody is called so: for whom holds others of the key, more may be available.
                if order.may_acquire(offset, "", 1):
                    return Offset(offset)
        return None

    def next_offset(self, now_ms: int, *, at_least: int = 0) -> Offset | None:
        """The first offset from `at_least` on where a record may be acquired; `end` for one that never was.

        None: too many are unfinished.
        """
        window = self._window
        if window.unfinished > window.held + self.dying:
            if self._order is not None:
                found: int | None = self._next_in_order(self._order, now_ms, at_least)
            else:
                found = window.first_where(
                    lambda run: run.state == AVAILABLE and run.due_at_ms <= now_ms,
                    at_least=max(at_least, window.start),
                )
            if found is not None:
                return Offset(found)
        if window.unfinished >= self.settings.record_locks_max:
            return None
        return Offset(max(window.end, at_least))

    # -- members -----------------------------------------------------------------------------------------------------

    def acquire(
        self,
        member: str,
        found: FoundRecords,
        *,
        mode: AcquireMode,
        records_max: int,
        batch_size: int,
        now_ms: int,
    ) -> Acquired:
        """The member acquires what it may of the records that were read."""
        transitions = self._transitions
        acquired = Acquisition(
            self._window,
            self.settings,
            lock=transitions.new_lock(member, now_ms),
            mode=mode,
            records_max=records_max,
            batch_size=batch_size,
            now_ms=now_ms,
            order=self._order,
        ).run(found)
        if self._order is not None and len(self._order) > 2 * self._window.unfinished + KEYS_MIN:
            self._order.forget_finished()
        for first, last in acquired.ended:
            transitions.on_changed(first, last)
        if acquired.ended:
            transitions.advance_start()
        deliveries = self.counts.deliveries
        for one in acquired.ranges:
            count = one.last - one.first + 1
            deliveries[one.delivery_count] = deliveries.get(one.delivery_count, 0) + count
        return acquired

    def acknowledge(self, member: str, ranges: Sequence[AcknowledgedRange], *, now_ms: int) -> None:
        """Apply all acknowledgements, or none.

        Raises:
            InvalidRequest, InvalidRecordState: see `apply_acknowledgements`.
        """
        apply_acknowledgements(self._transitions, member, ranges, now_ms=now_ms)

    def release_member(self, member: str, *, is_orderly: bool, now_ms: int) -> bool:
        """The member is gone: make available what it held, at once if it said so. True: it held any."""
        if not self._window.held:
            return False
        parts = [
            (first, run)
            for first, run in self._window
            if run.state == HELD and run.lock is not None and run.lock.member == member
        ]
        for first, run in parts:
            self._transitions.make_available(
                first, run.last, run, now_ms=now_ms, is_delayed=not is_orderly
            )
        self._transitions.advance_start()
        return bool(parts)

    # -- time --------------------------------------------------------------------------------------------------------

    @property
    def due_at_ms(self) -> int | None:
        """When `on_due` is to be called; None: never."""
        return self._transitions.due_at_ms

    def on_due(self, now_ms: int) -> bool:
        """Locks and delays may have ended. True: records became available, or wait for it."""
        transitions = self._transitions
        due_at_ms = transitions.due_at_ms
        if due_at_ms is None or due_at_ms > now_ms:
            return False
        transitions.due_at_ms = None
        is_any = False
        ended = []
        for first, run in self._window:
            if run.state == HELD:
                assert run.lock is not None
                if run.lock.ends_at_ms <= now_ms:
                    ended.append((first, run))
                else:
                    transitions.wake_at(run.lock.ends_at_ms)
            elif run.state == AVAILABLE and run.due_at_ms != NOT_DELAYED:
                if run.due_at_ms > now_ms:
                    transitions.wake_at(run.due_at_ms)
                elif run.due_at_ms >= due_at_ms:
                    is_any = True
        for first, run in ended:
            self.counts.lock_ends += run.last - first + 1
            transitions.make_available(first, run.last, run, now_ms=now_ms, keeps_lock=True)
        transitions.advance_start()
        return is_any or bool(ended)

    def extend_locks(self, by_ms: int) -> None:
        """The broker could not act for a while: nobody could acknowledge."""
        self._transitions.extend_locks(by_ms)

    # -- the log and dead letters ------------------------------------------------------------------------------------

    def on_log_start(self, log_start: Offset) -> None:
        """Records below it are gone: available ones end, and held ones when they come back."""
        transitions, window = self._transitions, self._window
        if log_start <= transitions.log_start:
            return
        transitions.log_start = log_start
        if log_start > window.end:
            self.counts.lost += log_start - window.end
            transitions.on_changed(window.end, log_start - 1)
            window.extend(RecordRun(log_start - 1, ARCHIVED))
        transitions.end_lost()
        transitions.advance_start()

    def dying_records(self) -> list[DyingRecords]:
        """What is archived once its letter is committed. The state must be stored before a letter is written."""
        if not self.dying:
            return []
        return [
            DyingRecords(
                first=first,
                last=run.last,
                delivery_count=run.delivery_count,
                is_rejected=run.is_rejected,
            )
            for first, run in self._window
            if run.state == ARCHIVING
        ]

    def on_letters_written(self, first: int, last: int) -> None:
        window = self._window
        for part_first, part_last, run in window.between(max(first, window.start), last):
            if run.state == ARCHIVING:
                self._transitions.archive(part_first, part_last, run)
        self._transitions.advance_start()

    # -- storing -----------------------------------------------------------------------------------------------------

    @property
    def has_update(self) -> bool:
        return (
            bool(self._transitions.changed)
            or self._window.start != self._stored_start
            or bool(self._beyond)
        )

    def take_update(self, *, now_ms: int, wall_ms: int) -> ShareStateUpdate:
        """What has changed since the last call."""
        window = self._window
        batches: list[StateBatch] = []
        for first, last in self._transitions.changed.take():
            for part in window.between(max(first, window.start), last):
                batch = _stored(part, now_ms=now_ms, wall_ms=wall_ms)
                before = batches[-1] if batches else None
                if (
                    before is not None
                    and before.last + 1 == batch.first
                    and before[2:] == batch[2:]
                ):
                    batches[-1] = before._replace(last=batch.last)
                else:
                    batches.append(batch)
        batches += [one for one in self._beyond if one.first >= window.end]
        self._beyond = []
        start = UNCHANGED_START if window.start == self._stored_start else window.start
        self._stored_start = window.start
        return ShareStateUpdate(
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=start,
            finished_count=window.finished,
            batches=tuple(batches),
        )


def _stored(part: tuple[int, int, RecordRun], *, now_ms: int, wall_ms: int) -> StateBatch:
    first, last, run = part
    if run.state == HELD:
        # As it was before it was acquired: locks are not stored.
        return StateBatch(first, last, AVAILABLE, run.delivery_count - 1)
    due_at_ms = NOT_DELAYED
    if run.due_at_ms > now_ms:
        due_at_ms = wall_ms + run.due_at_ms - now_ms
    return StateBatch(first, last, run.state, run.delivery_count, due_at_ms)
