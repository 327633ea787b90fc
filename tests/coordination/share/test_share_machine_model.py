"""A share partition against a dictionary of its records: hypothesis looks for a sequence of calls where they differ.

The model knows nothing of runs. What was stored is known, too: the share partition is loaded again at any time, with or
without the write that was under way.
"""

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from respool.coordination.share.acknowledged_ranges import AcknowledgedRange, AcknowledgeType
from respool.coordination.share.acquisition import AcquireMode, FoundRecords, RecordSpan
from respool.coordination.share.in_flight import HELD
from respool.coordination.share.share_machine import SharePartitionMachine
from respool.coordination.share.share_state import (
    ACKNOWLEDGED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    ShareState,
    ShareStateUpdate,
)
from respool.coordination.share.state_merge import apply_update
from respool.model.errors import InvalidRequest
from respool.model.ids import LeaderEpoch, Offset
from respool.model.share.share_errors import InvalidRecordState
from respool.model.share.share_settings import ShareGroupSettings

MEMBERS = ["a", "b"]
LOCK_MS = 1_000


@dataclass
class Known:
    """One record below the machine's end."""

    state: int = AVAILABLE
    count: int = 0
    owner: str = ""
    lock_end_ms: int = 0
    due_at_ms: int = -1
    # Who may still accept it.
    late_owner: str = ""


@dataclass
class LogBatch:
    first: int
    last: int
    has_records: bool = True


@dataclass
class FakeLog:
    batches: list[LogBatch] = field(default_factory=list)
    start: int = 0

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def read(self, offset: int, batches_max: int) -> FoundRecords:
        found = [one for one in self.batches if one.last >= max(offset, self.start)][:batches_max]
        spans = [
            RecordSpan(one.first, one.last, index)
            for index, one in enumerate(found)
            if one.has_records
        ]
        end = found[-1].last + 1 if found else offset
        return FoundRecords(first=Offset(offset), end=Offset(end), spans=spans)

    def has_record(self, offset: int) -> bool:
        return offset >= self.start and any(
            one.first <= offset <= one.last and one.has_records for one in self.batches
        )


class ShareMachineModel(RuleBasedStateMachine):
    @initialize(
        delays=st.sampled_from([(), (500, 2_000)]),
        has_letters=st.booleans(),
        locks_max=st.sampled_from([5, 40]),
        limit=st.sampled_from([2, 4]),
    )
    def begin(self, delays: tuple[int, ...], has_letters: bool, locks_max: int, limit: int) -> None:
        self.limit = limit
        self.settings = ShareGroupSettings(
            lock_duration_ms=LOCK_MS,
            delivery_count_limit=limit,
            record_locks_max=locks_max,
            retry_delays_ms=delays,
            dead_letter_topic="dlq.orders" if has_letters else None,
        )
        self.log = FakeLog()
        self.now_ms = 1_000_000
        self.stored = ShareState(state_epoch=1, leader_epoch=LeaderEpoch(1), start_offset=Offset(0))
        self.pending: ShareStateUpdate | None = None
        self.known: dict[int, Known] = {}
        # Accepted and answered: never delivered again.
        self.answered: set[int] = set()
        self.unanswered: set[int] = set()
        self.delivered: set[int] = set()
        self.lowest_start = 0
        self.largest_batch = 1
        self.produce([1, 4, 2, 6], control=4)
        self.load()

    def load(self) -> None:
        self.machine = SharePartitionMachine(
            self.stored,
            leader_epoch=LeaderEpoch(1),
            log_start=Offset(self.log.start),
            log_end=Offset(self.log.end),
            settings=self.settings,
            now_ms=self.now_ms,
            wall_ms=self.now_ms + 7_000,
        )
        self.pending = None
        self.unanswered = set()
        self.known = {}
        for batch in self.stored.batches:
            for offset in range(batch.first, batch.last + 1):
                due = batch.due_at_ms - 7_000 if batch.due_at_ms >= 0 else -1
                self.known[offset] = Known(batch.state, batch.delivery_count, due_at_ms=due)
        top = max(self.known, default=-1) + 1
        for offset in range(self.stored.start_offset, top):
            self.known.setdefault(offset, Known())
        self.lose()

    def lose(self) -> None:
        for offset, known in self.known.items():
            if offset < self.log.start and known.state == AVAILABLE:
                known.state = ARCHIVED
        for offset in range(self.machine.start, self.log.start):
            self.known.setdefault(offset, Known(ARCHIVED))

    # -- rules -------------------------------------------------------------------------------------------------------

    @rule(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5), control=st.integers(0, 5))
    def produce(self, sizes: list[int], control: int) -> None:
        for index, size in enumerate(sizes):
            end = self.log.end
            self.log.batches.append(LogBatch(end, end + size - 1, index != control))
            self.largest_batch = max(self.largest_batch, size)

    @rule(
        member=st.sampled_from(MEMBERS),
        mode=st.sampled_from(list(AcquireMode)),
        records_max=st.integers(1, 12),
        batches_max=st.integers(1, 6),
    )
    def acquire(self, member: str, mode: AcquireMode, records_max: int, batches_max: int) -> None:
        offset = self.machine.next_offset(self.now_ms)
        if offset is None:
            assert self.machine.unfinished >= self.settings.record_locks_max
            return
        found = self.log.read(offset, batches_max)
        if found.end <= found.first:
            return
        before = self.machine.end
        acquired = self.machine.acquire(
            member,
            found,
            mode=mode,
            records_max=records_max,
            batch_size=records_max,
            now_ms=self.now_ms,
        )
        for new in range(before, self.machine.end):
            self.known[new] = Known()
        for first, last in acquired.ended:
            for one in range(first, last + 1):
                assert not self.log.has_record(one), f"{one} has a record, and was ended"
                assert self.known[one].state == AVAILABLE
                self.known[one].state = ARCHIVED
        total = 0
        for first, last, count in acquired.ranges:
            for one in range(first, last + 1):
                known = self.known[one]
                assert self.log.has_record(one)
                assert known.state == AVAILABLE, f"{one} is delivered in state {known.state}"
                assert known.due_at_ms <= self.now_ms, f"{one} is delivered before it is due"
                assert one not in self.answered, f"{one} was accepted, and comes again"
                assert count == known.count + 1
                assert count <= self.limit
                known.state, known.count, known.owner = HELD, count, member
                known.late_owner = ""
                known.lock_end_ms = self.now_ms + LOCK_MS
                known.due_at_ms = -1
                self.delivered.add(one)
                total += 1
        assert total == acquired.record_count
        if any(count == self.limit for _, _, count in acquired.ranges):
            assert total == 1, "the last delivery of a record is alone"
        if mode is AcquireMode.RECORD_LIMIT:
            assert total <= records_max
        if total == 0 and any(
            known.state == AVAILABLE
            and known.due_at_ms <= self.now_ms
            and found.first <= one < found.end
            for one, known in self.known.items()
        ):
            raise AssertionError("something was available, and nothing was acquired")

    @precondition(lambda self: self.known)
    @rule(
        data=st.data(),
        member=st.sampled_from(MEMBERS),
        is_fitting=st.sampled_from([True, True, False]),
    )
    def acknowledge(self, data: st.DataObject, member: str, is_fitting: bool) -> None:
        held = [
            one
            for one, known in self.known.items()
            if (known.owner if known.state == HELD else known.late_owner) == member
        ]
        choice = held if is_fitting and held else sorted(self.known)
        first = data.draw(st.sampled_from(choice))
        last = first + data.draw(st.integers(0, 4))
        if is_fitting:
            while last > first and last not in held:
                last -= 1
        cut = data.draw(st.integers(first, last))
        types = st.sampled_from(list(AcknowledgeType))
        ranges = [AcknowledgedRange(first, cut, data.draw(types))]
        if cut < last:
            ranges.append(AcknowledgedRange(cut + 1, last, data.draw(types)))
        expected = self.expected_error(member, ranges)
        start = self.machine.start
        try:
            self.machine.acknowledge(member, ranges, now_ms=self.now_ms)
        except (InvalidRequest, InvalidRecordState) as error:
            assert type(error) is expected, f"{error}"  # noqa: PT017
            return
        assert expected is None
        for one in ranges:
            for offset in range(max(one.first, start), one.last + 1):
                self.apply(offset, one.type)

    def expected_error(self, member: str, ranges: list[AcknowledgedRange]) -> type | None:
        # The form is checked range by range, as the machine does.
        for one in ranges:
            if one.last >= self.machine.end:
                return InvalidRequest
            for offset in range(max(one.first, self.machine.start), one.last + 1):
                known = self.known[offset]
                fits = (
                    (known.state == HELD and known.owner == member)
                    or (known.state == ACKNOWLEDGED and one.type is AcknowledgeType.ACCEPT)
                    or (known.state == ARCHIVED and one.type is AcknowledgeType.GAP)
                    or (
                        known.state == AVAILABLE
                        and known.late_owner == member
                        and one.type is AcknowledgeType.ACCEPT
                    )
                )
                if not fits:
                    return InvalidRecordState
        return None

    def apply(self, offset: int, kind: AcknowledgeType) -> None:
        known = self.known[offset]
        if known.state in {ACKNOWLEDGED, ARCHIVED}:
            return
        if kind is AcknowledgeType.ACCEPT:
            known.state = ACKNOWLEDGED
            self.unanswered.add(offset)
        elif kind is AcknowledgeType.GAP:
            known.state = ARCHIVED
        elif kind is AcknowledgeType.RELEASE:
            self.comes_back(offset, known)
        elif kind is AcknowledgeType.REJECT:
            known.state = ARCHIVING if self.settings.dead_letter_topic else ARCHIVED
        else:
            known.lock_end_ms = self.now_ms + LOCK_MS

    def comes_back(self, offset: int, known: Known, *, is_delayed: bool = True) -> None:
        known.owner, known.late_owner = "", ""
        if known.count >= self.limit:
            known.state = ARCHIVING if self.settings.dead_letter_topic else ARCHIVED
            return
        known.state = ARCHIVED if offset < self.log.start else AVAILABLE
        delays = self.settings.retry_delays_ms
        if delays and is_delayed:
            known.due_at_ms = self.now_ms + delays[min(known.count, len(delays)) - 1]

    @rule(member=st.sampled_from(MEMBERS), is_orderly=st.booleans())
    def leave(self, member: str, is_orderly: bool) -> None:
        self.machine.release_member(member, is_orderly=is_orderly, now_ms=self.now_ms)
        for offset, known in self.known.items():
            if known.state == HELD and known.owner == member:
                self.comes_back(offset, known, is_delayed=not is_orderly)

    @rule(ms=st.sampled_from([100, 500, 1_000, 3_000]))
    def wait(self, ms: int) -> None:
        # In steps of a lock's bucket: a lock ends at its time, not at the next call.
        self.now_ms += ms
        ends = self.machine.due_at_ms
        has_any = self.machine.on_due(self.now_ms)
        expired = [
            (offset, known)
            for offset, known in self.known.items()
            if known.state == HELD and known.lock_end_ms <= self.now_ms
        ]
        for offset, known in expired:
            owner = known.owner
            self.comes_back(offset, known)
            if known.state == AVAILABLE:
                known.late_owner = owner
        is_over = any(
            known.state == AVAILABLE and self.now_ms - ms < known.due_at_ms <= self.now_ms
            for known in self.known.values()
        )
        if expired or is_over:
            assert has_any, "nobody is told that records are available"
            assert ends is not None
            assert ends <= self.now_ms

    @precondition(lambda self: self.log.end - self.log.start > 10)
    @rule(by=st.integers(1, 4))
    def delete_records(self, by: int) -> None:
        self.log.start = min(self.log.start + by, self.log.end)
        self.machine.on_log_start(Offset(self.log.start))
        self.lose()

    @rule()
    def write_letters(self) -> None:
        for one in self.machine.dying_records():
            for offset in range(one.first, one.last + 1):
                assert self.known[offset].state == ARCHIVING
                assert one.delivery_count == self.known[offset].count
                self.known[offset].state = ARCHIVED
            self.machine.on_letters_written(one.first, one.last)

    @rule(is_committed=st.booleans())
    def store(self, is_committed: bool) -> None:
        """A write begins; one before it is committed by now, or this one is as well."""
        self.commit()
        if not self.machine.has_update:
            return
        update = self.machine.take_update(now_ms=self.now_ms, wall_ms=self.now_ms + 7_000)
        self.pending = update
        self.expected = {
            offset: (known.state, known.count)
            for offset, known in self.known.items()
            if offset >= self.machine.start and known.state != HELD
        }
        self.committing, self.unanswered = self.unanswered, set()
        if is_committed:
            self.commit()

    def commit(self) -> None:
        if self.pending is not None:
            self.stored = apply_update(self.stored, self.pending)
            self.pending = None
            self.answered |= self.committing
            stored = {
                offset: (one.state, one.delivery_count)
                for one in self.stored.batches
                for offset in range(one.first, one.last + 1)
            }
            for offset, (state, count) in self.expected.items():
                stored_state, stored_count = stored.get(offset, (AVAILABLE, 0))
                assert stored_state == state, f"{offset} is stored as {stored_state}, not {state}"
                assert stored_count == count or state in {ACKNOWLEDGED, ARCHIVED}

    @precondition(lambda self: self.pending is not None or self.stored.batches)
    @rule(is_committed=st.booleans())
    def load_again(self, is_committed: bool) -> None:
        """The leader changes; a write under way is committed or lost."""
        if is_committed:
            self.commit()
        self.load()

    # -- invariants --------------------------------------------------------------------------------------------------

    @invariant()
    def runs_and_records_agree(self) -> None:
        machine = self.machine
        position, unfinished = machine.start, 0
        for first, run in machine.runs():
            assert first == position, "runs have no gaps"
            for offset in range(first, run.last + 1):
                known = self.known[offset]
                assert run.state == known.state, f"{offset}: {run.state}, not {known.state}"
                if run.state == HELD:
                    assert run.lock is not None
                    assert run.lock.member == known.owner
                if not run.is_finished:
                    assert run.delivery_count == known.count
                    unfinished += 1
            position = Offset(run.last + 1)
        assert position == machine.end
        assert machine.unfinished == unfinished
        assert all(
            known.state in {ACKNOWLEDGED, ARCHIVED}
            for offset, known in self.known.items()
            if offset < machine.start
        )

    @invariant()
    def limits_are_kept(self) -> None:
        assert self.machine.unfinished <= self.settings.record_locks_max + self.largest_batch
        assert len(self.machine.runs()) <= 2 * self.machine.unfinished + 2 + len(self.log.batches)

    @invariant()
    def the_start_never_goes_back(self) -> None:
        assert self.machine.start >= self.stored.start_offset

    def teardown(self) -> None:
        """Whoever asks until nothing comes has had every record."""
        if not hasattr(self, "machine"):
            return
        for member in MEMBERS:
            self.leave(member, is_orderly=True)
        for _ in range(400):
            self.now_ms += 5_000
            self.machine.on_due(self.now_ms)
            self.machine.update_settings(replace(self.settings, record_locks_max=1_000))
            for one in self.machine.dying_records():
                self.machine.on_letters_written(one.first, one.last)
            offset = self.machine.next_offset(self.now_ms)
            assert offset is not None
            found = self.log.read(offset, 100)
            if found.end <= found.first:
                break
            acquired = self.machine.acquire(
                "a",
                found,
                mode=AcquireMode.BATCH_OPTIMIZED,
                records_max=500,
                batch_size=500,
                now_ms=self.now_ms,
            )
            for first, last, _ in acquired.ranges:
                self.machine.acknowledge(
                    "a",
                    [AcknowledgedRange(first, last, AcknowledgeType.ACCEPT)],
                    now_ms=self.now_ms,
                )
        assert self.machine.start == self.machine.end
        assert self.machine.start >= self.log.end


TestShareMachine = ShareMachineModel.TestCase
TestShareMachine.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
