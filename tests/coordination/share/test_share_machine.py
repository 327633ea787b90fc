"""What a share partition promises, one rule after the other. Sequences of calls: test_share_machine_model.py."""

import pytest

from respool.coordination.share.acknowledged_ranges import AcknowledgedRange, AcknowledgeType
from respool.coordination.share.acquisition import (
    Acquired,
    AcquireMode,
    FoundRecords,
    RecordSpan,
)
from respool.coordination.share.share_machine import SharePartitionMachine
from respool.coordination.share.share_state import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    ShareState,
    StateBatch,
)
from respool.coordination.share.state_merge import apply_update
from respool.model.errors import InvalidRequest
from respool.model.ids import LeaderEpoch, Offset
from respool.model.share.share_errors import InvalidRecordState
from respool.model.share.share_settings import ShareGroupSettings

NEW = ShareState(state_epoch=3, leader_epoch=LeaderEpoch(1), start_offset=Offset(0))


def machine_of(
    settings: ShareGroupSettings | None = None, state: ShareState = NEW, log_end: int = 10**9
) -> SharePartitionMachine:
    return SharePartitionMachine(
        state,
        leader_epoch=LeaderEpoch(1),
        log_start=Offset(0),
        log_end=Offset(log_end),
        settings=settings or ShareGroupSettings(),
        now_ms=0,
        wall_ms=5_000,
    )


def take(
    machine: SharePartitionMachine,
    member: str = "a",
    *,
    batches: int = 1,
    size: int = 10,
    records_max: int = 500,
    now_ms: int = 0,
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
) -> Acquired:
    """Acquire from a log of batches of ten records."""
    offset = machine.next_offset(now_ms)
    assert offset is not None
    base = offset // size
    spans = [
        RecordSpan((base + one) * size, (base + one + 1) * size - 1, one) for one in range(batches)
    ]
    found = FoundRecords(first=offset, end=Offset(spans[-1].last + 1), spans=spans)
    return machine.acquire(
        member, found, mode=mode, records_max=records_max, batch_size=500, now_ms=now_ms
    )


def acknowledge(
    machine: SharePartitionMachine,
    first: int,
    last: int,
    kind: AcknowledgeType = AcknowledgeType.ACCEPT,
    *,
    member: str = "a",
    now_ms: int = 0,
) -> None:
    machine.acknowledge(member, [AcknowledgedRange(first, last, kind)], now_ms=now_ms)


def stored(machine: SharePartitionMachine, state: ShareState = NEW) -> ShareState:
    return apply_update(state, machine.take_update(now_ms=0, wall_ms=5_000))


def test_whole_batches_are_acquired_until_there_are_enough_records() -> None:
    machine = machine_of()
    assert take(machine, batches=5, records_max=15).ranges == [(0, 19, 1)]
    assert take(machine, "b", batches=1).ranges == [(20, 29, 1)]


def test_a_record_limit_is_exact() -> None:
    machine = machine_of()
    mode = AcquireMode.RECORD_LIMIT
    assert take(machine, batches=5, records_max=13, mode=mode).ranges == [(0, 12, 1)]
    assert take(machine, "b", batches=2, records_max=4, mode=mode).ranges == [(13, 16, 1)]


def test_one_stuck_record_stops_nobody() -> None:
    machine = machine_of(ShareGroupSettings(record_locks_max=20))
    take(machine)
    acknowledge(machine, 1, 9)
    for _ in range(1_000):
        acquired = take(machine, "b")
        acknowledge(machine, acquired.ranges[0].first, acquired.ranges[0].last, member="b")
    assert machine.start == 0
    assert machine.unfinished == 1
    assert len(machine.runs()) == 2


def test_no_more_records_are_acquired_than_may_be_unfinished() -> None:
    machine = machine_of(ShareGroupSettings(record_locks_max=25))
    assert take(machine, batches=9).record_count == 30
    assert machine.next_offset(0) is None


def test_a_late_accept_counts_only_from_whom_held_the_record_last() -> None:
    machine = machine_of(ShareGroupSettings(lock_duration_ms=1_000))
    take(machine)
    assert machine.on_due(1_000)
    with pytest.raises(InvalidRecordState):
        acknowledge(machine, 0, 3, member="b")
    with pytest.raises(InvalidRecordState):
        acknowledge(machine, 0, 3, AcknowledgeType.RELEASE)
    acknowledge(machine, 0, 3)
    assert take(machine, "b", now_ms=1_000).ranges == [(4, 9, 2)]
    with pytest.raises(InvalidRecordState):
        acknowledge(machine, 4, 4)
    assert machine.counts.late_accepts == 4


def test_a_renewed_lock_ends_later_and_a_fetch_moves_no_lock() -> None:
    machine = machine_of(ShareGroupSettings(lock_duration_ms=1_000))
    take(machine)
    acknowledge(machine, 0, 4, AcknowledgeType.RENEW, now_ms=500)
    take(machine, now_ms=900)
    assert machine.on_due(1_000)
    assert machine.held == 15
    assert machine.on_due(1_500)
    assert machine.held == 10


def test_a_group_may_forbid_to_renew() -> None:
    machine = machine_of(ShareGroupSettings(renew_enabled=False))
    take(machine)
    with pytest.raises(InvalidRequest):
        acknowledge(machine, 0, 0, AcknowledgeType.RENEW)


def test_acknowledgements_of_a_partition_are_applied_together_or_not_at_all() -> None:
    machine = machine_of()
    take(machine)
    take(machine, "b")
    ranges = [
        AcknowledgedRange(0, 9, AcknowledgeType.ACCEPT),
        AcknowledgedRange(10, 10, AcknowledgeType.ACCEPT),
    ]
    with pytest.raises(InvalidRecordState):
        machine.acknowledge("a", ranges, now_ms=0)
    assert machine.start == 0
    with pytest.raises(InvalidRequest):
        acknowledge(machine, 15, 20, member="b")
    acknowledge(machine, 0, 9)
    assert machine.start == 10
    # A retry.
    acknowledge(machine, 0, 9)


def test_a_record_on_its_last_delivery_is_alone() -> None:
    machine = machine_of(ShareGroupSettings(delivery_count_limit=4))
    seen = []
    for _ in range(5):
        acquired = take(machine)
        seen.append(acquired.ranges)
        for first, last, _ in acquired.ranges:
            acknowledge(machine, first, last, AcknowledgeType.RELEASE)
    # A half, a quarter, and one record alone.
    assert seen == [[(0, 9, 1)], [(0, 9, 2)], [(0, 4, 3)], [(0, 0, 4)], [(1, 1, 4)]]
    take(machine)
    acquired = take(machine)
    assert acquired.ranges == [(3, 3, 4)]


def test_others_on_their_way_to_a_last_delivery_are_not_in_its_answer() -> None:
    machine = machine_of(ShareGroupSettings(delivery_count_limit=2))
    take(machine)
    acknowledge(machine, 5, 9, AcknowledgeType.RELEASE)
    take(machine, "b")
    machine.release_member("a", is_orderly=True, now_ms=0)
    assert take(machine, batches=3).ranges == [(0, 0, 2)]


def test_redelivery_waits_longer_each_time_and_across_a_change_of_leader() -> None:
    settings = ShareGroupSettings(retry_delays_ms=(1_000, 10_000))
    machine = machine_of(settings)
    take(machine)
    acknowledge(machine, 0, 9, AcknowledgeType.RELEASE)
    assert machine.next_offset(999) == 10
    state = stored(machine)
    assert state.batches == (StateBatch(0, 9, AVAILABLE, 1, 6_000),)
    again = machine_of(settings, state)
    assert again.next_offset(999) == 10
    assert again.on_due(1_000)
    assert take(again, now_ms=1_000).ranges == [(0, 9, 2)]
    acknowledge(again, 0, 9, AcknowledgeType.RELEASE, now_ms=1_000)
    assert again.next_offset(10_999) == 10
    assert again.next_offset(11_000) == 0


def test_an_orderly_end_makes_records_available_at_once() -> None:
    machine = machine_of(ShareGroupSettings(retry_delays_ms=(1_000,)))
    take(machine)
    machine.release_member("a", is_orderly=True, now_ms=0)
    assert machine.next_offset(0) == 0
    take(machine, "b")
    machine.release_member("b", is_orderly=False, now_ms=0)
    assert machine.next_offset(0) == 10
    assert machine.waiting(0) == 10


def test_rejected_records_die_only_once_their_letters_are_written() -> None:
    machine = machine_of(ShareGroupSettings(dead_letter_topic="dlq.orders"))
    take(machine)
    acknowledge(machine, 0, 1, AcknowledgeType.REJECT)
    acknowledge(machine, 2, 2, AcknowledgeType.GAP)
    acknowledge(machine, 3, 9)
    assert machine.start == 0
    (dying,) = machine.dying_records()
    assert (dying.first, dying.last, dying.is_rejected) == (0, 1, True)
    # A new leader writes them again.
    again = machine_of(machine.settings, stored(machine))
    assert again.dying_records() == [dying]
    machine.on_letters_written(0, 1)
    assert machine.start == 10
    assert stored(machine).start_offset == 10


def test_what_is_stored_beyond_the_logs_end_is_cut() -> None:
    state = ShareState(
        state_epoch=0,
        leader_epoch=LeaderEpoch(1),
        start_offset=Offset(2),
        batches=(StateBatch(4, 20, ACKNOWLEDGED, 1),),
    )
    machine = machine_of(state=state, log_end=8)
    assert machine.end == 8
    cut = stored(machine, state)
    # Records that are written there now are new ones, also for whoever leads next.
    later = machine_of(state=cut)
    assert later.next_offset(0, at_least=8) == 8


def test_records_that_the_log_deletes_end_when_they_come_back() -> None:
    machine = machine_of()
    take(machine)
    machine.on_log_start(Offset(5))
    assert machine.start == 0
    acknowledge(machine, 0, 9, AcknowledgeType.RELEASE)
    assert machine.start == 5
    assert machine.counts.lost == 5
    machine.on_log_start(Offset(30))
    assert (machine.start, machine.end) == (30, 30)


def test_alternating_outcomes_behind_a_stuck_record_take_bounded_memory() -> None:
    machine = machine_of(ShareGroupSettings(record_locks_max=5))
    take(machine)
    acknowledge(machine, 1, 9)
    for offset in range(10, 2_000, 10):
        take(machine)
        for one in range(offset, offset + 10):
            kind = AcknowledgeType.ACCEPT if one % 2 else AcknowledgeType.REJECT
            acknowledge(machine, one, one, kind)
    assert len(machine.runs()) <= 4 * 5 + 10
    assert machine.unfinished == 1


def test_offsets_without_records_are_finished_from_the_beginning() -> None:
    machine = machine_of()
    spans = [RecordSpan(0, 4, 0), RecordSpan(8, 9, 2)]
    acquired = machine.acquire(
        "a",
        FoundRecords(first=Offset(0), end=Offset(12), spans=spans),
        mode=AcquireMode.BATCH_OPTIMIZED,
        records_max=500,
        batch_size=500,
        now_ms=0,
    )
    assert acquired.ranges == [(0, 4, 1), (8, 9, 1)]
    acknowledge(machine, 0, 4)
    acknowledge(machine, 8, 9)
    assert machine.start == 12
    assert [one.state for _, one in machine.runs() if one.state == ARCHIVED] == []


def test_locks_are_longer_by_the_time_that_the_broker_could_not_act() -> None:
    machine = machine_of(ShareGroupSettings(lock_duration_ms=1_000))
    take(machine)
    machine.extend_locks(10_000)
    assert not machine.on_due(1_000)
    assert machine.held == 10
    assert machine.on_due(11_000)
