import logging

import pytest

from coordination.shard_world import START_MS
from coordination.transaction_world import (
    A0,
    A1,
    ID,
    TIMEOUT_MS,
    V2,
    TransactionWorld,
    add_of,
    end_of,
    told,
)
from respool.coordination.decision import CoordinatorRecord, Ticket
from respool.coordination.record_bytes import CoordinatorRecordDamaged
from respool.coordination.transactions import transaction_coordinator_shard
from respool.coordination.transactions.transaction_coordinator_shard import (
    TIMEOUT_TIMER,
    TransactionCoordinatorShard,
)
from respool.coordination.transactions.transaction_requests import (
    InitProducerId,
    ProducerIdNeeded,
    TransactionState,
)
from respool.model.coordinator_errors import CoordinatorNotAvailable, TransactionalIdNotFound
from respool.model.coordinator_settings import TransactionSettings
from respool.model.ids import ProducerId

DAY_MS = 24 * 3_600_000
HOUR_MS = 3_600_000


# --- timeouts


def test_a_transaction_is_aborted_when_its_time_is_up() -> None:
    world = TransactionWorld()
    world.init()
    world.advance(1_000)
    world.add(A0)
    world.advance(TIMEOUT_MS - 1)
    assert world.state() is TransactionState.ONGOING
    world.advance(1)
    assert world.state() is TransactionState.PREPARE_ABORT
    effect = world.write_markers()
    assert (effect.is_commit, effect.producer_epoch, effect.partitions) == (False, 1, (A0,))
    assert world.state() is TransactionState.COMPLETE_ABORT


def test_adding_partitions_does_not_prolong_a_transaction() -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0)
    world.advance(TIMEOUT_MS - 1)
    world.add(A1)
    world.advance(1)
    assert world.state() is TransactionState.PREPARE_ABORT


def test_what_could_not_be_written_changes_nothing_of_a_transactions_time() -> None:
    """The log refused the record: what was decided with it has not happened."""
    world = TransactionWorld()
    world.init()
    world.ask_in_vain(add_of(A0))
    # It begins later, and has all of its time.
    world.advance(TIMEOUT_MS - 1)
    world.add(A0)
    world.ask_in_vain(end_of(is_commit=True))
    # Its end was not written either: it is aborted in time.
    world.advance(TIMEOUT_MS - 1)
    assert world.state() is TransactionState.ONGOING
    world.advance(1)
    assert world.state() is TransactionState.PREPARE_ABORT


def test_each_transaction_has_its_own_time() -> None:
    world = TransactionWorld()
    for number, timeout_ms in enumerate([50_000, 10_000, 30_000]):
        world.init(f"id {number}", timeout_ms=timeout_ms)
        producer_id = ProducerId(1_000 + number)
        world.add(A0, transactional_id=f"id {number}", producer_id=producer_id)
    aborted = []
    for _ in range(6):
        world.advance(10_000)
        aborted.append([effect.transactional_id for effect in world.effects])
        world.effects.clear()
    assert aborted == [["id 1"], [], ["id 2"], [], ["id 0"], []]


def test_a_transaction_that_ended_in_time_is_left_alone() -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0)
    world.advance(TIMEOUT_MS - 1)
    world.end()
    world.write_markers()
    world.add(A1)
    before = len(world.log)
    world.advance(TIMEOUT_MS - 1)
    assert len(world.log) == before
    world.advance(1)
    assert world.state() is TransactionState.PREPARE_ABORT


def test_the_timer_is_not_set_anew_for_each_of_many_transactions() -> None:
    world = TransactionWorld()
    world.init()
    sets = 0
    for epoch in range(100):
        world.timers.pop(TIMEOUT_TIMER, None)
        world.add(A0, version=V2, producer_epoch=epoch)
        sets += TIMEOUT_TIMER in world.timers
        world.end(version=V2, producer_epoch=epoch)
        world.write_markers()
        world.advance(1)
    assert sets == 1


def test_after_a_restart_the_time_runs_on() -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0)
    world.advance(TIMEOUT_MS - 10)
    world.reload()
    world.advance(9)
    assert world.state() is TransactionState.ONGOING
    world.advance(1)
    assert world.state() is TransactionState.PREPARE_ABORT


def test_one_that_was_due_while_nobody_coordinated_is_aborted_at_once() -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0)
    world.now_ms += 10 * TIMEOUT_MS
    world.reload()
    world.advance(0)
    assert world.state() is TransactionState.PREPARE_ABORT


def test_very_many_that_are_due_at_once_are_aborted_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_coordinator_shard, "RECORD_BYTES_PER_TIMER", 200)
    world = TransactionWorld()
    for number in range(10):
        world.init(f"id {number}")
        producer_id = ProducerId(1_000 + number)
        world.add(A0, transactional_id=f"id {number}", producer_id=producer_id)
    now_ms = START_MS + TIMEOUT_MS
    decision = world.shard.on_timer(TIMEOUT_TIMER, now_ms=now_ms)
    assert 0 < len(decision.records) < 10
    world.carry_out(decision)
    assert world.timers[TIMEOUT_TIMER] == now_ms
    world.advance(TIMEOUT_MS)
    assert len(world.effects) == 10
    assert TIMEOUT_TIMER not in world.timers


@pytest.mark.parametrize("ahead_ms", [30 * DAY_MS, -30 * DAY_MS])
def test_a_clock_that_is_set_ends_no_transaction_early_or_late(ahead_ms: int) -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0)
    world.ahead_ms = ahead_ms
    world.advance(TIMEOUT_MS - 1)
    world.add(A1)
    assert world.state() is TransactionState.ONGOING
    world.advance(1)
    assert world.state() is TransactionState.PREPARE_ABORT


@pytest.mark.parametrize("ahead_ms", [30 * DAY_MS, -30 * DAY_MS])
def test_a_transaction_begun_under_a_wrong_clock_has_its_time_and_no_more(ahead_ms: int) -> None:
    world = TransactionWorld()
    world.ahead_ms = ahead_ms
    world.init()
    world.add(A0)
    world.advance(TIMEOUT_MS - 1)
    assert world.state() is TransactionState.ONGOING
    # Whoever is next cannot know which clock was right, but does not leave it open for a month.
    world.reload()
    world.advance(TIMEOUT_MS)
    assert world.state() is TransactionState.PREPARE_ABORT


def test_a_transaction_begun_when_the_markers_are_written_has_its_time_too() -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0)
    world.end()
    waiting = world.ask(add_of(A1))
    assert world.is_waiting(waiting)
    world.write_markers()
    assert world.state() is TransactionState.ONGOING
    world.advance(TIMEOUT_MS - 1)
    assert world.state() is TransactionState.ONGOING
    world.advance(1)
    assert world.state() is TransactionState.PREPARE_ABORT


# --- expiry


@pytest.mark.parametrize("ahead_ms", [30 * DAY_MS, -30 * DAY_MS])
def test_an_id_is_not_forgotten_because_one_clock_is_wrong(ahead_ms: int) -> None:
    world = TransactionWorld()
    world.init()
    # With the steady clock ahead, or the wall clock.
    world.now_ms += max(0, -ahead_ms)
    world.ahead_ms = ahead_ms
    world.advance(DAY_MS)
    assert world.describe().error is None
    world.advance(7 * DAY_MS)
    assert isinstance(world.describe().error, TransactionalIdNotFound)


def test_an_id_that_nobody_used_for_long_is_forgotten() -> None:
    world = TransactionWorld()
    world.init()
    world.advance(7 * DAY_MS - 1)
    assert world.describe().error is None
    world.advance(HOUR_MS)
    assert isinstance(world.describe().error, TransactionalIdNotFound)
    assert world.log[-1].value is None
    world.reload()
    assert isinstance(world.describe().error, TransactionalIdNotFound)
    assert told(world.init()) == (1, 0)


@pytest.mark.parametrize("is_commit", [False, True])
def test_the_time_runs_from_the_last_transaction(is_commit: bool) -> None:
    world = TransactionWorld()
    world.init()
    world.advance(3 * DAY_MS)
    world.add(A0)
    world.end(is_commit=is_commit)
    world.write_markers()
    world.advance(6 * DAY_MS)
    assert world.describe().error is None
    world.advance(DAY_MS + HOUR_MS)
    assert isinstance(world.describe().error, TransactionalIdNotFound)


def test_an_id_whose_markers_are_not_written_is_kept() -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0)
    world.end()
    world.advance(30 * DAY_MS)
    assert world.state() is TransactionState.PREPARE_COMMIT


def test_very_many_expire_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_coordinator_shard, "RECORD_BYTES_PER_TIMER", 20)
    world = TransactionWorld(transactional_id_expiration_ms=1_000)
    for number in range(10):
        world.init(f"id {number}")
    shard = world.shard
    now_ms = START_MS + HOUR_MS
    decision = shard.on_timer(transaction_coordinator_shard.EXPIRY_TIMER, now_ms=now_ms)
    assert 0 < len(decision.records) < 10
    world.advance(HOUR_MS)
    assert not shard._transactions
    assert world.timers[transaction_coordinator_shard.EXPIRY_TIMER] == now_ms + HOUR_MS


# --- more ids than there is room for


def room_for(monkeypatch: pytest.MonkeyPatch, count: int, *, length: int) -> None:
    monkeypatch.setattr(transaction_coordinator_shard, "IDS_BYTES_MAX", count * (512 + 4 * length))


def known(world: TransactionWorld) -> list[str]:
    return list(world.shard._transactions)


def test_beyond_the_room_for_ids_the_longest_unused_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room_for(monkeypatch, 3, length=1)
    world = TransactionWorld()
    for name in ("a", "b", "c", "a"):
        assert world.init(name).error is None
    assert world.init("d").error is None
    assert known(world) == ["c", "a", "d"]
    # What was forgotten begins anew, and so it is after a restart.
    world.reload()
    assert known(world) == ["c", "a", "d"]
    reply = world.init("b")
    assert (reply.producer_id, reply.producer_epoch) == (world.next_producer_id - 1, 0)
    assert known(world) == ["a", "d", "b"]


def test_a_long_id_takes_the_room_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    room_for(monkeypatch, 6, length=1)
    world = TransactionWorld()
    for name in "abcdef":
        world.init(name)
    assert world.init("x" * 300).error is None
    # 1,712 bytes, where each of the others has 516.
    assert known(world) == ["e", "f", "x" * 300]


def test_an_id_with_a_transaction_is_never_forgotten_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room_for(monkeypatch, 2, length=len(ID))
    world = TransactionWorld()
    world.init()
    world.add(A0)
    other, third = "x" * len(ID), "y" * len(ID)
    world.init(other)
    assert world.init(third).error is None
    assert known(world) == [ID, third]


def test_a_new_id_must_wait_while_all_others_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    room_for(monkeypatch, 1, length=len(ID))
    world = TransactionWorld()
    world.init()
    world.add(A0)
    before = list(world.log)
    other = "x" * len(ID)
    assert isinstance(world.init(other).error, CoordinatorNotAvailable)
    world.end(is_commit=True)
    assert isinstance(world.init(other).error, CoordinatorNotAvailable)
    assert len(world.log) == len(before) + 1
    world.write_markers()
    assert world.init(other).error is None
    assert known(world) == [other]


# --- the log


def test_markers_of_all_decided_transactions_are_asked_for_after_loading() -> None:
    world = TransactionWorld()
    for number in range(4):
        name, producer_id = f"id {number}", ProducerId(1_000 + number)
        world.init(name)
        world.add(A0, transactional_id=name, producer_id=producer_id)
        if number:
            is_commit = number == 1
            world.end(transactional_id=name, producer_id=producer_id, is_commit=is_commit)
    world.effects.pop()
    wanted = list(world.effects)
    world.write_markers()
    world.reload()
    assert [effect.transactional_id for effect in world.effects] == ["id 2", "id 3"]
    assert world.effects[0] == wanted[1]


def test_records_of_unknown_kinds_are_skipped_and_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shard = TransactionCoordinatorShard(TransactionSettings())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            shard.replay(CoordinatorRecord(key=b"\0\x09abc", value=b"what"))
    assert [record.getMessage() for record in caplog.records] == [
        "records of kind 9 are unknown here and skipped"
    ]


def test_a_damaged_record_is_an_error() -> None:
    world = TransactionWorld()
    world.init()
    (record,) = world.log
    assert record.value is not None
    with pytest.raises(CoordinatorRecordDamaged, match=ID):
        world.shard.replay(CoordinatorRecord(key=record.key, value=record.value[:-1]))
    with pytest.raises(CoordinatorRecordDamaged):
        world.shard.replay(CoordinatorRecord(key=b"", value=record.value))


def test_the_tombstone_of_an_open_transaction_ends_it() -> None:
    world = TransactionWorld()
    world.init()
    world.add(A0)
    world.shard.replay(CoordinatorRecord(key=world.log[0].key, value=None))
    assert isinstance(world.describe().error, TransactionalIdNotFound)
    before = len(world.log)
    world.advance(10 * TIMEOUT_MS)
    assert len(world.log) == before


def test_decisions_change_nothing_before_their_records_are_replayed() -> None:
    world = TransactionWorld()
    request = InitProducerId(transactional_id=ID, timeout_ms=5, new_producer_id=ProducerId(1))
    decision = world.shard.decide(request, ticket=Ticket(1), now_ms=START_MS)
    assert len(decision.records) == 1
    assert isinstance(world.describe().error, TransactionalIdNotFound)
    assert world.now(InitProducerId(transactional_id=ID, timeout_ms=5)) == (ProducerIdNeeded())
