import pytest

from respool.coordination.transactions.pending_markers import NextStep, PendingMarkers
from respool.model.ids import BrokerId, TopicPartition

FIRST, SECOND = TopicPartition("rides", 0), TopicPartition("rides", 1)
ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def test_a_round_names_what_is_missing_and_not_in_flight() -> None:
    pending = PendingMarkers([SECOND, FIRST])
    assert pending.begin_round(None) == [FIRST, SECOND]
    pending.on_in_flight(FIRST)
    assert pending.end_round() is NextStep.RETRY
    pending.on_retry()
    assert pending.begin_round(None) == [SECOND]


def test_all_markers_are_reported_once() -> None:
    pending = PendingMarkers([FIRST, SECOND])
    pending.begin_round(None)
    pending.on_written(FIRST)
    pending.on_in_flight(SECOND)
    assert pending.next_step() is NextStep.NOTHING
    assert pending.end_round() is NextStep.NOTHING
    pending.on_written(SECOND)
    assert pending.next_step() is NextStep.DONE
    assert pending.is_done
    assert pending.next_step() is NextStep.NOTHING


def test_a_transaction_without_partitions_is_done_at_the_end_of_its_first_round() -> None:
    pending = PendingMarkers([])
    assert pending.begin_round(None) == []
    assert pending.end_round() is NextStep.DONE


def test_one_retry_is_scheduled_at_a_time() -> None:
    pending = PendingMarkers([FIRST, SECOND])
    pending.begin_round(None)
    pending.on_in_flight(FIRST)
    pending.on_in_flight(SECOND)
    assert pending.end_round() is NextStep.NOTHING
    pending.on_not_written(FIRST)
    assert pending.next_step() is NextStep.RETRY
    pending.on_not_written(SECOND)
    assert pending.next_step() is NextStep.NOTHING
    pending.on_retry()
    assert pending.begin_round(None) == [FIRST, SECOND]


def test_a_fenced_coordinator_does_nothing_more() -> None:
    pending = PendingMarkers([FIRST, SECOND])
    pending.begin_round(None)
    pending.on_fenced()
    assert pending.end_round() is NextStep.NOTHING
    pending.on_written(FIRST)
    pending.on_written(SECOND)
    assert pending.is_fenced
    assert pending.next_step() is NextStep.NOTHING


def test_a_marker_in_flight_to_an_old_leader_does_not_make_the_others_retry_at_once() -> None:
    """1. A marker is in flight to a broker.   2. That one dies, and another leads.   3. A second partition waits."""
    leaders = {FIRST: TWO, SECOND: None}
    pending = PendingMarkers([FIRST, SECOND])
    for name in pending.begin_round(leaders.get):
        pending.on_attempt(name, leaders[name])
    pending.on_in_flight(FIRST)
    pending.end_round()
    assert not pending.has_other_leaders(leaders.get)

    leaders[FIRST] = THREE
    assert not pending.has_other_leaders(leaders.get)

    leaders[SECOND] = THREE
    assert pending.has_other_leaders(leaders.get)


def test_a_new_leader_starts_the_backoff_again() -> None:
    leaders: dict[TopicPartition, BrokerId | None] = {FIRST: None}
    pending = PendingMarkers([FIRST])
    retries = []
    for leader in (None, None, None, ONE, ONE):
        leaders[FIRST] = leader
        pending.on_retry()
        pending.begin_round(leaders.get)
        pending.on_attempt(FIRST, leader)
        assert pending.end_round() is NextStep.RETRY
        retries.append(pending.retries)
    assert retries == [1, 2, 3, 1, 2]


def test_what_cannot_be_is_an_assertion() -> None:
    pending = PendingMarkers([FIRST])
    with pytest.raises(AssertionError, match="a round ends in WAITING"):
        pending.end_round()
    pending.begin_round(None)
    with pytest.raises(AssertionError, match="a round begins in phase WRITING"):
        pending.begin_round(None)
    with pytest.raises(AssertionError, match="rides-1 needs no marker"):
        pending.on_in_flight(SECOND)
