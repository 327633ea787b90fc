"""A follower's fetch session: what is sent, and what an answer without news means."""

from typing import cast

import pytest

from respool.broker.partitions.partition import Partition
from respool.broker.replication.replica_session import EPOCH_MAX, ReplicaSession
from respool.model.ids import BrokerId, LeaderEpoch, Offset
from respool.replication.follower import Fetched, FetchFrom

RIDES = cast("Partition", "rides-0")
FARES = cast("Partition", "fares-0")


def fetch(offset: int) -> FetchFrom:
    return FetchFrom(
        leader=BrokerId(2),
        leader_epoch=LeaderEpoch(3),
        offset=Offset(offset),
        durable_end=Offset(offset),
        last_fetched_epoch=LeaderEpoch(3),
        log_start=Offset(0),
    )


def told(high_watermark: int, *, error: int = 0, has_records: bool = False) -> Fetched:
    return Fetched(
        error=error,
        has_records=has_records,
        high_watermark=Offset(high_watermark),
        log_start=Offset(0),
    )


@pytest.fixture
def begun() -> ReplicaSession:
    """A session over both partitions, both fetched from 5, that the leader calls 77."""
    session = ReplicaSession()
    first = session.next_request({RIDES: fetch(5), FARES: fetch(5)})
    assert (first.session_id, first.epoch) == (0, 0)
    assert set(first.changed) == {RIDES, FARES}
    session.on_reply(77, {RIDES: told(5), FARES: told(4)})
    return session


def test_only_what_has_changed_is_sent_again(begun: ReplicaSession) -> None:
    request = begun.next_request({RIDES: fetch(9), FARES: fetch(5)})
    assert (request.session_id, request.epoch) == (77, 1)
    assert dict(request.changed) == {RIDES: fetch(9)}
    assert request.forgotten == ()


def test_what_is_not_in_the_reply_is_as_it_was_told_last(begun: ReplicaSession) -> None:
    begun.next_request({RIDES: fetch(9), FARES: fetch(5)})
    answers = begun.on_reply(77, {RIDES: told(9, has_records=True)})
    assert answers == {RIDES: told(9, has_records=True), FARES: told(4)}


def test_what_is_not_asked_for_is_taken_out_of_the_session(begun: ReplicaSession) -> None:
    """The leader would take it for word that it is still there, while its log may be being cut off."""
    request = begun.next_request({RIDES: fetch(5)})
    assert request.forgotten == (FARES,)
    assert begun.on_reply(77, {}) == {RIDES: told(5)}
    back = begun.next_request({RIDES: fetch(5), FARES: fetch(5)})
    assert dict(back.changed) == {FARES: fetch(5)}


def test_what_had_an_error_is_sent_again_though_it_is_the_same(begun: ReplicaSession) -> None:
    begun.next_request({RIDES: fetch(5), FARES: fetch(5)})
    answers = begun.on_reply(77, {RIDES: told(-1, error=6)})
    assert answers[RIDES].error == 6
    assert dict(begun.next_request({RIDES: fetch(5), FARES: fetch(5)}).changed) == {RIDES: fetch(5)}


def test_what_had_an_error_and_is_not_asked_for_is_forgotten(begun: ReplicaSession) -> None:
    begun.next_request({RIDES: fetch(5), FARES: fetch(5)})
    begun.on_reply(77, {RIDES: told(-1, error=6)})
    assert begun.next_request({FARES: fetch(5)}).forgotten == (RIDES,)


@pytest.mark.parametrize("session_id", [0, 78])
def test_a_leader_that_keeps_no_session_is_asked_for_all_each_time(
    begun: ReplicaSession, session_id: int
) -> None:
    begun.next_request({RIDES: fetch(5), FARES: fetch(5)})
    assert begun.on_reply(session_id, {RIDES: told(5)}) == {RIDES: told(5)}
    request = begun.next_request({RIDES: fetch(5), FARES: fetch(5)})
    assert (request.session_id, request.epoch) == (0, 0)
    assert set(request.changed) == {RIDES, FARES}


def test_after_a_lost_request_a_new_session_begins(begun: ReplicaSession) -> None:
    begun.next_request({RIDES: fetch(9), FARES: fetch(5)})
    begun.reset()
    request = begun.next_request({RIDES: fetch(9), FARES: fetch(5)})
    assert (request.session_id, request.epoch) == (0, 0)
    assert set(request.changed) == {RIDES, FARES}


def test_the_epoch_goes_on_at_one_after_the_largest(begun: ReplicaSession) -> None:
    begun._epoch = EPOCH_MAX
    begun.next_request({RIDES: fetch(5), FARES: fetch(5)})
    begun.on_reply(77, {})
    assert begun.next_request({RIDES: fetch(5), FARES: fetch(5)}).epoch == 1
