"""A retry is recognised, a gap refused, a zombie fenced: before and after a restart."""

import os
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from respool.log.producers.producer_states import DuplicateOf, ProducerStates
from respool.model.coordinator_errors import InvalidTransactionState
from respool.model.errors import InvalidProducerEpoch, OutOfOrderSequence, RequestError
from respool.model.ids import LeaderEpoch, Offset
from respool.records.batch import CONTROL_BIT, SEQUENCE_MAX, TRANSACTIONAL_BIT, BatchHeader
from respool.records.markers import EndTransactionMarker

DAY_MS = 86_400_000
NOON = 1_700_000_000_000
EXAMPLES = 2_000 if os.environ.get("RESPOOL_FUZZ") == "long" else 60


def batch(
    *,
    producer: int = 7,
    epoch: int = 0,
    sequence: int = 0,
    count: int = 1,
    timestamp: int = NOON,
    attributes: int = 0,
) -> BatchHeader:
    return BatchHeader(
        base_offset=Offset(0),
        length=49 + 10 * count,
        leader_epoch=LeaderEpoch(-1),
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def marker(*, producer: int = 7, epoch: int = 0, timestamp: int = NOON) -> BatchHeader:
    return batch(
        producer=producer,
        epoch=epoch,
        sequence=-1,
        timestamp=timestamp,
        attributes=CONTROL_BIT | TRANSACTIONAL_BIT,
    )


def replay(
    states: ProducerStates, header: BatchHeader, offset: int, *, coordinator_epoch: int = 0
) -> None:
    """It was appended there."""
    if not header.is_control:
        states.update(header, base_offset=Offset(offset))
        return
    marker = EndTransactionMarker(
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        coordinator_epoch=coordinator_epoch,
        is_commit=True,
    )
    states.end_transaction(marker, offset=Offset(offset), timestamp_ms=header.max_timestamp)


def states_after(*headers: BatchHeader, producers_max: int = 100) -> ProducerStates:
    """The states after these batches were appended one after the other, from offset 0 on."""
    states = ProducerStates(expiration_ms=DAY_MS, producers_max=producers_max)
    offset = 0
    for header in headers:
        replay(states, header, offset)
        offset += header.last_offset_delta + 1
    return states


def restarted(states: ProducerStates) -> ProducerStates:
    return ProducerStates.decode_snapshot(states.encode_snapshot(), expiration_ms=DAY_MS)


def refused(states: ProducerStates, header: BatchHeader, error: type[RequestError]) -> str:
    before = states.encode_snapshot()
    with pytest.raises(error) as caught:
        states.check(header)
    assert states.encode_snapshot() == before
    return caught.value.message


# Sequences


def test_an_unknown_producer_may_begin_with_any_sequence() -> None:
    states = states_after()
    assert states.check(batch(sequence=4711)) is None
    assert len(states) == 0


def test_a_batch_without_a_producer_id_leaves_no_trace() -> None:
    states = states_after(batch(producer=-1, epoch=-1, sequence=-1))
    assert len(states) == 0
    assert states.check(batch(producer=-1, epoch=-1, sequence=-1)) is None


def test_the_next_sequence_is_accepted() -> None:
    states = states_after(batch(sequence=0, count=3))
    assert states.check(batch(sequence=3)) is None


@pytest.mark.parametrize("sequence", [1, 2, 4, 100])
def test_any_other_sequence_is_out_of_order(sequence: int) -> None:
    states = states_after(batch(sequence=0, count=3))
    message = refused(states, batch(sequence=sequence), OutOfOrderSequence)
    assert str(sequence) in message
    assert "expected 3" in message


def test_a_retry_gets_the_first_answer() -> None:
    states = states_after(
        batch(sequence=0, count=3), batch(sequence=3, count=2, timestamp=NOON + 5)
    )
    assert states.check(batch(sequence=3, count=2, timestamp=NOON + 5)) == DuplicateOf(
        base_offset=Offset(3), last_offset=Offset(4), timestamp=NOON + 5
    )


def test_each_of_the_last_five_batches_may_be_retried_and_no_older_one() -> None:
    sent = [batch(sequence=n) for n in range(6)]
    states = states_after(*sent)
    for offset, header in enumerate(sent[1:], start=1):
        duplicate = states.check(header)
        assert duplicate is not None
        assert duplicate.base_offset == offset
    refused(states, sent[0], OutOfOrderSequence)


def test_part_of_a_batch_is_not_a_retry_of_it() -> None:
    states = states_after(batch(sequence=0, count=3))
    refused(states, batch(sequence=0, count=2), OutOfOrderSequence)
    refused(states, batch(sequence=1, count=2), OutOfOrderSequence)
    refused(states, batch(sequence=0, count=4), OutOfOrderSequence)


def test_after_the_last_sequence_comes_zero() -> None:
    states = states_after(batch(sequence=SEQUENCE_MAX))
    assert states.check(batch(sequence=0)) is None
    refused(states, batch(sequence=1), OutOfOrderSequence)


def test_a_batch_across_the_wrap_is_recognised_again() -> None:
    across = batch(sequence=SEQUENCE_MAX - 1, count=5)
    states = states_after(across)
    assert states.check(batch(sequence=3)) is None
    assert states.check(across) == DuplicateOf(
        base_offset=Offset(0), last_offset=Offset(4), timestamp=NOON
    )
    assert restarted(states).check(across) == states.check(across)


def test_producers_do_not_disturb_each_other() -> None:
    states = states_after(batch(producer=1), batch(producer=2), batch(producer=1, sequence=1))
    assert states.check(batch(producer=2, sequence=1)) is None
    refused(states, batch(producer=2, sequence=2), OutOfOrderSequence)


# Epochs


def test_a_new_epoch_begins_at_zero() -> None:
    states = states_after(batch(epoch=3, sequence=0), batch(epoch=3, sequence=1))
    assert states.check(batch(epoch=4, sequence=0)) is None
    message = refused(states, batch(epoch=4, sequence=2), OutOfOrderSequence)
    assert "expected 0" in message


def test_an_old_epoch_is_fenced_even_for_a_retry() -> None:
    old = batch(epoch=3)
    states = states_after(old, batch(epoch=4))
    message = refused(states, old, InvalidProducerEpoch)
    assert "epoch 4" in message


def test_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    states = states_after(batch(epoch=0, sequence=0), batch(epoch=0, sequence=1), batch(epoch=1))
    (state,) = states.active()
    assert len(state.batches) == 1
    assert states.check(batch(epoch=1, sequence=1)) is None


def test_what_was_appended_is_replayed_even_where_check_would_refuse() -> None:
    states = states_after(batch(epoch=5, sequence=0), batch(epoch=4, sequence=70))
    assert states.check(batch(epoch=4, sequence=71)) is None
    states.update(batch(epoch=4, sequence=99), base_offset=Offset(50))
    assert states.check(batch(epoch=4, sequence=100)) is None


# Transactions: only what a snapshot must carry


def test_a_transactional_batch_opens_a_transaction_at_its_first_offset() -> None:
    first, second = (batch(sequence=n, attributes=TRANSACTIONAL_BIT) for n in (0, 1))
    states = states_after(batch(producer=1), first, second)
    state = next(one for one in states.active() if one.producer_id == 7)
    assert state.current_txn_first_offset == 1


def test_a_marker_ends_the_transaction_and_names_its_coordinator() -> None:
    states = states_after(batch(attributes=TRANSACTIONAL_BIT))
    replay(states, marker(timestamp=NOON + 1), 1, coordinator_epoch=9)
    (state,) = states.active()
    assert not state.has_open_transaction
    assert state.coordinator_epoch == 9
    # The marker has no sequence; the next batch follows the last data.
    assert states.check(batch(sequence=1)) is None
    assert states.check(batch(sequence=0)) == DuplicateOf(
        base_offset=Offset(0), last_offset=Offset(0), timestamp=NOON
    )


def test_a_marker_with_a_new_epoch_fences_and_starts_at_zero() -> None:
    states = states_after(batch(epoch=1), marker(epoch=2))
    refused(states, batch(epoch=1, sequence=1), InvalidProducerEpoch)
    refused(states, batch(epoch=2, sequence=1), OutOfOrderSequence)
    assert states.check(batch(epoch=2, sequence=0)) is None
    again = restarted(states)
    assert again == states
    refused(again, batch(epoch=2, sequence=1), OutOfOrderSequence)


def test_a_control_batch_that_is_no_marker_changes_nothing() -> None:
    states = states_after(batch(attributes=TRANSACTIONAL_BIT))
    before = states.encode_snapshot()
    states.update(marker(), base_offset=Offset(1))
    assert states.encode_snapshot() == before


def test_a_coordinators_batch_has_no_sequence_to_compare() -> None:
    states = states_after(batch(epoch=1, sequence=-1, attributes=TRANSACTIONAL_BIT))
    again = batch(epoch=1, sequence=-1, attributes=TRANSACTIONAL_BIT)
    assert states.check(again) is None
    refused(states, again._replace(producer_epoch=0), InvalidProducerEpoch)
    assert restarted(states) == states


# Transactions


def test_a_batch_outside_is_refused_while_the_producers_transaction_is_open() -> None:
    states = states_after(batch(attributes=TRANSACTIONAL_BIT))
    said = refused(states, batch(sequence=1), InvalidTransactionState)
    assert "since offset 0" in said
    refused(states, batch(epoch=1, sequence=0), InvalidTransactionState)
    replay(states, marker(), 1)
    assert states.check(batch(sequence=1)) is None


def test_a_transactional_batch_is_refused_unless_its_transaction_is_known_to_be_open() -> None:
    states = ProducerStates(expiration_ms=DAY_MS)
    first = batch(attributes=TRANSACTIONAL_BIT)
    refused(states, first, InvalidTransactionState)
    guard = states.begin_verification(first)
    assert states.check(first, guard) is None
    states.update(first, base_offset=Offset(0))
    second = batch(sequence=1, attributes=TRANSACTIONAL_BIT)
    assert states.check(second) is None
    assert states.begin_verification(second) is None
    # Of another epoch it is another transaction.
    refused(states, batch(epoch=1, attributes=TRANSACTIONAL_BIT), InvalidTransactionState)


def test_of_batches_that_wait_for_one_answer_the_first_must_begin_the_transaction() -> None:
    """The producer is not known here: by its sequence alone the second could not be told from the first."""
    states = ProducerStates(expiration_ms=DAY_MS)
    first, second = (batch(sequence=n, attributes=TRANSACTIONAL_BIT) for n in (5, 6))
    guard = states.begin_verification(first)
    assert states.begin_verification(second) is guard
    with pytest.raises(OutOfOrderSequence, match="5 is pending"):
        states.check(second, guard)
    assert states.check(first, guard) is None


def test_a_retry_is_recognised_before_anything_else_is_asked() -> None:
    first = batch(attributes=TRANSACTIONAL_BIT)
    states = states_after(first, marker())
    expected = DuplicateOf(base_offset=Offset(0), last_offset=Offset(0), timestamp=NOON)
    assert states.check(first) == expected
    replay(states, batch(sequence=1, attributes=TRANSACTIONAL_BIT), 2)
    # Also where the client forgot that it was part of a transaction.
    assert states.check(batch()) == expected


def test_a_guard_is_forgotten_when_nobody_comes_back_with_it() -> None:
    states = ProducerStates(expiration_ms=DAY_MS)
    states.expire(NOON)
    first = batch(attributes=TRANSACTIONAL_BIT)
    guard = states.begin_verification(first)
    states.expire(NOON + 600_000)
    assert states.check(first, guard) is None
    states.expire(NOON + 600_001)
    with pytest.raises(InvalidTransactionState):
        states.check(first, guard)


def test_open_transactions_are_known_after_a_restart_in_the_order_they_began() -> None:
    states = states_after(
        batch(producer=1),
        batch(producer=2, attributes=TRANSACTIONAL_BIT),
        batch(producer=1, sequence=1, attributes=TRANSACTIONAL_BIT),
        batch(producer=2, sequence=1, attributes=TRANSACTIONAL_BIT),
    )
    for known in (states, restarted(states)):
        assert known.transactions.first_unstable == 1
        replay(known, marker(producer=2), 4)
        known.transactions.on_high_watermark(Offset(5))
        assert known.transactions.first_unstable == 2


def test_a_producer_is_not_forgotten_while_its_transaction_is_open() -> None:
    states = states_after(
        batch(producer=1, attributes=TRANSACTIONAL_BIT),
        batch(producer=2),
        batch(producer=3),
        producers_max=2,
    )
    assert states.forget_before(Offset(10)) == 1
    assert [one.producer_id for one in states.active()] == [1]


# Forgetting


def test_a_producer_silent_for_the_expiration_time_is_forgotten() -> None:
    states = states_after(batch())
    assert states.expire(NOON) == 0
    assert states.expire(NOON + DAY_MS - 1) == 0
    assert states.expire(NOON + DAY_MS) == 1
    assert states.check(batch(sequence=4711)) is None


def test_a_backfill_with_old_timestamps_does_not_expire_while_it_writes() -> None:
    old = NOON - 365 * DAY_MS
    states = states_after(batch(timestamp=old))
    for minute in range(3):
        assert states.expire(NOON + minute * 60_000) == 0
        states.update(batch(sequence=minute + 1, timestamp=old), base_offset=Offset(minute + 1))
    # Not at a restart either.
    again = restarted(states)
    assert again.expire(NOON + 180_000) == 0
    assert again.check(batch(sequence=3)) is not None


def test_a_producer_does_not_live_longer_by_restarts() -> None:
    states = states_after(batch())
    states.expire(NOON)
    again = restarted(restarted(states))
    assert again.expire(NOON + DAY_MS - 1) == 0
    assert restarted(again).expire(NOON + DAY_MS) == 1


def test_a_timestamp_from_the_future_does_not_keep_a_producer_for_ever() -> None:
    states = restarted(states_after(batch(timestamp=NOON + 1000 * DAY_MS)))
    assert states.expire(NOON) == 0
    assert states.expire(NOON + DAY_MS) == 1


def test_an_open_transaction_does_not_expire() -> None:
    states = states_after(batch(attributes=TRANSACTIONAL_BIT))
    states.expire(NOON)
    assert states.expire(NOON + 10 * DAY_MS) == 0
    replay(states, marker(), 1)
    states.expire(NOON + 10 * DAY_MS)
    assert states.expire(NOON + 11 * DAY_MS) == 1


def test_forget_before_forgets_whose_last_batch_is_gone() -> None:
    states = states_after(batch(producer=1), batch(producer=2), batch(producer=1, sequence=1))
    assert states.forget_before(Offset(1)) == 0
    assert states.forget_before(Offset(2)) == 1
    assert [state.producer_id for state in states.active()] == [1]


def test_the_longest_silent_producer_makes_room_for_a_new_one() -> None:
    states = states_after(
        batch(producer=1),
        batch(producer=2),
        batch(producer=3),
        batch(producer=1, sequence=1),
        batch(producer=4),
        producers_max=3,
    )
    assert [state.producer_id for state in states.active()] == [3, 1, 4]
    assert [state.producer_id for state in restarted(states).active()] == [3, 1, 4]


def test_an_open_transaction_is_not_forgotten_for_room() -> None:
    states = states_after(
        batch(producer=1, attributes=TRANSACTIONAL_BIT),
        batch(producer=2),
        batch(producer=3),
        producers_max=2,
    )
    assert [state.producer_id for state in states.active()] == [1, 3]


# Snapshots


def test_the_window_survives_a_restart() -> None:
    sent = [batch(sequence=10 * n, count=10, timestamp=NOON + n) for n in range(7)]
    states = states_after(*sent)
    again = restarted(states)
    assert again == states
    assert [again.check(header) for header in sent[2:]] == [
        states.check(header) for header in sent[2:]
    ]
    refused(again, sent[1], OutOfOrderSequence)


def test_a_marker_after_the_data_survives_a_restart() -> None:
    states = states_after(batch(attributes=TRANSACTIONAL_BIT), marker(timestamp=NOON + 9))
    again = restarted(states)
    assert again == states
    assert again.encode_snapshot() == states.encode_snapshot()
    assert again.check(batch()) == states.check(batch())


def test_states_that_decide_differently_are_not_equal() -> None:
    assert states_after(batch()) == states_after(batch(timestamp=NOON))
    assert states_after(batch()) != states_after(batch(count=2))
    assert states_after(batch()) != states_after(batch(epoch=1))
    assert states_after(batch()) != states_after(batch(), batch(producer=8))
    assert states_after(batch()) != batch()


def test_the_snapshots_bytes_are_kafkas() -> None:
    states = states_after(
        batch(producer=0x0102, epoch=3, sequence=5, count=4, timestamp=1000),
        batch(producer=0x0102, epoch=3, sequence=9, timestamp=2000),
    )
    entries = [(0x0102, 3, 8, 3, 3, 1000, -1, -1), (0x0102, 3, 9, 4, 0, 2000, -1, -1)]
    body = struct.pack(">i", 2) + b"".join(struct.pack(">qhiqiqiq", *entry) for entry in entries)
    assert states.encode_snapshot() == struct.pack(">hI", 1, crc32c(body)) + body


def test_kafkas_snapshot_of_one_entry_per_producer_is_read() -> None:
    entries = [(1, 0, 41, 100, 1, NOON, -1, -1), (2, 5, -1, -1, 0, NOON, 3, 88)]
    body = struct.pack(">i", 2) + b"".join(struct.pack(">qhiqiqiq", *entry) for entry in entries)
    data = struct.pack(">hI", 1, crc32c(body)) + body
    states = ProducerStates.decode_snapshot(data, expiration_ms=DAY_MS)
    assert states.check(batch(producer=1, sequence=42)) is None
    assert states.check(batch(producer=1, sequence=40, count=2)) == DuplicateOf(
        base_offset=Offset(99), last_offset=Offset(100), timestamp=NOON
    )
    with_marker = next(state for state in states.active() if state.producer_id == 2)
    assert (with_marker.coordinator_epoch, with_marker.current_txn_first_offset) == (3, 88)
    assert states.encode_snapshot() == data


def test_no_producers_make_a_snapshot_too() -> None:
    empty = states_after()
    assert restarted(empty) == empty


def test_every_damaged_byte_of_a_snapshot_is_noticed() -> None:
    data = states_after(batch(), batch(sequence=1)).encode_snapshot()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises(ValueError, match="snapshot"):
            ProducerStates.decode_snapshot(bytes(damaged), expiration_ms=DAY_MS)


def test_a_snapshot_cut_short_or_grown_is_noticed() -> None:
    data = states_after(batch(), batch(sequence=1)).encode_snapshot()
    for size in range(len(data)):
        with pytest.raises(ValueError, match="snapshot"):
            ProducerStates.decode_snapshot(data[:size], expiration_ms=DAY_MS)
    with pytest.raises(ValueError, match="snapshot"):
        ProducerStates.decode_snapshot(data + b"\0", expiration_ms=DAY_MS)


@pytest.mark.parametrize("count", [-1, 1, 2**31 - 1])
def test_a_count_that_does_not_fit_the_size_is_noticed(count: int) -> None:
    body = struct.pack(">i", count)
    data = struct.pack(">hI", 1, crc32c(body)) + body
    with pytest.raises(ValueError, match=f"{count} entries"):
        ProducerStates.decode_snapshot(data, expiration_ms=DAY_MS)


@given(st.binary(max_size=200), st.booleans())
def test_garbage_is_a_value_error_and_nothing_else(garbage: bytes, with_right_crc: bool) -> None:
    data = struct.pack(">hI", 1, crc32c(garbage)) + garbage if with_right_crc else garbage
    try:
        states = ProducerStates.decode_snapshot(data, expiration_ms=DAY_MS)
    except ValueError:
        return
    # What has the right crc, count and size is a snapshot, however odd.
    assert with_right_crc
    assert len(states) <= len(garbage) // 46


@pytest.mark.parametrize("seen_at", [None, NOON + 60_000, NOON - 60_000])
@pytest.mark.parametrize(
    ("headers", "last"),
    [
        ([batch(timestamp=NOON - 5)], NOON - 5),
        ([batch(timestamp=NOON + 5), batch(sequence=1, timestamp=NOON - 5)], NOON - 5),
        ([batch(attributes=TRANSACTIONAL_BIT), marker(timestamp=NOON + 9)], NOON + 9),
        ([marker(timestamp=NOON + 9)], NOON + 9),
        ([batch(epoch=1), marker(epoch=2, timestamp=NOON + 9)], NOON + 9),
    ],
)
def test_the_time_of_the_last_batch_survives_expiration_runs_and_restarts(
    headers: list[BatchHeader], last: int, seen_at: int | None
) -> None:
    states = states_after(*headers)
    if seen_at is not None:
        assert states.expire(seen_at) == 0
    again = restarted(restarted(states))
    for one in (states, again):
        assert [state.last_timestamp for state in one.active()] == [last]
    # The time of activity is another one, and is kept beside it.
    assert again == states
    assert again.encode_snapshot() == states.encode_snapshot()
    if seen_at is not None:
        assert [state.active_at_ms for state in again.active()] == [seen_at]


def test_the_last_entry_of_a_producer_has_the_time_that_kafka_writes() -> None:
    states = states_after(batch(timestamp=1000))
    states.expire(NOON)
    entries = [(7, 0, 0, 0, 0, 1000, -1, -1), (7, 0, 0, 0, 0, NOON, -1, -1)]
    entries.append(entries[0])
    body = struct.pack(">i", 3) + b"".join(struct.pack(">qhiqiqiq", *entry) for entry in entries)
    assert states.encode_snapshot()[6:] == body
